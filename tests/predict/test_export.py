"""Exported classifiers: the page's code, with open_clip alone, gives the model's probabilities."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

import coop_cmp
from coop_cmp.errors import UserError
from coop_cmp.predict.export import export
from tests.commands import command
from tests.conftest import ROOT
from tests.predict.test_predict import SMALL, calibrated

main = command("export")


def snippets() -> list[str]:
    """The Python blocks of the page's part on exports: the whole, and MaPLe's line."""
    page = (ROOT / "docs/predict.md").read_text().partition("## Export")[2]
    return re.findall(r"```python\n(.*?)```", page, re.DOTALL)


def by_snippet(image: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the page's code leaves behind for an exported file."""
    whole, maple = snippets()
    monkeypatch.chdir(folder)
    if Path("digits.pt2").exists():
        whole = whole.replace('model = open_clip.create_model(**about["model"]).eval()\n', "")
        line = "features = model.encode_image(image, normalize=True)\n"
        assert line in whole
        whole = whole.replace(line, maple)
    left: dict[str, Any] = {}
    exec(whole.replace('"new.png"', repr(str(image))), left)
    return left


@pytest.mark.parametrize("trainer", ["ZeroshotCLIP", "CoOp_CMP", "ProDA", "CLIPFT", "MaPLe"])
def test_the_snippet_gives_the_probabilities_of_the_run(
    trainer, run, pictures, tmp_path, monkeypatch
):
    run("run", *SMALL.get(trainer, ()), trainer=trainer)
    export(tmp_path / "run", tmp_path / "digits.safetensors")
    image = pictures / "test/tree/3.png"
    left = by_snippet(image, tmp_path, monkeypatch)
    expected = coop_cmp.load(tmp_path / "run", precision="fp32").predict(image)
    assert left["about"]["classnames"] == expected.classnames
    np.testing.assert_allclose(left["probabilities"], expected.probabilities[0], atol=1e-5)
    np.testing.assert_allclose(left["logits"], expected.logits, atol=1e-5)


def test_logits_agree_at_the_scale_of_clip(run, tiny_weights, pictures, tmp_path, monkeypatch):
    hundred = tmp_path / "hundred.safetensors"
    save_file(load_file(tiny_weights) | {"logit_scale": torch.tensor(100.0).log()}, hundred)
    run("run", "MODEL.BACKBONE.WEIGHTS", str(hundred))
    export(tmp_path / "run", tmp_path / "digits.safetensors")
    left = by_snippet(pictures / "test/tree/3.png", tmp_path, monkeypatch)
    answers = coop_cmp.load(tmp_path / "run").predict(pictures / "test")  # in batches
    assert float(left["scale"]) == pytest.approx(100)
    for path, expected in zip(answers.images, answers.logits, strict=True):
        image = left["preprocess"](Image.open(path))[None]
        with torch.no_grad():
            features = left["model"].encode_image(image, normalize=True)
        logits = left["scale"] * features @ left["text"].T
        np.testing.assert_allclose(logits[0], expected, atol=1e-5)


@pytest.mark.parametrize("trainer", ["CoCoOp", "BPEFT", "TPT"])
def test_a_method_without_a_fixed_classifier_is_refused(trainer, run, tmp_path):
    run("run", *SMALL.get(trainer, ()), trainer=trainer)
    with pytest.raises(UserError, match=f"{trainer} has no fixed classifier"):
        export(tmp_path / "run", tmp_path / "digits.safetensors")
    assert not list(tmp_path.glob("digits*"))


def test_temperature_and_vector_scaling_go_with_it(run, pictures, tmp_path, monkeypatch, capsys):
    run("run")
    run("val", "--eval-only", f"--model-dir={tmp_path / 'run'}", "TEST.SPLIT", "val")
    file, image = str(tmp_path / "digits.safetensors"), pictures / "test/tree/3.png"
    for method, labels in (("temperature", "fixed:2"), ("vector", "val"), ("histogram", "val")):
        folder = calibrated(tmp_path / "run", tmp_path / method, method, labels)
        arguments = [str(tmp_path / "run"), file, "--calibrator", str(folder)]
        if method == "histogram":
            with pytest.raises(UserError, match="a temperature or vector scaling, no other"):
                main(arguments)
            continue
        assert main(arguments) == 0
        assert f"wrote {file}" in capsys.readouterr().out
        left = by_snippet(image, tmp_path, monkeypatch)
        assert left["about"]["temperature"] == (2 if method == "temperature" else None)
        expected = coop_cmp.load(tmp_path / "run", calibrator=folder).predict(image)
        np.testing.assert_allclose(left["probabilities"], expected.probabilities[0], atol=1e-5)


def test_what_open_clip_cannot_do_is_refused(run, tmp_path):
    run("run", "INPUT.INTERPOLATION", "nearest")
    with pytest.raises(UserError, match="preprocessing of this run"):
        export(tmp_path / "run", tmp_path / "digits.safetensors")
    with pytest.raises(UserError, match=r"must be called \*\.safetensors"):
        export(tmp_path / "run", tmp_path / "digits.pt")
