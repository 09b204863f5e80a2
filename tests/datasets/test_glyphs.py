"""The embedded data set of a hundred signs: classes, parts, pictures, typefaces, shifts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from dassl.data.datasets import DATASET_REGISTRY
from PIL import Image, ImageFont

from coop_cmp.datasets import glyphs
from coop_cmp.datasets.glyphs import (
    CLASSES,
    LIGHT,
    TYPEFACES,
    Glyphs,
    background,
    draw_sign,
    faces,
    faces_with,
    load_font,
)
from coop_cmp.datasets.signs import ACCENTED, CYRILLIC, DIGITS, GREEK, LATIN, SIGNS, sign_name
from coop_cmp.errors import UserError
from tests.datasets.trees import build
from tools.glyphclip import render

COUNTS = {name: getattr(glyphs, name) for name in ("TRAIN", "VAL", "TEST")}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Glyphs]:
    """A tenth of the data set, as drawing all of it takes seconds."""
    with pytest.MonkeyPatch.context() as patch:
        for name, count in (("TRAIN", 2), ("VAL", 1), ("TEST", 4)):
            patch.setattr(glyphs, name, count)
        yield build("Glyphs", tmp_path_factory.mktemp("data"))


def test_the_parts_are_disjoint_and_balanced(monkeypatch):
    for name, count in COUNTS.items():
        monkeypatch.setattr(glyphs, name, count)
    parts = Glyphs.plan(Glyphs.__new__(Glyphs))
    paths = [path for part in parts for path, _, _ in part]
    assert len(set(paths)) == len(paths) == 100 * 40
    for part, count in zip(parts, (16, 4, 20), strict=True):
        assert Counter(label for _, label, _ in part) == dict.fromkeys(range(100), count)


def test_no_picture_is_there_twice(data):
    paths = [item.impath for part in (data.train_x, data.val, data.test) for item in part]
    assert len({Path(path).read_bytes() for path in paths}) == len(paths) == 100 * 7


def test_classes_are_signs_that_glyphclip_knows_by_these_names(data):
    assert data.classnames == [sign_name(sign) for sign in CLASSES]
    assert set(CLASSES) < set(SIGNS)


def test_base_and_new_classes_are_halves_of_all_kinds(data):
    root = Path(data.dataset_dir).parent
    halves = [build("Glyphs", root, SUBSAMPLE_CLASSES=part) for part in ("base", "new")]
    base, new = (half.classnames for half in halves)
    assert base + new == data.classnames
    assert len(base) == len(new) == 50
    for half in (CLASSES[:50], CLASSES[50:]):
        assert all(set(kind) & set(half) for kind in (DIGITS, LATIN, ACCENTED, GREEK, CYRILLIC))


def test_glyphclip_has_seen_none_of_the_typefaces():
    seen = {ImageFont.truetype(str(file)).getname()[0] for file in render.font_files()}
    used = {
        ImageFont.truetype(str(face)).getname()[0] for name in TYPEFACES for face in faces(name)
    }
    assert len(used) == len(TYPEFACES)
    assert not {name.split()[0] for name in seen} & {name.split()[0] for name in used}


def test_every_class_has_several_typefaces_that_really_draw_it():
    for sign in CLASSES:
        assert len(faces_with(sign)) >= 4
        for face in (file for typeface in faces_with(sign) for file in typeface[:1]):
            font = load_font(face)
            assert bytes(font.getmask(sign)) not in (bytes(font.getmask("\uffff")), b""), face


def test_a_picture_depends_on_its_seed_alone_and_shows_its_sign():
    first, again, other = (
        np.asarray(draw_sign("R", np.random.default_rng(seed))).astype(float) for seed in (1, 1, 2)
    )
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    means = {
        c: np.mean([draw_sign(c, np.random.default_rng(i)) for i in range(40)], axis=0)
        for c in "RI"
    }
    for c, seed in (("R", 100), ("I", 101)):
        picture = np.asarray(draw_sign(c, np.random.default_rng(seed))).ravel()
        match = {name: np.corrcoef(picture, m.ravel())[0, 1] for name, m in means.items()}
        assert max(match, key=match.get) == c


def test_light_rises_evenly_from_one_side_to_the_other():
    for seed in range(20):
        page = background(np.random.default_rng(seed))
        assert 0 <= page.min() <= page.max() <= 25 + LIGHT
        assert np.allclose(np.diff(page, 2, axis=0), 0)
        assert np.allclose(np.diff(page, 2, axis=1), 0)


def test_a_shifted_set_has_the_test_pictures(data):
    names = DATASET_REGISTRY.registered_names()
    assert {f"Glyphs{shift}" for shift in ("Noise", "Blur", "Rotate", "Invert")} < set(names)
    inverted = build("GlyphsInvert", Path(data.dataset_dir).parent)
    for first, second in zip(data.test[::100], inverted.test[::100], strict=True):
        assert first.label == second.label
        plain, shifted = (np.asarray(Image.open(item.impath)) for item in (first, second))
        assert np.array_equal(shifted, 255 - plain)


def test_pictures_are_grey_and_small(data):
    picture = Image.open(data.test[0].impath)
    assert (picture.mode, picture.size) == ("L", (32, 32))


def test_a_missing_typeface_is_named_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setattr(glyphs.importlib.util, "find_spec", lambda _: None)
    faces.cache_clear()
    with pytest.raises(UserError, match="pip install font-roboto font-caladea font-source-serif"):
        faces("roboto")
    monkeypatch.undo()
    assert faces("roboto")
