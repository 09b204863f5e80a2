"""A finished run on disk: its record, and what else it left, read when somebody asks for it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from coop_cmp.errors import UserError
from coop_cmp.metrics.records import METRICS, shown_in
from coop_cmp.runs.identity import Identity
from coop_cmp.runs.outputs import (
    OUTCOMES_FILE,
    PREDICTIONS_FILE,
    Outcomes,
    Predictions,
    read_outcomes,
    read_predictions,
)
from coop_cmp.runs.records import RESULTS_FILE, read_results

if TYPE_CHECKING:
    from coop_cmp.metrics import Samples


@dataclass(frozen=True, eq=False)
class StoredRun:
    """A finished run, or a file of predictions of which nothing else is known.

    Attributes:
        path: Its predictions.
        record: What its ``results.json`` holds; empty where there is none.
    """

    path: Path
    record: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: str | Path, record: Mapping[str, Any] | None = None) -> StoredRun:
        """Return the run in a folder, with its record read and checked if it is not given."""
        record = read_results(Path(folder, RESULTS_FILE)) if record is None else record
        return cls(Path(folder, PREDICTIONS_FILE), record)

    @property
    def folder(self) -> Path:
        """Where it lives."""
        return self.path.parent

    @property
    def settings(self) -> Mapping[str, Any]:
        """Its settings by key."""
        return self.record.get("settings", {})

    @cached_property
    def identity(self) -> Identity:
        """What it is."""
        return Identity.from_record(self.record)

    @property
    def split(self) -> str:
        """What it was tested on."""
        return self.settings["TEST.SPLIT"]

    @property
    def trained(self) -> str:
        """The digest of the run that learned what is tested here: of another or of itself."""
        return (self.identity.training or self.identity).digest

    @property
    def bins(self) -> tuple[int, Literal["right", "left"]]:
        """The number of bins and the closed end of its metrics; other checkouts name none."""
        closed = self.settings.get("TEST.BIN_CLOSED")
        return self.settings.get("TEST.N_BINS", 10), "left" if closed == "left" else "right"

    @cached_property
    def predictions(self) -> Predictions:
        """Its logits and labels."""
        return read_predictions(self.path, self._digests.get(self.path.name))

    @cached_property
    def outcomes(self) -> Outcomes:
        """What it said about each image."""
        return read_outcomes(self.folder / OUTCOMES_FILE, self._digests.get(OUTCOMES_FILE))

    @property
    def _digests(self) -> Mapping[str, str]:
        return self.record.get("files", {})

    def check(self, predictions: bool = False) -> None:
        """Refuse a run whose outcomes, if it has any, are not those that it left.

        Args:
            predictions: Check its predictions as well, which takes longer.

        Raises:
            UserError: Beginning with the path of the file.
        """
        outcomes = self.folder / OUTCOMES_FILE
        if os.path.lexists(outcomes):
            read_outcomes(outcomes, self._digests.get(OUTCOMES_FILE))
        if predictions:
            read_predictions(self.path, self._digests.get(self.path.name))

    @cached_property
    def samples(self) -> Samples:
        """Its predictions, to be measured."""
        try:
            return self.predictions.samples()
        except UserError as error:
            raise UserError(f"{self.path}: {error}") from error

    def samples_for(self, metric: str) -> Samples:
        """Return what a metric needs: all probabilities, or the outcomes, which are read faster."""
        return self.samples if METRICS[metric].all_probabilities else self.outcomes.samples()

    def metrics(self) -> dict[str, float | None]:
        """Return its stored metrics, and those of tables that were registered after it was made."""
        found = dict(self.record["metrics"])
        for metric in shown_in("table"):
            if metric.name not in found:
                from coop_cmp.metrics.panel import measure

                try:
                    samples = self.samples_for(metric.name)
                    found |= measure(samples, [metric.name], *self.bins)
                except UserError:  # its files are gone
                    found[metric.name] = None
        return found

    def shares(self, other: StoredRun, *keys: str) -> bool:
        """Whether these settings are the same in another run."""
        return all(self.settings.get(key) == other.settings.get(key) for key in keys)
