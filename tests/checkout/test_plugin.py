"""``python -m coop_cmp`` in a small checkout that knows nothing of the penalty."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import dassl
import numpy as np
import pytest
from PIL import Image

import coop_cmp
from coop_cmp.__main__ import main
from coop_cmp.checkout.plugin import _keeping_the_terms, hide_twins
from coop_cmp.checkout.runner import run_script
from coop_cmp.errors import UserError
from tests.checkouts import run

TRAIN = """
import argparse
import torch
from dassl.config import get_cfg_default
from dassl.engine import build_trainer
from dassl.utils import set_random_seed
import trainers.tiny


def main(args):
    cfg = get_cfg_default()
    cfg.merge_from_list(args.opts)
    cfg.TRAINER.NAME, cfg.OUTPUT_DIR, cfg.SEED = args.trainer, args.output_dir, 1
    cfg.DATASET.NAME, cfg.INPUT.SIZE, cfg.INPUT.TRANSFORMS = "TinySet", (8, 8), ("normalize",)
    cfg.DATALOADER.NUM_WORKERS, cfg.OPTIM.LR_SCHEDULER = 0, "cosine"
    cfg.OPTIM.MAX_EPOCH, cfg.OPTIM.WARMUP_EPOCH, cfg.OPTIM.LR = 2, 1, 0.1
    cfg.freeze()
    set_random_seed(1)
    trainer = build_trainer(cfg)
    print("the checkout sees", args.trainer, cfg.TRAINER.NAME, cfg.is_frozen())
    if args.eval_only:
        trainer.load_model(args.model_dir, epoch=2)
        trainer.test()
    else:
        trainer.train()


if __name__ == "__main__":
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser()
    for name in ("--trainer", "--output-dir", "--model-dir"):
        parser.add_argument(name, default="")
    parser.add_argument("--eval-only", action="store_true")
    parser.add_argument("opts", nargs=argparse.REMAINDER)
    main(parser.parse_args())
"""
TRAINER = """
from pathlib import Path
from dassl.data.datasets import DATASET_REGISTRY, DatasetBase, Datum
from dassl.engine import TRAINER_REGISTRY, TrainerX
from dassl.optim import build_lr_scheduler, build_optimizer
from dassl.utils import load_checkpoint
from torch import nn
from torch.nn import functional as F


@DATASET_REGISTRY.register()
class TinySet(DatasetBase):
    def __init__(self, cfg):
        files = sorted(Path("images").iterdir())
        items = [Datum(str(f), int(f.name[0]), 0, "c" + f.name[0]) for f in files]
        super().__init__(train_x=items, val=items, test=items)


@TRAINER_REGISTRY.register()
class Tiny(TrainerX):
    def build_model(self):
        self.model = nn.Sequential(nn.Flatten(), nn.Linear(192, self.num_classes))
        self.optim = build_optimizer(self.model, self.cfg.OPTIM)
        self.sched = build_lr_scheduler(self.optim, self.cfg.OPTIM)
        self.register_model("tiny", self.model, self.optim, self.sched)

    def forward_backward(self, batch):
        loss = F.cross_entropy(self.model(batch["img"]), batch["label"])
        self.model_backward_and_update(loss)
        if self.batch_idx + 1 == self.num_batches:
            self.update_lr()
        return {"loss": loss.item()}

    def test(self, split=None):
        if self.cfg.TRAINER.NAME != "Tiny":
            raise ValueError(f"Unknown model: {self.cfg.TRAINER.NAME}")
        return super().test(split)

    def load_model(self, directory, epoch=None):
        checkpoint = load_checkpoint(f"{directory}/tiny/model.pth.tar-{epoch}")
        self.model.load_state_dict(checkpoint["state_dict"])


@TRAINER_REGISTRY.register()
class Untrained(TrainerX):
    pass
"""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training script, one trainer and a dozen images of noise."""
    root = tmp_path_factory.mktemp("checkout")
    (root / "trainers").mkdir()
    (root / "images").mkdir()
    (root / "train.py").write_text(TRAIN)
    (root / "trainers" / "__init__.py").touch()
    (root / "trainers" / "tiny.py").write_text(TRAINER)
    rng = np.random.default_rng(0)
    for i in range(12):
        pixels = rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(root / "images" / f"{i % 3}-{i}.png")
    return root


