"""coop_cmp/sweep/devices.py: each run has the device it was given."""

from __future__ import annotations

import re
from contextlib import nullcontext

import pytest

import coop_cmp.datasets  # noqa: F401 - registers them
from coop_cmp.errors import UserError
from coop_cmp.runs.run import Run
from coop_cmp.sweep.devices import environment_for, visible_gpus
from tests.sweep.fake import arguments, calls, main, project_of


def test_devices_become_visible_devices(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert environment_for("cuda:1", 0)["CUDA_VISIBLE_DEVICES"] == "1"
    assert environment_for("cuda", 0)["CUDA_VISIBLE_DEVICES"] == "0"
    assert environment_for("cpu", 2)["CUDA_VISIBLE_DEVICES"] == ""
    assert environment_for("cpu", 2)["OMP_NUM_THREADS"] == "2"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6")
    assert environment_for("cuda:1", 0)["CUDA_VISIBLE_DEVICES"] == "6"


@pytest.fixture
def three_gpus(tool, monkeypatch):
    """A machine with three GPUs, as far as nvidia-smi says."""
    tool("nvidia-smi", "for i in 0 1 2; do echo GPU $i: A100; echo '  MIG 1g'; done")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.mark.parametrize(
    ("variable", "names"),
    [(None, ["0", "1", "2"]), ("2,0", ["2", "0"]), ("", []), ("-1", []), ("1,-1,2", ["1"])],
)
def test_hidden_gpus_stay_hidden(three_gpus, monkeypatch, variable, names):
    if variable is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    assert visible_gpus() == names


def test_a_gpu_beyond_the_visible_ones_is_refused_before_anything_starts(
    root, three_gpus, monkeypatch
):
    with pytest.raises(UserError, match=r"cuda:3 is not among the 3 visible GPUs$"):
        main(arguments(root, "--devices", "cuda:0", "cuda:3"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(UserError, match="cuda:0 is not among the 0 visible GPUs"):
        main(arguments(root, "--devices", "cuda:0"))
    assert calls(root) == []


def test_runs_are_told_their_device_so_that_none_falls_back_to_another(root, three_gpus):
    assert main(arguments(root, "--seeds", "1", "2", "--devices", "cuda:2", "cpu")) == 0
    logs = (root / "output").glob("digits/CoOp/GlyphCLIP_8shots/seed*/sweep.log")
    seen = sorted(re.findall(r"on (\w+) of ('.*')", "".join(log.read_text() for log in logs)))
    assert seen == [("cpu", "''"), ("cuda", "'2'")]
    run = Run("digits", "CoOp", "GlyphCLIP", 8)
    assert "--device" not in project_of(root).command(run), "nor in what people copy"


def test_a_device_that_does_not_exist_is_refused(root):
    with pytest.raises(UserError, match="--devices: expected cpu, mps, cuda or cuda:N, got 'gpu'"):
        main(arguments(root, "--devices", "gpu"))


@pytest.mark.parametrize(
    ("code", "expected"),
    [(0, ""), (6, ""), (18, "driver/library version mismatch.*--devices cpu")],
)
def test_a_driver_that_does_not_answer_is_no_silent_sweep_on_the_cpu(
    tool, monkeypatch, code, expected
):
    tool("nvidia-smi", f"echo 'Failed: driver/library version mismatch'\nexit {code}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with pytest.raises(UserError, match=expected) if expected else nullcontext():
        assert visible_gpus() == []
