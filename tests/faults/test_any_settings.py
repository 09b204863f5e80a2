"""Any combination of settings trains a step, or is refused in one line as a mistake."""

from __future__ import annotations

import math
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from coop_cmp import cli
from coop_cmp.config import METHODS, SETTINGS, Setting
from coop_cmp.errors import MISTAKES
from tests.conftest import FOLDER
from tests.faults.changes import ALIKE

# Places, names of other things, and what only takes time.
LEFT_OUT = {
    "OUTPUT_DIR",
    "RESUME",
    "DEVICE",
    "DATASET.ROOT",
    "DATASET.NAME",
    "DATALOADER.NUM_WORKERS",
    "MODEL.BACKBONE.NAME",
    "MODEL.BACKBONE.WEIGHTS",
    "MODEL.INIT_WEIGHTS",
    "MODEL.FEATURE_STORE",
    "OPTIM.MAX_EPOCH",
    "OPTIM.SHOT_EPOCHS",
    "OPTIM.DATASET_EPOCHS",
    "TEST.EVALUATOR",
    "TRAINER.NAME",
}
SMALL = {
    "INPUT.SIZE": "(32, 32)",
    "TRAINER.COOP.N_CTX": "4",
    "TRAINER.MAPLE.PROMPT_DEPTH": "2",
    "TRAINER.PRODA.N_PROMPT": "4",
    "TRAINER.PRODA.PROMPT_BS": "2",
}
NONSENSE = st.sampled_from(["", "nonsense", "[", "{}", "nan", "-1", "1e400", "[[]]", "None", "é\n"])


def values(setting: Setting) -> st.SearchStrategy[Any]:
    """Values that a setting may take, at the ends of its range and inside."""
    if setting.kind is bool:
        return st.booleans()
    if setting.kind is int:
        return st.integers(-2, 6)
    if setting.kind is float:
        return st.sampled_from([0, 1, -1, 0.5, 1e-8, 3.7, 1e12, math.inf])
    if setting.row:
        return st.tuples(*map(values, setting.row)).map(list)
    if setting.each is not None:
        size = setting.length or 2
        return st.lists(values(setting.each), min_size=setting.length or 0, max_size=size)
    if setting.choices:
        return st.sampled_from(setting.choices)
    if setting.is_template:
        return st.sampled_from(["a {}", "{}", "{0}", "a {} {{x}}"])
    return st.sampled_from(["", "a photo of a", "x" * 400, "0"])


def takes(setting: Setting, value: Any) -> bool:
    """Whether a setting accepts the value."""
    try:
        setting.read(str(value))
    except ValueError:
        return False
    return True


@st.composite
def command_lines(draw: st.DrawFn) -> list[str]:
    """A trainer and some settings, mostly ones that it takes."""
    trained = sorted(name for name, method in METHODS.items() if method.trains)
    trainer = draw(st.sampled_from([*trained, "ZeroshotCLIP", "CoOp_CMP", "ProDA_CMP"]))
    keys = draw(
        st.lists(st.sampled_from(sorted(set(SETTINGS) - LEFT_OUT)), max_size=5, unique=True)
    )
    options = []
    for key in keys:
        taken = values(SETTINGS[key]).filter(lambda value, key=key: takes(SETTINGS[key], value))
        value = draw(NONSENSE if draw(st.integers(0, 9)) == 0 else taken)
        options += [key, str(value)]
    small = [word for pair in SMALL.items() if pair[0] not in keys for word in pair]
    return ["--trainer", trainer, *small, *options]


def call(words: list[str], data: Path, out: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    shutil.rmtree(out, ignore_errors=True)
    fixed = [*FOLDER, "--backbone", "TinyCLIP", "--seed", "1", "--root", str(data)]
    short = ["OPTIM.MAX_EPOCH", "1", "DATALOADER.NUM_WORKERS", "0"]
    stdout = sys.stdout
    try:
        code = cli.main(["train", *fixed, "--output-dir", str(out), *words, *short])
    finally:
        sys.stdout = stdout  # the logger replaces it
    return code, capsys.readouterr().err.strip()


def test_any_settings_train_or_are_refused(kills, tiny_weights, pictures, tmp_path, capsys):
    @settings(ALIKE, max_examples=10 * kills)
    @given(command_lines())
    @example(["--trainer", "BPEFT", "TRAINER.BPEFT.KL_WEIGHTS", "[0.1]"])
    def check(words: list[str]) -> None:
        code, error = call(words, pictures, tmp_path / "out", capsys)
        assert code in (0, *MISTAKES), (words, error)
        if code:
            assert error.startswith("error: "), (words, error)
            assert "\n" not in error, (words, error)

    check()
