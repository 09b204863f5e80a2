"""The place for output: how runs are called, what they are, and whether they are complete."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from coop_cmp import CONFIGS
from coop_cmp.config import METHODS
from coop_cmp.config.defaults import check_backbone
from coop_cmp.config.resolve import resolve
from coop_cmp.errors import UserError, closest
from coop_cmp.files import read_yaml
from coop_cmp.losses.names import TERMS, split_trainer, twin_of
from coop_cmp.runs.frame import make_frame
from coop_cmp.runs.identity import Identity, calibrated, identify, read_identity
from coop_cmp.runs.outputs import OUTCOMES_FILE
from coop_cmp.runs.records import RESULTS_FILE, read_results
from coop_cmp.runs.run import Run
from coop_cmp.runs.stored import StoredRun

if TYPE_CHECKING:
    import pandas as pd

OWN_CONFIG = "dataset.yaml"  # of a folder of one's own images, beside its runs


@dataclass(frozen=True)
class State:
    """What a run's directory holds.

    Args:
        kind: ``done``; ``open`` (nothing, or a part that can be continued); ``foreign`` (a run with
            other settings); ``stale`` (the test of a model that was trained anew since);
            ``refused`` (results that cannot be trusted).
        reason: why it is neither done nor open, with the path.
        results: the content of ``results.json`` when it is done.
    """

    kind: Literal["done", "open", "foreign", "stale", "refused"]
    reason: str = ""
    results: dict[str, Any] | None = None


@dataclass(frozen=True)
class Project:
    """The place for output, the root of the data ("" leaves it to the configs) and the configs."""

    output: Path
    data: str = ""
    configs: Path = CONFIGS
    _records: dict[Path, tuple[Any, Any]] = field(default_factory=dict, compare=False, repr=False)

    def directory(self, run: Run) -> Path:
        """Return the run's own directory."""
        return self.output / run.path

    @cached_property
    def dataset_names(self) -> dict[str, str]:
        """Registered names by the names of their config files."""
        names = {file.parent.name: "ImageFolder" for file in self.output.glob(f"*/{OWN_CONFIG}")}
        for file in sorted((self.configs / "datasets").glob("*.yaml")):
            content = read_yaml(file) or {}
            names[file.stem] = str(content.get("DATASET", {}).get("NAME", file.stem))
        return names

    def own_config(self, dataset: str) -> Path:
        """Where the config of a folder of one's own images is: beside its runs."""
        return self.output / dataset / OWN_CONFIG

    def dataset_config(self, dataset: str) -> Path:
        """Return the data set's config."""
        ours, own = self.configs / f"datasets/{dataset}.yaml", self.own_config(dataset)
        return own if own.is_file() and not ours.is_file() else ours

    def trainer_config(self, trainer: str, backbone: str) -> Path | None:
        """The method's config, ``clip.yaml``; a variant uses its baseline's.

        A backbone may have a file of its own. A method without files uses those of the one whose
        node it shares, as zero-shot CLIP does CoOp's. None for a method that brings its settings
        itself.
        """
        method = split_trainer(trainer)[0]
        node = METHODS[method].node if method in METHODS else ""
        names = [method, *(name for name in METHODS if METHODS[name].node == node)]
        folders = (self.configs / "trainers" / name for name in names)
        folder = next((folder for folder in folders if folder.is_dir()), None)
        if folder is None:
            return None
        name = backbone.lower().replace("/", "").replace("-", "_").removesuffix("clip")
        own = folder / f"{name}.yaml"
        return own if own.is_file() else folder / "clip.yaml"

    def check(self, runs: Iterable[Run]) -> None:
        """Refuse unknown data sets and trainers, and two runs that would share a directory."""
        places: dict[Path, Run] = {}
        for run in dict.fromkeys(runs):
            for name in filter(None, (run.dataset, run.source)):
                if name not in self.dataset_names:
                    folder = self.configs / "datasets"
                    hint = closest(name, self.dataset_names)
                    raise UserError(f"datasets: {name!r} has no config in {folder}{hint}")
            if split_trainer(run.trainer)[0] not in METHODS:
                known = [*METHODS, *(twin_of(m, term) for term in TERMS for m in METHODS)]
                raise UserError(
                    f"trainers: there is no {run.trainer!r}{closest(run.trainer, known)}"
                )
            check_backbone(run.backbone, self.configs / "models")
            other = places.setdefault(run.path, run)
            if other != run:
                raise UserError(
                    f"two runs with different settings would share the directory {run}; give one "
                    "of them a tag"
                )
            self.identity(run)

    def command(self, run: Run) -> list[str]:
        """The arguments of ``coop-cmp`` that do the run."""
        if plain := run.uncalibrated:
            method, folder = run.calibrator.partition("-")[0], str(self.directory(plain))
            labels = [] if run.labels == "none" else ["--labels", run.labels]
            return ["calibrate", method, folder, *labels]
        dataset = self.dataset_config(run.dataset)
        command = [
            "train",
            *("--trainer", run.trainer),
            *("--backbone", run.backbone),
            *("--seed", str(run.seed)),
            *("--dataset-config-file", str(dataset)),
        ]
        if config := self.trainer_config(run.trainer, run.backbone):
            command += ["--config-file", str(config)]
        command += ["--output-dir", str(self.directory(run))]
        if self.data and dataset.name != OWN_CONFIG:  # such a file knows its folder
            command += ["--root", self.data]
        if run.training is not None:
            command += ["--eval-only", "--model-dir", str(self.directory(run.training))]
        return command + [word for pair in self._options(run).items() for word in pair]

    def _options(self, run: Run) -> dict[str, str]:
        # The views of an epoch are encoded once for all lambdas and methods.
        return {**run.choices, "INPUT.SHARED_VIEWS": "True", **dict(run.options)}

    def shell_command(self, run: Run) -> str:
        """The same call for a person to copy, which finds configs by their short names."""
        place, ours = f"{CONFIGS.parent}{os.sep}", f"{CONFIGS}{os.sep}"
        words = [w.removeprefix(place) if w.startswith(ours) else w for w in self.command(run)]
        return shlex.join(["coop-cmp", *words])

    def identity(self, run: Run) -> Identity:
        """What the run is, by the config files as they are now."""
        if plain := run.uncalibrated:
            return calibrated(self.identity(plain), run.calibrator, run.labels)
        config = self.trainer_config(run.trainer, run.backbone)
        files = {"--dataset-config-file": self.dataset_config(run.dataset), "--config-file": config}
        found = _identified(
            *(self.configs, run.trainer, run.backbone),
            tuple((name, str(f), _signature(f)) for name, f in files.items() if f),
            tuple(self._options(run).items()),
        )
        training = self.identity(run.training) if run.training else None
        return Identity({**found.settings, "SEED": run.seed}, training)

    def state(self, run: Run) -> State:
        """Look at what is on disk for this run."""
        directory = self.directory(run)
        path, outcomes = directory / RESULTS_FILE, directory / OUTCOMES_FILE
        try:
            results = self._read(path, read_results) if path.exists() else None
            if results and outcomes.exists():
                self._read(outcomes, lambda file: StoredRun.of(file.parent, results).check())
            found = Identity.from_record(results) if results else read_identity(directory)
        except (UserError, OSError) as error:
            return State("refused", str(error))
        if found is None:
            return State("open")
        if words := found.differences(self.identity(run)):
            return State(
                "foreign",
                f"{directory} holds a run with other settings: {'; '.join(words)}; --redo replaces "
                "it, another --output or a tag keeps both",
            )
        if results is None:
            return State("open")
        origin = run.uncalibrated or run.training
        made_of = self.state(origin).results if origin else None
        if made_of is not None and made_of["checkpoint"] != results["checkpoint"]:
            return State("stale", f"{directory}: {origin} was trained anew since")
        return State("done", results=results)

    def frame(self, runs: Iterable[Run]) -> pd.DataFrame:
        """Return the runs that are done as rows, in their order; see :mod:`coop_cmp.runs.frame`.

        Why others do not count is in ``frame.attrs["reasons"]``, by directory.
        """
        states = {self.directory(run): self.state(run) for run in runs}
        done = (StoredRun.of(place, s.results) for place, s in states.items() if s.results)
        frame = make_frame(done)
        frame.attrs["reasons"] = {str(place): s.reason for place, s in states.items() if s.reason}
        return frame

    def rows(self, runs: Sequence[Run]) -> dict[Run, dict[str, Any]]:
        """Return the rows of the frame by run, of those that are done."""
        found = {row["directory"]: row for row in self.frame(runs).to_dict("records")}
        return {run: found[name] for run in runs if (name := str(self.directory(run))) in found}

    def _read(self, path: Path, reader: Callable[[Path], Any]) -> Any:
        """What a file holds, read again only when the file has changed."""
        signature = _signature(path)
        if self._records.get(path, (None,))[0] != signature:
            self._records[path] = (signature, reader(path))
        return self._records[path][1]


def _signature(file: Path) -> tuple[int, int, int] | None:
    """What changes when a file is written anew; None where there is no file."""
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


@lru_cache(maxsize=4096)
def _identified(
    configs: Path,
    trainer: str,
    backbone: str,
    files: tuple[tuple[str, str, Any], ...],
    options: tuple[tuple[str, str], ...],
) -> Identity:
    """What a training makes of these files and options, with seed 0; signatures tell changes."""
    given = {"TRAINER.NAME": trainer, "MODEL.BACKBONE.NAME": backbone, "SEED": 0}
    paths = {name: file for name, file, _ in files}
    return identify(resolve(configs.parent, paths, given, dict(options)))