@pytest.fixture(scope="module")
def trained(checkout: Path) -> subprocess.CompletedProcess[str]:
    """The command as a user calls it, where neither package needs to be installed."""
    paths = [Path(module.__file__).parents[1] for module in (coop_cmp, dassl)]
    paths = os.pathsep.join([*map(str, paths), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": paths}
    options = ("--trainer", "Tiny_CMP", "--output-dir", "out", "TRAINER.CMP.LAMBDA", "0.5")
    command = [sys.executable, "-m", "coop_cmp", *options]
    return subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True)


def test_a_checkout_trains_a_twin_it_has_never_heard_of(checkout, trained):
    assert trained.returncode == 0, trained.stderr
    assert "Tiny_CMP is Tiny with the confidence misalignment penalty" in trained.stdout
    assert re.search(r" loss_cmp \d+\.\d+ .* cmp \d+\.\d+ ", trained.stdout)
    assert "the checkout sees Tiny Tiny True" in trained.stdout
    assert re.search(r"^coop_cmp: ece .*, ace .*, mce ", trained.stdout, re.MULTILINE)
    record = json.loads((checkout / "out" / "results.json").read_text())
    settings = record["settings"]
    assert (settings["TRAINER.NAME"], settings["TRAINER.CMP.LAMBDA"]) == ("Tiny_CMP", 0.5)
    assert settings["TEST.SPLIT"] == "test"


def test_the_twins_checkpoint_is_evaluated_alike(checkout, trained):
    options = ("--trainer", "Tiny_CMP", "--eval-only", "--model-dir", "out", "OUTPUT_DIR", "again")
    again = run(checkout, "--fast", *options)
    assert again.returncode == 0, again.stderr
    accuracy = next(line for line in trained.stdout.splitlines() if "* accuracy" in line)
    assert accuracy in again.stdout
    assert "no results.json" not in again.stdout
    assert "coop_cmp --fast: nothing to do" in again.stdout


def test_list_shows_the_trainers_and_twins_of_another_script(checkout):
    (checkout / "tools").mkdir()
    (checkout / "train.py").rename(checkout / "tools" / "fit.py")
    try:
        shown = run(checkout, "--script", "tools/fit.py", "--list")
    finally:
        (checkout / "tools" / "fit.py").rename(checkout / "train.py")
    assert shown.stdout.split()[-2:] == ["Tiny", "Tiny_CMP"]
    assert "Untrained" not in shown.stdout


@pytest.mark.parametrize("arguments", [["--list"], ["--script", "fit.py"], ["--trainer", "CoOp"]])
def test_outside_a_checkout_the_message_is_one_line(tmp_path, arguments):
    done = run(tmp_path, *arguments)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "run this inside a CoOp-family checkout" in done.stderr


@pytest.mark.parametrize(("name", "meant"), [("Tin_CMP", "Tiny_CMP"), ("Tinny", "Tiny")])
def test_an_unknown_trainer_is_refused_with_the_closest_match(checkout, name, meant):
    done = run(checkout, "--trainer", name)
    assert done.returncode == 2
    assert f'there is no trainer "{name}"' in done.stderr
    assert f'did you mean "{meant}"?' in done.stderr


def test_a_checkout_trains_with_any_term_and_takes_an_integer_for_a_float(checkout):
    done = run(
        checkout, "--trainer", "Tiny_MbLS", "--output-dir", "mbls", "TRAINER.MBLS.LAMBDA", "2"
    )
    assert done.returncode == 0, done.stderr
    assert "Tiny_MbLS is Tiny with margin-based label smoothing" in done.stdout
    assert "loss_mbls" in done.stdout
    record = json.loads((checkout / "mbls/results.json").read_text())
    assert record["settings"]["TRAINER.NAME"] == "Tiny_MbLS"


def test_a_config_of_the_checkouts_own_gets_the_terms_before_its_options_are_merged(checkout):
    lines = [
        "from dassl.config import get_cfg_default as complete",
        "def get_cfg_default():",
        "    cfg = complete()",
        "    for key in set(cfg.TRAINER) - {'NAME'}:",
        "        del cfg.TRAINER[key]",
        "    del cfg.DATALOADER['TRAIN_U'], cfg.TEST['N_BINS'], cfg.TEST['BIN_CLOSED']",
        "    cfg.TEST.EVALUATOR = 'Classification'",
        "    return cfg",
    ]
    script = TRAIN.replace("from dassl.config import get_cfg_default\n", "\n".join([*lines, ""]))
    (checkout / "own.py").write_text(script)
    options = ("--trainer", "Tiny_CMP", "--output-dir", "own", "TRAINER.CMP.LAMBDA", "0.25")
    done = run(checkout, "--script", "own.py", *options)
    assert done.returncode == 0, done.stderr
    assert "loss_cmp" in done.stdout
    record = json.loads((checkout / "own/results.json").read_text())
    assert record["settings"]["TRAINER.CMP.LAMBDA"] == 0.25


def test_a_training_without_a_test_says_that_there_are_no_results(checkout):
    options = ("--trainer", "Tiny_CMP", "--output-dir", "untested", "TEST.NO_TEST", "True")
    done = run(checkout, *options)
    assert done.returncode == 0, done.stderr
    assert "no results.json is written: this training ends without a test" in done.stdout
    assert not (checkout / "untested/results.json").exists()


def test_a_term_that_needs_more_than_logits_says_what_the_checkout_lacks(checkout):
    done = run(checkout, "--trainer", "Tiny_ZSNorm")
    assert done.returncode == 2
    assert "has no method zero_shot_logits; use a term that needs only logits: CMP" in done.stderr


def test_cleaning_the_config_keeps_the_baselines_settings_and_the_penaltys():
    from dassl.config import clean_cfg, get_cfg_default
    from yacs.config import CfgNode

    cfg = get_cfg_default()
    coop_cmp.add_term_config(cfg, "CMP")
    cfg.TRAINER.TINY, cfg.TRAINER.OTHER = CfgNode({"A": 1}), CfgNode({"B": 2})
    _keeping_the_terms(clean_cfg)(cfg, "Tiny_CMP")
    assert sorted(cfg.TRAINER) == ["CMP", "NAME", "TINY"]


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (["--trainer", "CoOp_CMP", "OPTIM.LR", "1"], ["--trainer", "CoOp", "OPTIM.LR", "1"]),
        (["--trainer=CoOp_MbLS"], ["--trainer=CoOp"]),
        (["TRAINER.NAME", "CoOp_CMP"], ["TRAINER.NAME", "CoOp"]),
        (["--trainer", "CLIP_Adapter", "--root", "x_CMP"],) * 2,
    ],
)  # fmt: skip
def test_the_script_is_told_the_baselines_name(given, shown):
    assert hide_twins(given) == shown


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("import nowhere", "train.py: ModuleNotFoundError: No module named 'nowhere' ("),
        ("import nowhere", "(perhaps: pip install nowhere)"),
        ("import clip", "(perhaps: pip install git+https://github.com/openai/CLIP.git)"),
        ("import parts.lost", "the checkout lacks parts/lost.py, which no package brings"),
        ("from dassl.nowhere import x", "is another version than it expects"),
        ("raise OSError('no\\nweights')", "train.py cannot be imported: OSError: no weights ("),
    ],
)
def test_a_script_that_cannot_be_imported_is_answered_in_one_line(
    tmp_path, monkeypatch, capsys, line, expected
):
    (tmp_path / "train.py").write_text(line)
    (tmp_path / "parts").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError, match=re.escape(expected)) as refusal:
        run_script(tmp_path / "train.py", "imported")
    assert "\n" not in str(refusal.value)
    assert "install github.com" not in str(refusal.value)


def test_a_package_that_dassl_needs_is_named(checkout, monkeypatch):
    monkeypatch.chdir(checkout)
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.setitem(sys.modules, "dassl.engine.build", None)
    with pytest.raises(UserError, match=r"Dassl: ModuleNotFoundError: .*dassl.engine.build"):
        main([])
