"""Any byte or value of a run's files changed: the same numbers, or the file is named."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from coop_cmp.metrics.panel import measure
from coop_cmp.report.summary import summary
from coop_cmp.runs import outputs, records
from coop_cmp.runs.frame import find_runs, load
from tests.faults.changes import other_bytes, other_trees, tries
from tests.made_runs import write_run

FILES = ("results.json", "outcomes.npz", "predictions.npz")
RUNS = {f"{name}{seed}": (name, seed) for name in ("CoOp", "CoOp_CMP") for seed in (1, 2)}


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("output")
    random, labels = np.random.default_rng(0), np.arange(30) % 3
    for place, (name, seed) in RUNS.items():
        chosen = {"TRAINER.NAME": name, "SEED": seed}
        logits = random.normal(size=(30, 3)) + 2 * np.eye(3)[labels]
        write_run(folder / place, chosen, logits, labels, "xyz", notes=["a note"])
    return folder


def observed(output: Path) -> dict[str, Any]:
    """What frame, table and predictions say, and what is said to be wrong."""
    frame = load(output)
    runs, problems = find_runs(output, predictions=True)
    return {
        "frame": frame.to_csv(),
        "table": summary(frame) if len(frame) else "",
        "numbers": {run.folder.name: measure(run.samples, ["brier", "ece"]) for run in runs},
        "left out": frame.attrs["problems"],
        "problems": problems,
    }


@st.composite
def other_arrays(draw: st.DrawFn, content: bytes) -> bytes:
    """An npz file with a number changed, or an array removed."""
    arrays = dict(np.load(io.BytesIO(content)))
    name = draw(st.sampled_from(sorted(arrays)))
    if draw(st.booleans()) and arrays[name].dtype.kind in "fiu":
        place = draw(st.integers(0, arrays[name].size - 1))
        arrays[name] = arrays[name].copy()
        arrays[name].flat[place] = draw(st.integers(0, 3))
    else:
        del arrays[name]
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


@st.composite
def changes(draw: st.DrawFn, output: Path) -> tuple[Path, bytes]:
    """A file of a run, and what it is to hold."""
    file = output / draw(st.sampled_from(sorted(RUNS))) / draw(st.sampled_from(FILES))
    content = file.read_bytes()
    if draw(st.integers(0, 5)) == 0:
        return file, (output / draw(st.sampled_from(sorted(RUNS))) / file.name).read_bytes()
    if draw(st.booleans()):
        return file, draw(other_bytes(content))
    if file.suffix == ".npz":
        return file, draw(other_arrays(content))
    tree = draw(other_trees(json.loads(content)))
    return file, json.dumps(tree).encode(errors="backslashreplace")


def check_changes(output: Path, number: int) -> None:
    whole, without = observed(output), {}
    for run in RUNS:
        (output / run).rename(output.parent / "away")
        without[run] = observed(output)
        (output.parent / "away").rename(output / run)

    def check(change: tuple[Path, bytes]) -> None:
        file, content = change
        before, run = file.read_bytes(), file.parent.name
        file.write_bytes(content)
        try:
            seen = observed(output)
        finally:
            file.write_bytes(before)
        for problem in seen["left out"] + seen["problems"]:
            assert problem.startswith(f"{file.parent}/")
            assert file.name in problem  # of two that do not fit together both are named
        rest = without[run] if seen["left out"] else whole
        assert (seen["frame"], seen["table"]) == (rest["frame"], rest["table"])
        expected = without[run] if seen["problems"] else whole
        assert seen["numbers"] == expected["numbers"]

    tries(number, changes(output), check)


def test_a_changed_file_changes_no_number(output: Path, kills: int) -> None:
    check_changes(output, 25 * kills)


@pytest.mark.parametrize("check", ["content_digest", "_checksum"])
def test_the_changes_find_a_check_that_is_missing(output: Path, monkeypatch, check: str) -> None:
    """Without the digest of the files, or that of the record, some change changes a number."""
    said: dict[str, Any] = {
        "content_digest": lambda content: Anything(),
        "_checksum": lambda record: record.get("checksum"),
    }
    monkeypatch.setattr(records if check == "_checksum" else outputs, check, said[check])
    with pytest.raises(AssertionError):
        check_changes(output, 400)


class Anything(str):
    """A digest that equals every other."""

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = str.__hash__
