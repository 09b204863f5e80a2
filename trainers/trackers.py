"""Where training can be followed: TensorBoard's event files, and Weights & Biases if it is named.

W&B reads TensorBoard's files (``sync_tensorboard``), with their steps. Whether it writes to disk or
to a server is set by its own variables (``WANDB_MODE=offline``).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from coop_cmp.errors import UserError

PROJECT = "coop-cmp"
PATIENCE = 5.0  # seconds that values wait to be written
TESTED = "test/"  # how the tags of a test's results begin


class RunWriter:
    """The writer that Dassl's trainers have: scalars, and the settings as hparams at the end.

    Args:
        names: What ``LOGGER`` names: tensorboard, wandb. Both write TensorBoard's files.
        folder: Of TensorBoard's files, in the run's directory.
        settings: Of the run, by key.

    Raises:
        UserError: What W&B needs is not installed; for TensorBoard alone, the default, a line says
            so and nothing is written.
    """

    def __init__(self, names: Sequence[str], folder: str, settings: Mapping[str, Any]) -> None:
        self.settings, self.results = settings, dict[str, float]()
        self.waiting: list[Any] = []  # an event for each step
        self.writer: Any = None
        self.wandb = _start_wandb(folder, settings) if "wandb" in names else None
        try:
            from tensorboard.compat.proto.event_pb2 import Event
            from torch.utils.tensorboard import SummaryWriter  # slow, and not everybody has it
        except ImportError as error:
            if self.wandb is not None:
                raise UserError("LOGGER: wandb needs: pip install tensorboard") from error
            print("tensorboard is not installed: no event files are written")
            return
        self.event, self.writer = Event, SummaryWriter(log_dir=folder)

    def add_scalar(self, tag: str, scalar_value: Any, global_step: int | None = None) -> None:
        """Keep a value for a while: the writer is a thread, and waking it takes time."""
        value, step = float(scalar_value), global_step or 0
        if tag.startswith(TESTED):
            self.results[tag] = value
        if self.writer is None:
            return
        if not self.waiting or self.waiting[-1].step != step:
            if self.waiting and time.time() - self.waiting[0].wall_time > PATIENCE:
                self._write()
            self.waiting.append(self.event(step=step, wall_time=time.time()))
        self.waiting[-1].summary.value.add(tag=tag, simple_value=value)

    def _write(self) -> None:
        for event in self.waiting:
            self.writer.file_writer.add_event(event, event.step, event.wall_time)
        self.waiting = []

    def close(self) -> None:
        """Write what is left, and the results of the last test beside the settings."""
        if self.writer is None:
            return
        self._write()
        plain = {
            k: v if isinstance(v, bool | int | float) else str(v) for k, v in self.settings.items()
        }
        if self.results:
            self.writer.add_hparams(plain, self.results, run_name=".")
        self.writer.close()
        if self.wandb is not None:
            self.wandb.finish()


def _start_wandb(folder: str, settings: Mapping[str, Any]) -> Any:
    try:
        import wandb
    except ImportError as error:
        raise UserError("LOGGER: wandb needs: pip install wandb") from error
    place = Path(folder).parent
    return wandb.init(
        project=PROJECT, name=str(place), dir=place, config=dict(settings), sync_tensorboard=True
    )
