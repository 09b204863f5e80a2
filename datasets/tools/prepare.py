"""Bring what one downloads into the layout that the data sets expect."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from PIL import Image

from coop_cmp.errors import UserError
from coop_cmp.files import atomic_write

from ..files import list_folders
from ..imagenet import CLASSNAMES, ImageNet, ShiftedTestSet, WordNetDataset
from ..ucf101 import UCF101, spaced
from .cifar10 import prepare_cifar10

UNPACKERS = {
    "bsdtar": ["bsdtar", "-xf", "{archive}", "-C", "{folder}"],
    "unrar": ["unrar", "x", "-inul", "{archive}", "{folder}/"],
    "7z": ["7z", "x", "-bso0", "-o{folder}", "{archive}"],
}


def prepare(name: str, source: Path, root: Path) -> str:
    """Make the data set ``name`` below ``root`` from ``source``; return what was done."""
    if not source.exists():
        raise UserError(f"no file or folder {source}")
    return PREPARE[name](source, root)


def prepare_ucf101(source: Path, root: Path) -> str:
    """Write the middle frame of each video of UCF101.rar, or of the folder it unpacks to."""
    target = root / UCF101.dataset_dir / UCF101.image_dir
    if target.exists():
        raise UserError(f"{target} is already there; remove it to make it again")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".ucf101-") as scratch:
        if source.is_file():
            unpack(source, Path(scratch))
            source = Path(scratch)
            for link in [path for path in source.rglob("*") if path.is_symlink()]:
                link.unlink()  # an archive of others could lead anywhere
        videos = sorted(source.rglob("*.avi"))
        if not videos:
            raise UserError(f"no .avi file below {source}; give UCF101.rar or the folder UCF-101")
        made = Path(scratch, "frames")
        for video in videos:
            image = made / spaced(video.parent.name) / f"{video.stem}.jpg"
            image.parent.mkdir(parents=True, exist_ok=True)
            middle_frame(video).save(image, quality=95)
        made.rename(target)
    return f"wrote {len(videos)} frames to {target}"


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a RAR archive with whatever program for it there is."""
    for program, command in UNPACKERS.items():
        if shutil.which(program):
            filled = [part.format(archive=archive.resolve(), folder=folder) for part in command]
            if subprocess.run(filled, check=False).returncode:
                raise UserError(f"{program} could not unpack {archive}")
            return
    raise UserError(f"to unpack {archive}, install one of: {', '.join(UNPACKERS)}")


def middle_frame(video: Path) -> Image.Image:
    """The frame in the middle of a video."""
    try:
        import cv2
    except ImportError:
        raise UserError(
            "reading videos needs OpenCV: pip install opencv-python-headless; or download the "
            "frames, see docs/datasets.md"
        ) from None
    capture = cv2.VideoCapture(str(video))
    capture.set(cv2.CAP_PROP_POS_FRAMES, int(capture.get(cv2.CAP_PROP_FRAME_COUNT)) // 2)
    found, frame = capture.read()
    capture.release()
    if not found:
        raise UserError(f"no frame in the middle of {video}: a broken file?")
    return Image.fromarray(cv2.cvtColor(frame, cv2.COLOR_BGR2RGB))


def prepare_imagenet(source: Path, root: Path) -> str:
    """Write ``classnames.txt`` from a folder with the 1,000 class folders and CLIP's names.

    It goes into the folders of ImageNet and its shifted test sets that are there without one.
    """
    from open_clip import IMAGENET_CLASSNAMES

    ids = list_folders(source)
    if len(ids) != len(IMAGENET_CLASSNAMES) or ids[0] != "n01440764":
        raise UserError(f"{source} must hold the 1000 class folders, from n01440764 on")
    text = "".join(f"{i} {name}\n" for i, name in zip(ids, IMAGENET_CLASSNAMES, strict=True))
    family: list[type[WordNetDataset]] = [ImageNet, *ShiftedTestSet.__subclasses__()]
    folders = [root / cls.dataset_dir for cls in family]
    folders = [f for f in folders if f.is_dir() and not (f / CLASSNAMES).exists()]
    for folder in folders:
        with atomic_write(folder / CLASSNAMES) as file:
            file.write(text.encode())
    return f"wrote {CLASSNAMES} into {', '.join(map(str, folders)) or 'no folder: none lacks it'}"


PREPARE: dict[str, Callable[[Path, Path], str]] = {
    "cifar10": prepare_cifar10,
    "imagenet": prepare_imagenet,
    "ucf101": prepare_ucf101,
}
