"""Where training can be followed and runs compared: TensorBoard, Weights & Biases, MLflow.

``LOGGER`` names any of them; each is told every scalar of a run, its settings and its test. None is
needed for anything else. Whether W&B and MLflow write to disk or to a server is theirs to be told
(``WANDB_MODE=offline``, ``MLFLOW_TRACKING_URI``).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from coop_cmp.errors import UserError

PROJECT = "coop-cmp"
PATIENCE = 5.0  # seconds that TensorBoard's values wait
TESTED = "test/"  # how the tags of a test's results begin


class TensorBoard:
    """Event files beside the run, with the settings as hparams for its dashboard."""

    def __init__(self, folder: str, settings: Mapping[str, Any]) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from torch.utils.tensorboard import SummaryWriter  # slow, and not everybody has it

        self.writer: Any = SummaryWriter(log_dir=folder)
        self.settings, self.event = settings, Event
        self.waiting: list[Any] = []  # an event for each step

    def add(self, tag: str, value: float, step: int | None) -> None:
        """Keep a value for a while: the writer is a thread, and waking it takes time."""
        if not self.waiting or self.waiting[-1].step != (step or 0):
            if self.waiting and time.time() - self.waiting[0].wall_time > PATIENCE:
                self._write()
            self.waiting.append(self.event(step=step or 0, wall_time=time.time()))
        self.waiting[-1].summary.value.add(tag=tag, simple_value=value)

    def _write(self) -> None:
        for event in self.waiting:
            self.writer.file_writer.add_event(event, event.step, event.wall_time)
        self.waiting = []

    def close(self, results: Mapping[str, float]) -> None:
        self._write()
        plain = {
            k: v if isinstance(v, bool | int | float) else str(v) for k, v in self.settings.items()
        }
        if results:
            self.writer.add_hparams(plain, dict(results), run_name=".")
        self.writer.close()


class WandB:
    """A run of Weights & Biases."""

    def __init__(self, folder: str, settings: Mapping[str, Any]) -> None:
        import wandb

        place = Path(folder).parent
        self.run = wandb.init(project=PROJECT, name=str(place), dir=place, config=dict(settings))

    def add(self, tag: str, value: float, step: int | None) -> None:
        self.run.log({tag: value, "step": step})

    def close(self, results: Mapping[str, float]) -> None:
        self.run.summary.update(dict(results))
        self.run.finish()


class MLflow:
    """A run of MLflow."""

    def __init__(self, folder: str, settings: Mapping[str, Any]) -> None:
        from mlflow import MlflowClient

        self.client = MlflowClient()
        known = self.client.get_experiment_by_name(PROJECT)
        experiment = known.experiment_id if known else self.client.create_experiment(PROJECT)
        run = self.client.create_run(experiment, run_name=str(Path(folder).parent))
        self.name = run.info.run_id
        for key, value in settings.items():
            self.client.log_param(self.name, key, value)

    def add(self, tag: str, value: float, step: int | None) -> None:
        self.client.log_metric(self.name, tag, value, step=step or 0)

    def close(self, results: Mapping[str, float]) -> None:
        self.client.set_terminated(self.name)


TRACKERS: dict[str, type[TensorBoard] | type[WandB] | type[MLflow]] = {
    "tensorboard": TensorBoard,
    "wandb": WandB,
    "mlflow": MLflow,
}


class Trackers:
    """Several trackers as the one writer that Dassl's trainers have.

    Args:
        names: Which, of :data:`TRACKERS`.
        folder: For TensorBoard's files, in the run's directory.
        settings: Of the run, by key.

    Raises:
        UserError: One is not installed; of TensorBoard, the default, that is only told.
    """

    def __init__(self, names: Sequence[str], folder: str, settings: Mapping[str, Any]) -> None:
        self.results: dict[str, float] = {}
        self.trackers: list[TensorBoard | WandB | MLflow] = []
        for name in dict.fromkeys(names):
            try:
                self.trackers.append(TRACKERS[name](folder, settings))
            except ImportError as error:
                if name != "tensorboard":
                    raise UserError(f"LOGGER: {name} needs: pip install {name}") from error
                print("tensorboard is not installed: no event files are written")

    def add_scalar(self, tag: str, scalar_value: Any, global_step: int | None = None) -> None:
        """Tell all of them a value."""
        value = float(scalar_value)
        if tag.startswith(TESTED):
            self.results[tag] = value
        for tracker in self.trackers:
            tracker.add(tag, value, global_step)

    def close(self) -> None:
        """End the run in all of them, with the results of its last test."""
        for tracker in self.trackers:
            tracker.close(self.results)
