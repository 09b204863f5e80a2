"""The embedded data set of letters and digits: classes, parts, pictures, typefaces."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from dassl.config import get_cfg_default
from PIL import Image, ImageFont

from coop_cmp.config.resolve import extend_cfg
from coop_cmp.datasets import glyphs
from coop_cmp.datasets.glyphs import (
    CHARACTERS,
    TYPEFACES,
    Glyphs,
    class_name,
    draw_character,
    faces,
)
from coop_cmp.errors import UserError
from tools.glyphclip import captions, render


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Glyphs]:
    """A tenth of the data set, as drawing all of it takes 15 seconds."""
    with pytest.MonkeyPatch.context() as patch:
        for name, count in (("TRAIN", 2), ("VAL", 1), ("TEST", 4)):
            patch.setattr(glyphs, name, count)
        yield Glyphs(config(tmp_path_factory.mktemp("data")))


def config(root: Path, subsample: str = "all"):
    cfg = get_cfg_default()
    extend_cfg(cfg)
    cfg.DATASET.NAME, cfg.DATASET.ROOT, cfg.SEED = "Glyphs", str(root), 1
    cfg.DATASET.SUBSAMPLE_CLASSES = subsample
    return cfg


def test_the_parts_are_disjoint_and_balanced():
    parts = Glyphs.plan(Glyphs.__new__(Glyphs))
    paths = [path for part in parts for path, _, _ in part]
    assert len(set(paths)) == len(paths) == 47 * 70
    for part, count in zip(parts, (20, 10, 40), strict=True):
        assert Counter(label for _, label, _ in part) == dict.fromkeys(range(47), count)


def test_no_picture_is_there_twice(data):
    paths = [item.impath for part in (data.train_x, data.val, data.test) for item in part]
    assert len({Path(path).read_bytes() for path in paths}) == len(paths) == 47 * 7


def test_classes_are_called_as_glyphclip_knows_them(data):
    assert len(set(data.classnames)) == 47
    for character, name in zip(CHARACTERS, data.classnames, strict=True):
        assert name == class_name(character)
        assert name in captions.names(character)
    small = {c.upper() for c in CHARACTERS if c.islower()}
    assert not small & set("CIJKLMOPSUVWXYZ")  # which look like their capitals


def test_base_and_new_classes_are_halves(data):
    root = Path(data.dataset_dir).parent
    base, new = (Glyphs(config(root, part)).classnames for part in ("base", "new"))
    assert base + new == data.classnames
    assert (len(base), len(new)) == (24, 23)


def test_glyphclip_has_seen_none_of_the_typefaces():
    seen = {ImageFont.truetype(str(file)).getname()[0] for file in render.font_files()}
    used = {
        ImageFont.truetype(str(face)).getname()[0] for name in TYPEFACES for face in faces(name)
    }
    assert len(used) == len(TYPEFACES)
    assert not {name.split()[0] for name in seen} & {name.split()[0] for name in used}


def test_every_face_has_every_character():
    for name in TYPEFACES:
        assert faces(name)
        for face in faces(name):
            font = ImageFont.truetype(str(face), 40)
            missing = bytes(font.getmask("\uffff"))
            assert all(bytes(font.getmask(c)) not in (missing, b"") for c in CHARACTERS), face


def test_a_picture_depends_on_its_seed_alone_and_shows_its_character():
    first, again, other = (
        np.asarray(draw_character("R", np.random.default_rng(seed))).astype(float)
        for seed in (1, 1, 2)
    )
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    means = {
        c: np.mean([draw_character(c, np.random.default_rng(i)) for i in range(40)], axis=0)
        for c in "RI"
    }
    for c, seed in (("R", 100), ("I", 101)):
        picture = np.asarray(draw_character(c, np.random.default_rng(seed))).ravel()
        match = {name: np.corrcoef(picture, m.ravel())[0, 1] for name, m in means.items()}
        assert max(match, key=match.get) == c


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
