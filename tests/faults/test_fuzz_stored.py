"""Any byte or value of a run's files changed: the same numbers, or the file is named."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coop_cmp.metrics.panel import measure
from coop_cmp.report.summary import summary
from coop_cmp.runs.frame import find_runs, load
from tests.made_runs import write_run

FILES = ("results.json", "outcomes.npz", "predictions.npz")
RUNS = {f"{name}{seed}": (name, seed) for name in ("CoOp", "CoOp_CMP") for seed in (1, 2)}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=3,
)
CHANGES = st.one_of(
    st.tuples(st.just("byte"), st.floats(0, 1), st.integers(1, 255)),
    st.tuples(st.just("cut"), st.floats(0, 1), st.none()),
    st.tuples(st.just("insert"), st.floats(0, 1), st.binary(min_size=1, max_size=9)),
    st.tuples(st.just("value"), st.floats(0, 1), JSON),
    st.tuples(st.just("remove"), st.floats(0, 1), st.none()),
    st.tuples(st.just("swap"), st.none(), st.sampled_from(sorted(RUNS))),
)


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


def changed(content: bytes, kind: str, place: float, value: Any) -> bytes:
    """A file with one change."""
    position = int(place * (len(content) - 1))
    if kind == "byte":
        return content[:position] + bytes([content[position] ^ value]) + content[position + 1 :]
    if kind == "cut":
        return content[:position]
    if kind == "insert":
        return content[:position] + value + content[position:]
    if content[:1] == b"{":
        record = json.loads(content)
        places = list(entries(record))
        holder, key = places[int(place * (len(places) - 1))]
        if kind == "remove":
            del holder[key]
        else:
            holder[key] = value
        return json.dumps(record).encode(errors="backslashreplace")
    arrays = dict(np.load(io.BytesIO(content)))
    name = sorted(arrays)[int(place * (len(arrays) - 1))]
    if kind == "remove":
        del arrays[name]
    else:
        number = value if isinstance(value, int | float) else 0
        arrays[name] = np.full_like(arrays[name], 0).astype(float) + min(max(number, -9e9), 9e9)
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def entries(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every place in a tree, as what holds it and its key."""
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], dict | list):
            yield from entries(value[key])


def test_a_changed_file_changes_no_number(output: Path, request: pytest.FixtureRequest) -> None:
    whole, without = observed(output), {}
    for run in RUNS:
        (output / run).rename(output.parent / "away")
        without[run] = observed(output)
        (output.parent / "away").rename(output / run)
    tried = 25 * request.config.getoption("kills", 3)

    @settings(max_examples=tried, deadline=None, suppress_health_check=list(HealthCheck))
    @given(run=st.sampled_from(sorted(RUNS)), name=st.sampled_from(FILES), change=CHANGES)
    def try_one(run: str, name: str, change: tuple[str, Any, Any]) -> None:
        file, (kind, place, value) = output / run / name, change
        content = file.read_bytes()
        other = (output / value / name).read_bytes() if kind == "swap" else b""
        file.write_bytes(other or changed(content, kind, place, value))
        try:
            seen = observed(output)
        finally:
            file.write_bytes(content)
        for problem in seen["left out"] + seen["problems"]:
            assert problem.startswith(f"{file.parent}/")
            assert name in problem  # of two that do not fit together both are named
        rest = without[run] if seen["left out"] else whole
        assert (seen["frame"], seen["table"]) == (rest["frame"], rest["table"])
        expected = without[run] if seen["problems"] else whole
        assert seen["numbers"] == expected["numbers"]

    try_one()
