"""Captions of sign pictures: a frame, adjectives that are true of the picture, a name."""

from __future__ import annotations

import random

from coop_cmp.datasets.signs import SIGNS, sign_name

FRAMES = (
    "a photo of a {}.", "a photo of the {}.", "a {}.", "the {}.", "{}",
    "a picture of a {}.", "a picture of the {}.", "an image of a {}.", "an image of the {}.",
    "this is a {}.", "this is the {}.", "a drawing of a {}.", "a scan of the {}.",
    "a close-up photo of a {}.", "a cropped photo of the {}.", "a good photo of the {}.",
    "itap of a {}.", "a bad photo of the {}.", "a origami {}.", "a photo of the large {}.",
    "a {} in a video game.", "art of the {}.", "a photo of my {}.", "a photo of a sign, {}.",
    "a photo of the digit {}.", "a photo of the letter {}.", "a {}, a type of sign.",
    "this is a photo that i took of a sign on the wall, it shows the {}.",
    "i found this photo of my old notes in the book, and here you can see a {}.",
    "in this photo of a page from the book you can see the {}.",
    "a photo of a form, on which someone wrote a {}.",
)  # fmt: skip
ADJECTIVES = {
    "handwritten": ("handwritten", "hand drawn", "written"),
    "printed": ("printed", "typed"),
    "thin": ("thin", "light"),
    "bold": ("bold", "thick"),
    "serif": ("serif", "roman"),
    "sans": ("sans", "plain"),
    "mono": ("typewriter", "code"),
    "italic": ("italic", "slanted"),
    "red": ("red",),
    "green": ("green",),
    "blue": ("blue",),
    "yellow": ("yellow",),
    "blurry": ("blurry", "blurred"),
    "noisy": ("noisy", "grainy"),
    "coarse": ("pixelated", "low resolution"),
    "left": ("left leaning",),
    "right": ("right leaning",),
    "inverted": ("inverted", "negative"),
    "small": ("small", "tiny"),
}


def caption(sign: int, attributes: list[str], rng: random.Random) -> str:
    """Return a random caption that says the sign and these attributes of the picture."""
    words = [rng.choice(ADJECTIVES[attribute]) for attribute in attributes]
    frame, name = rng.choice(FRAMES), sign_name(SIGNS[sign])
    # What stands before the noun of the frame is said of the photo, the rest of the sign.
    split = rng.randint(0, len(words)) if "photo" in frame else 0
    frame = frame.replace("photo", " ".join([*words[:split], "photo"]))
    return frame.format(" ".join([*words[split:], name]))


def vocabulary_texts() -> list[str]:
    """Return short texts that together hold every word a caption can have."""
    adjectives = [word for words in ADJECTIVES.values() for word in words]
    return [*FRAMES, *adjectives, *map(sign_name, SIGNS)]
