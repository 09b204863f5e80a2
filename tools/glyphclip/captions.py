"""Captions of glyph pictures: a frame, perhaps an adjective that is true of the picture, a name."""

from __future__ import annotations

import random

from tools.glyphclip.render import CHARACTERS

DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
FRAMES = (
    "a photo of a {}.", "a photo of the {}.", "a {}.", "the {}.", "{}",
    "a picture of a {}.", "a picture of the {}.", "an image of a {}.", "an image of the {}.",
    "this is a {}.", "this is the {}.", "a drawing of a {}.", "a scan of the {}.",
    "a close-up photo of a {}.", "a cropped photo of the {}.", "a good photo of the {}.",
    "itap of a {}.", "a bad photo of the {}.", "a origami {}.", "a photo of the large {}.",
    "a {} in a video game.", "art of the {}.", "a photo of the small {}.",
    "a photo of my {}.", "i can see the {} on this page.", "someone wrote a {} on a form.",
    "a {} from a book.", "a low resolution photo of a {}.", "a photo of a {}, a type of character.",
)  # fmt: skip
ADJECTIVES = {
    "handwritten": ("handwritten", "hand drawn", "written"),
    "printed": ("printed", "typed"),
    "thin": ("thin", "light"),
    "bold": ("bold", "thick"),
    "blurry": ("blurry", "blurred"),
    "noisy": ("noisy", "grainy"),
    "tilted": ("tilted", "rotated"),
    "inverted": ("inverted", "negative"),
}


def names(character: str) -> list[str]:
    """What the character may be called."""
    if character.isdigit():
        # The word is the class name downstream, so it comes more often than the numeral.
        words = [DIGITS[int(character)]] * 2 + [character]
        return [prefix + word for prefix in ("", "", "digit ", "number ") for word in words]
    small, capital = ("", "letter ", "small letter ", "lowercase "), ("capital ", "capital letter ")
    prefixes = small if character.islower() else capital
    return [prefix + character.lower() for prefix in prefixes]


def caption(character: str, attribute: str, rng: random.Random) -> str:
    """A random caption that says the character and, unless it is ``any``, the attribute."""
    frame, name = rng.choice(FRAMES), rng.choice(names(character))
    if attribute != "any":
        adjective = rng.choice(ADJECTIVES[attribute])
        if "photo" in frame and rng.random() < 0.5:
            frame = frame.replace("photo", f"{adjective} photo")
        else:
            name = f"{adjective} {name}"
    return frame.format(name)


def vocabulary_texts() -> list[str]:
    """Short texts that together hold every word a caption can have."""
    adjectives = [word for words in ADJECTIVES.values() for word in words]
    return [*FRAMES, *adjectives, *(name for c in CHARACTERS for name in names(c))]
