"""Where runs live, how they are called and whether they are complete."""

from __future__ import annotations

import hashlib
import json
import shlex
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import yaml

from coop_cmp.errors import UserError, closest
from coop_cmp.results import RESULTS_FILE, read_results
from coop_cmp.sweep.grid import Run, is_zero_shot, number_text

RECORD = "sweep.json"
# May differ from machine to machine, as in a run that is resumed.
FREE = (("DATALOADER", "NUM_WORKERS"), ("TRAIN", "PRINT_FREQ"), ("TRAIN", "CHECKPOINT_FREQ"))


def find_root() -> Path:
    """The checkout that holds ``train.py``: the current directory, or the one of this package."""
    for root in (Path.cwd(), Path(__file__).resolve().parents[2]):
        if (root / "train.py").is_file():
            return root
    raise UserError(
        f"no train.py in {Path.cwd()}: run this inside a checkout of coop-cmp, or name it "
        "with --project"
    )


@dataclass(frozen=True)
class State:
    """What a run's directory holds.

    Args:
        kind: ``done``; ``open`` (nothing, or a part that can be continued); ``foreign`` (complete,
            but made with other settings); ``refused`` (a results file that cannot be trusted).
        reason: why it is foreign or refused, with the path.
        results: the content of ``results.json`` when it is done.
    """

    kind: Literal["done", "open", "foreign", "refused"]
    reason: str = ""
    results: dict[str, Any] | None = None


@dataclass(frozen=True)
class Project:
    """A checkout, the place for output and the root of the data ("" leaves it to the configs)."""

    root: Path
    output: Path
    data: str = ""

    def directory(self, run: Run) -> Path:
        """The run's own directory."""
        return self.output / run.path

    @cached_property
    def dataset_names(self) -> dict[str, str]:
        """Registered names by the names of their config files."""
        names = {}
        for file in sorted((self.root / "configs/datasets").glob("*.yaml")):
            content = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
            names[file.stem] = str(content.get("DATASET", {}).get("NAME", file.stem))
        return names

    def trainer_config(self, trainer: str, backbone: str) -> Path:
        """The method's config for this kind of backbone; a twin uses its baseline's.

        Sizes without a file of their own use the one of their family: ViT-B/16 or RN50.
        """
        folder = self.root / "configs/trainers" / trainer.removesuffix("_CMP")
        if not folder.is_dir():
            # The zero-shot trainers only take the input size from it.
            known = sorted(p.name for p in folder.parent.glob("*") if p.is_dir())
            if not is_zero_shot(trainer):
                known += [f"{name}_CMP" for name in known]
                raise UserError(
                    f"trainers: {trainer!r} has no config in {folder.parent}"
                    f"{closest(trainer, known)}"
                )
            folder = folder.with_name("CoOp")
        name = backbone.lower().replace("/", "").replace("-", "_").removesuffix("clip")
        family = "rn50" if name.startswith("rn") else "vit_b16"
        file = folder / f"{name}.yaml"
        return file if file.is_file() else folder / f"{family}.yaml"

    def check(self, runs: Iterable[Run]) -> None:
        """Find mistakes before anything starts.

        Raises:
            UserError: for a data set or trainer without a config, with the closest match.
        """
        for run in dict.fromkeys(runs):
            for name in filter(None, (run.dataset, run.source)):
                if name not in self.dataset_names:
                    folder = self.root / "configs/datasets"
                    hint = closest(name, self.dataset_names)
                    raise UserError(f"datasets: {name!r} has no config in {folder}{hint}")
            file = self.trainer_config(run.trainer, run.backbone)
            if not file.is_file():
                raise UserError(f"trainers: {run.trainer} has no config for {run.backbone}: {file}")

    def command(self, run: Run) -> list[str]:
        """The call of ``train.py``, without the interpreter."""
        command = [
            str(self.root / "train.py"),
            *("--trainer", run.trainer),
            *("--backbone", run.backbone),
            *("--seed", str(run.seed)),
            *("--dataset-config-file", str(self.root / f"configs/datasets/{run.dataset}.yaml")),
            *("--config-file", str(self.trainer_config(run.trainer, run.backbone))),
            *("--output-dir", str(self.directory(run))),
        ]
        if self.data:
            command += ["--root", self.data]
        if run.training is not None:
            command += ["--eval-only", "--model-dir", str(self.directory(run.training))]
        if not is_zero_shot(run.trainer):
            command += ["DATASET.NUM_SHOTS", str(run.shots)]
        if run.lam is not None:
            command += ["TRAINER.CMP.LAMBDA", number_text(run.lam)]
            command += ["TRAINER.CMP.FORM", str(run.form)]
        if run.split != "test":
            command += ["TEST.SPLIT", run.split]
        if run.classes != "all":
            command += ["DATASET.SUBSAMPLE_CLASSES", run.classes]
        return command + [part for option in run.options for part in option]

    def record(self, run: Run) -> dict[str, Any]:
        """What a sweep notes when it starts a run, to know its results again."""
        return {
            "command": self.command(run),
            "options": dict(run.options),
            "configs": self._config_digests(run),
        }

    def _config_digests(self, run: Run) -> dict[str, str]:
        files = (
            self.trainer_config(run.trainer, run.backbone),
            self.root / f"configs/datasets/{run.dataset}.yaml",
        )
        for file in files:
            if file not in self._digests:
                self._digests[file] = _digest(file)
        return {file.relative_to(self.root).as_posix(): self._digests[file] for file in files}

    @cached_property
    def _digests(self) -> dict[Path, str]:
        """By file, as hundreds of runs share a few."""
        return {}

    def shell_command(self, run: Run) -> str:
        """The same call for a person to copy."""
        return shlex.join([Path(sys.executable).name, *self.command(run)])

    def state(self, run: Run) -> State:
        """Look at what is on disk for this run."""
        path = self.directory(run) / RESULTS_FILE
        if not path.exists():
            return State("open")
        try:
            results = read_results(path)
        except (UserError, OSError) as error:
            return State("refused", str(error))
        wanted: dict[str, Any] = {
            "trainer": run.trainer,
            "dataset": self.dataset_names.get(run.dataset, run.dataset),
            "backbone": run.backbone,
            "seed": run.seed,
            "lambda": run.lam,
            "form": run.form,
            "split": run.split,
            "subsample": run.classes,
        }
        if not is_zero_shot(run.trainer):
            wanted["shots"] = run.shots
        found = {key: results.get(key) for key in wanted}
        noted = self._noted(run)
        wanted["options"], found["options"] = dict(run.options), noted.get("options", {})
        differences = [
            f"{key} is {found[key]!r}, not {value!r}"
            for key, value in wanted.items()
            if found[key] != value
        ]
        if "configs" in noted:  # not in a run that was started by hand
            now = self._config_digests(run).items()
            changed = [name for name, digest in now if digest != noted["configs"].get(name)]
            differences += [f"{name} has changed since" for name in changed]
        if differences:
            return State(
                "foreign",
                f"{path} is of another run: {'; '.join(differences)}; remove the run's "
                "directory, or choose another output directory or a tag",
            )
        return State("done", results=results)

    def _noted(self, run: Run) -> dict[str, Any]:
        """The record of the sweep that started the run; empty if it was started by hand."""
        try:
            return dict(json.loads((self.directory(run) / RECORD).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return {}


def _digest(file: Path) -> str:
    """Of the settings in a config file, whatever its comments and layout."""
    settings = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
    for node, key in FREE:
        (settings.get(node) or {}).pop(key, None)
    settings = {node: content for node, content in settings.items() if content != {}}
    text = json.dumps(settings, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
