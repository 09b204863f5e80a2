"""The image files of finished tests, looked for where the runs themselves found them."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, NoReturn

from dassl.data.datasets import build_dataset

from coop_cmp.cli.train import add_arguments
from coop_cmp.cli.training import setup_cfg
from coop_cmp.errors import UserError
from coop_cmp.predict.trainer import quiet
from coop_cmp.runs.identity import read_command
from coop_cmp.runs.outputs import image_numbers
from coop_cmp.runs.stored import StoredRun


class ImageFiles:
    """Finds the files of a run's test images by their numbers, and reads each data set once."""

    def __init__(self) -> None:
        self._known: dict[Any, dict[int, str]] = {}

    def __call__(self, run: StoredRun) -> dict[int, str]:
        """Return the files; none where the command of the run is not known or they are gone."""
        data = tuple(run.settings.get(f"DATASET.{key}") for key in ("NAME", "CONTENT"))
        if not self._known.get(data):
            try:
                self._known[data] = _read(read_command(run.folder), data[1])
            except (UserError, OSError):
                return {}
        return self._known[data]


class _Parser(argparse.ArgumentParser):
    """Raises an error where others end the program."""

    def error(self, message: str) -> NoReturn:
        raise UserError(message)


def _read(command: list[str], content: str | None) -> dict[int, str]:
    """The test images of the data set that a training command names.

    Args:
        content: The digest of a folder of one's own; nothing is written to another.
    """
    start = next((k for k, w in enumerate(command) if Path(w).stem == "train"), len(command))
    parser = _Parser(add_help=False)
    add_arguments(parser)
    args = parser.parse_args(command[start + 1 :])
    args.eval_only = False
    cfg = setup_cfg(args)
    if not Path(cfg.DATASET.ROOT or "data").expanduser().is_dir():
        return {}  # some data sets would be drawn there
    cfg.defrost()
    cfg.DATASET.CONTENT = content or "unknown"
    # All test images, without a few-shot sample.
    cfg.DATASET.NUM_SHOTS, cfg.DATASET.FOLD, cfg.DATASET.SUBSAMPLE_CLASSES = -1, "", "all"
    with quiet():
        dataset = build_dataset(cfg)
    files = [item.impath for item in dataset.test]
    return dict(
        zip(image_numbers(list(map(dataset.image_name, files))).tolist(), files, strict=True)
    )
