"""Reading image files."""

from __future__ import annotations

import numpy as np
import pytest
from dassl.data import DatasetWrapper
from dassl.data.datasets import Datum
from dassl.utils import read_image
from dassl.utils.images import ImageCache
from PIL import Image
from torch.utils.data import DataLoader


@pytest.fixture
def photo() -> Image.Image:
    ramp = np.linspace(0, 255, 64 * 48).reshape(48, 64)
    return Image.fromarray(np.stack([ramp, ramp[::-1], 255 - ramp], -1).astype(np.uint8))


def mean_difference(a: Image.Image, b: Image.Image) -> float:
    return float(np.abs(np.asarray(a, float) - np.asarray(b, float)).mean())


def test_an_image_is_read_as_published_code_does_or_turned_upright(tmp_path, photo):
    exif = Image.Exif()
    exif[0x0112] = 6  # stored lying on its side: turn 270 degrees to view
    photo.save(tmp_path / "a.png", exif=exif)
    upright = photo.transpose(Image.Transpose.ROTATE_270)
    assert mean_difference(read_image(str(tmp_path / "a.png")), photo) == 0
    assert mean_difference(read_image(str(tmp_path / "a.png"), upright=True), upright) == 0


@pytest.mark.parametrize("mode", ["CMYK", "L", "YCbCr"])
def test_other_colour_spaces_become_rgb(tmp_path, photo, mode):
    photo.convert(mode).save(tmp_path / "a.jpg", quality=100)
    image = read_image(str(tmp_path / "a.jpg"))
    assert image.mode == "RGB"
    expected = photo.convert(mode).convert("RGB")
    assert mean_difference(image, expected) < 4  # JPEG


@pytest.mark.filterwarnings("error")
def test_transparent_parts_become_white_on_request_in_palette_and_rgba_images(tmp_path):
    palette = Image.new("P", (2, 1))
    palette.putpalette([255, 0, 0, 0, 0, 255])
    palette.putdata([0, 1])
    palette.save(tmp_path / "p.png", transparency=b"\xff\x00")
    rgba = Image.new("RGBA", (2, 1))
    rgba.putdata([(255, 0, 0, 255), (0, 0, 255, 0)])
    rgba.save(tmp_path / "rgba.png")
    for name in ("p.png", "rgba.png"):
        image = read_image(str(tmp_path / name), upright=True)
        assert np.asarray(image).tolist() == [[[255, 0, 0], [255, 255, 255]]]
    assert np.asarray(read_image(str(tmp_path / name))).tolist() == [[[255, 0, 0], [0, 0, 255]]]


def test_sixteen_bit_grey_keeps_its_range(tmp_path):
    grey = np.array([[0, 0x4000, 0x8000, 0xFFFF]], dtype=np.uint16)
    Image.fromarray(grey).save(tmp_path / "a.png")
    values = np.asarray(read_image(str(tmp_path / "a.png"), upright=True))[0, :, 0]
    assert values.tolist() == [0, 0x40, 0x80, 0xFF]


@pytest.mark.parametrize("suffix", ["jpg", "png", "bmp", "gif", "webp"])
def test_a_truncated_image_is_refused_by_name_wherever_it_is_cut(tmp_path, photo, suffix):
    whole = tmp_path / f"whole.{suffix}"
    photo.save(whole)
    data = whole.read_bytes()
    torn = tmp_path / f"torn.{suffix}"
    for share in (0.0, 0.1, 0.5, 0.9):
        torn.write_bytes(data[: int(len(data) * share)])
        with pytest.raises(OSError, match=rf'cannot read the image ".*torn.{suffix}".*replace'):
            read_image(str(torn))


def test_a_file_that_is_no_image_and_one_that_is_not_there_are_named(tmp_path):
    (tmp_path / "a.jpg").write_text("<html>404</html>")
    with pytest.raises(OSError, match=r'cannot read the image ".*a.jpg"'):
        read_image(str(tmp_path / "a.jpg"))
    with pytest.raises(FileNotFoundError, match=r"b\.jpg"):
        read_image(str(tmp_path / "b.jpg"))
    with pytest.raises(FileNotFoundError, match=r"b\.jpg"):
        Datum(impath=str(tmp_path / "b.jpg"))


def test_decoded_images_are_kept_as_long_as_they_fit(tmp_path, photo):
    paths = [str(tmp_path / f"{i}.png") for i in range(3)]
    for i, path in enumerate(paths):
        photo.rotate(90 * i).save(path)
    read = ImageCache(budget=2 * 64 * 48 * 3)
    first = [np.array(read(path)) for path in paths]
    for path in paths[:2]:
        (tmp_path / path).unlink()
        assert (np.array(read(path)) == first[paths.index(path)]).all()
    photo.save(paths[2])
    assert (np.array(read(paths[2])) == np.array(photo)).all()  # did not fit, is read again


def test_a_worker_process_reports_the_path_of_a_bad_image(tmp_path, make_cfg):
    (tmp_path / "bad.jpg").write_bytes(b"\xff\xd8\xff")
    wrapper = DatasetWrapper(make_cfg(), [Datum(impath=str(tmp_path / "bad.jpg"))])
    with pytest.raises(OSError, match=r"cannot read the image .*bad\.jpg"):
        next(iter(DataLoader(wrapper, num_workers=1)))
