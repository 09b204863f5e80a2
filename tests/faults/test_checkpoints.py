"""What is read back from checkpoints: of the right run, and whole, or refused in one line."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from dassl.utils import load_checkpoint

from coop_cmp.runs import read_results
from tests.faults.file_cases import compressed

KEPT = ("TRAIN.CHECKPOINT_FREQ", "1", "OPTIM.MAX_EPOCH", "2")
NAME = "prompt_learner/model.pth.tar-2"


def change(path: Path, how: Callable[[dict[str, Any]], Any]) -> None:
    torch.save(how(torch.load(path, weights_only=True)), path)


def without_epoch(checkpoint: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in checkpoint.items() if key != "epoch"}


def unfinished(folder: Path) -> None:
    """As a run that was killed after its first epoch."""
    for path in (folder / NAME, folder / "results.json"):
        path.unlink()
    (folder / "prompt_learner/checkpoint").write_text("model.pth.tar-1\n")


@pytest.fixture
def two_seeds(run, tmp_path) -> tuple[Path, Path]:
    run("one", *KEPT)
    run("two", *KEPT, "SEED", "2")
    return tmp_path / "one", tmp_path / "two"


def test_a_checkpoint_of_another_seed_is_neither_continued_nor_tested(run, two_seeds):
    one, two = two_seeds
    unfinished(one)
    shutil.copy(two / "prompt_learner/model.pth.tar-1", one / "prompt_learner")
    error = run("one", *KEPT, code=2)
    assert re.search(r"model\.pth\.tar-1.* is a checkpoint of another run than .*one; del", error)
    shutil.copy(two / NAME, one / NAME)
    error = run("test", "--eval-only", f"--model-dir={one}", "--load-epoch=2", code=2)
    assert "is a checkpoint of another run" in error


@pytest.mark.parametrize("epochs_left", [0, 1])
def test_a_run_that_resumes_measures_all_of_its_training(run, tmp_path, epochs_left):
    run("whole", *KEPT)
    run("killed", *KEPT)
    if epochs_left:
        unfinished(tmp_path / "killed")
    else:
        (tmp_path / "killed/results.json").unlink()
    run("killed", *KEPT)
    records = (read_results(tmp_path / name / "results.json") for name in ("whole", "killed"))
    whole, killed = (record["fit"] for record in records)
    assert set(whole) == {"wrong", "accuracy", "gradient", "curves"}
    assert killed == whole


def test_a_run_that_goes_on_elsewhere_with_more_epochs_keeps_its_best_model(run, tmp_path):
    best = ("TEST.FINAL_MODEL", "best_val")
    whole, _ = run("one", *KEPT, *best)
    more = ("OPTIM.MAX_EPOCH", "3", "OPTIM.LR", "1e-9")  # nothing gets better any more
    longer, said = run("longer", f"--resume={tmp_path / 'one'}", *KEPT, *best, *more)
    assert "Previous epoch: 2" in said
    assert (longer == whole).all()
    record = json.loads((tmp_path / "longer/results.json").read_text())
    assert "continues a run in which OPTIM.LR is 0.003, not 1e-09" in record["notes"][-1]


def test_a_run_does_not_go_on_from_one_of_another_seed(run, two_seeds, tmp_path):
    error = run("other", f"--resume={two_seeds[1]}", *KEPT, code=2)
    assert "that run has other settings (SEED is 2, not 1)" in error


WRONG = {
    "a list": lambda checkpoint: [checkpoint],
    "no weights": lambda checkpoint: {"epoch": 2},
    "weights in a list": lambda checkpoint: checkpoint | {"state_dict": [1, 2]},
    "weights that are text": lambda checkpoint: checkpoint | {"state_dict": {"ctx": "a"}},
    "other keys": lambda checkpoint: checkpoint | {"state_dict": {"other": torch.ones(3)}},
}


def test_a_wrong_checkpoint_is_refused_in_one_line(run, tmp_path):
    run("run", *KEPT)
    whole = (tmp_path / "run" / NAME).read_bytes()
    for how in WRONG.values():
        (tmp_path / "run" / NAME).write_bytes(whole)
        change(tmp_path / "run" / NAME, how)
        error = run("test", "--eval-only", f"--model-dir={tmp_path / 'run'}", code=2)
        assert re.search(r"model\.pth\.tar-2\" (is no checkpoint|was not learned by this)", error)
        assert error.count("\n") == 1


def test_a_compressed_checkpoint_is_not_unpacked(tmp_path):
    compressed(tmp_path / "model.pth.tar-2")
    with pytest.raises(OSError, match="not a checkpoint of plain data") as caught:
        load_checkpoint(str(tmp_path / "model.pth.tar-2"))
    assert "is compressed" in str(caught.value.__cause__)


def test_a_checkpoint_without_an_epoch_can_be_tested(run, tmp_path):
    logits, _ = run("run", *KEPT)
    change(tmp_path / "run" / NAME, without_epoch)
    again, said = run("test", "--eval-only", f"--model-dir={tmp_path / 'run'}")
    assert "(epoch unknown)" in said
    assert (again == logits).all()


def test_a_run_is_not_continued_from_a_checkpoint_of_another_model(run, tmp_path):
    run("run", *KEPT)
    (tmp_path / "run/results.json").unlink()
    whole = (tmp_path / "run" / NAME).read_bytes()
    for wrong in ("other keys", "weights that are text"):
        (tmp_path / "run" / NAME).write_bytes(whole)
        change(tmp_path / "run" / NAME, WRONG[wrong])
        error = run("run", *KEPT, code=2)
        assert re.search(r"does not fit this model|is no checkpoint", error)
        assert error.count("\n") == 1


@pytest.mark.parametrize("how", [WRONG["a list"], without_epoch])
def test_a_run_goes_on_from_the_checkpoint_before_one_that_is_none(run, tmp_path, how):
    whole, _ = run("run", *KEPT)
    change(tmp_path / "run" / NAME, how)
    (tmp_path / "run/results.json").unlink()
    again, said = run("run", *KEPT)
    assert "Previous epoch: 1" in said
    assert (again == whole).all()
