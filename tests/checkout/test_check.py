"""``python -m coop_cmp --check`` in a checkout with trainers of every fate."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from coop_cmp.checkout.fakes import PETS, random_weights, without_gpu
from tests.checkouts import run

TRAIN = """
import argparse
import json
import os
import sys
import torch
from dassl.config import get_cfg_default
from dassl.data.datasets import DATASET_REGISTRY, DatasetBase, Datum
from dassl.engine import TRAINER_REGISTRY, TrainerX, build_trainer
from dassl.optim import build_lr_scheduler, build_optimizer
from dassl.utils import set_random_seed
from torch import nn
from torch.nn import functional as F
from yacs.config import CfgNode
import weights


@DATASET_REGISTRY.register()
class OxfordPets(DatasetBase):
    def __init__(self, cfg):
        folder = os.path.join(cfg.DATASET.ROOT, "oxford_pets", "images")
        file = os.path.join(os.path.dirname(folder), f"split_zhou_{type(self).__name__}.json")
        split = json.load(open(file))
        parts = {
            part: [Datum(os.path.join(folder, f), y, 0, name) for f, y, name in items]
            for part, items in split.items()
        }
        self.all_class_names = [item.classname for item in parts["train"]]
        super().__init__(train_x=parts["train"], val=parts["val"], test=parts["test"])


@TRAINER_REGISTRY.register()
class Fine(TrainerX):
    def build_model(self):
        state = torch.load(weights._download("https://x/y/ViT-S-32-alt.pt"), map_location="cpu")
        assert self.cfg.TRAINER.FINE.WIDTH == 256 and self.cfg.TRAINER.FINE.FACTOR == 2.0
        assert set(self.dm.dataset.all_class_names) <= set(json.load(open("./descriptions.json")))
        projection = state["text_projection"].float()[:, : self.num_classes].cuda().half()
        head = nn.Linear(256, self.num_classes)
        head.weight.data = projection.t().contiguous()
        self.model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 224 * 224, 256), head)
        self.optim = build_optimizer(self.model, self.cfg.OPTIM)
        self.sched = build_lr_scheduler(self.optim, self.cfg.OPTIM)
        self.register_model("model", self.model, self.optim, self.sched)

    def loss(self, logits, labels):
        return F.cross_entropy(logits, labels)

    def forward_backward(self, batch):
        loss = self.loss(self.model(batch["img"]), batch["label"])
        self.model_backward_and_update(loss)
        return {"loss": loss.item()}

    def test(self, split=None):
        open("curve.txt", "w").close()
        return super().test(split)


@TRAINER_REGISTRY.register()
class Broken(Fine):
    def build_model(self):
        raise AttributeError("no such\\nmethod")


@TRAINER_REGISTRY.register()
class Taught(Fine):
    def build_model(self):
        torch.load("./teacher/model.pth.tar")


@TRAINER_REGISTRY.register()
class Lossless(Fine):
    def loss(self, logits, labels):
        return logits.square().mean()


@TRAINER_REGISTRY.register()
class Restless(Fine):
    def loss(self, logits, labels):
        return F.cross_entropy(logits, labels) * (1 + int.from_bytes(os.urandom(4), "big") / 2**32)


@TRAINER_REGISTRY.register()
class Untested(Fine):
    def test(self, split=None):
        raise KeyError("zeroshot features")


@TRAINER_REGISTRY.register()
class Testless(Fine):
    def after_train(self):
        print("no test")

    def forward_backward(self, features, labels):
        return super().forward_backward({"img": features, "label": labels})

    def run_epoch(self):
        self.num_batches = 1
        for self.batch_idx, batch in enumerate(self.train_loader_x):
            print(self.forward_backward(batch["img"], batch["label"]))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for name in ("root", "output-dir", "trainer", "config-file", "dataset-config-file"):
        parser.add_argument(f"--{name}", default="")
    parser.add_argument("--seed", type=int, default=-1)
    parser.add_argument("--factor", type=float, default=2.0)
    parser.add_argument("opts", default=None, nargs=argparse.REMAINDER)
    args = parser.parse_args()
    cfg = get_cfg_default()
    cfg.TASK = ""
    cfg.TRAINER.FINE = CfgNode({"WIDTH": 0, "FACTOR": 1.0})
    cfg.OPTIM.NAME, cfg.OPTIM.LR_SCHEDULER = "sgd", "cosine"
    for file in (args.dataset_config_file, args.config_file):
        if file:
            cfg.merge_from_file(file)
    cfg.DATASET.ROOT, cfg.OUTPUT_DIR, cfg.SEED = args.root, args.output_dir, args.seed
    cfg.TRAINER.NAME, cfg.TRAINER.FINE.FACTOR = args.trainer, args.factor
    assert args.opts[args.opts.index("TASK") + 1] in ("B2N", "FS")
    cfg.merge_from_list(args.opts)
    cfg.freeze()
    if args.trainer == "Restless":  # prints into its log alone
        os.makedirs(cfg.OUTPUT_DIR)
        sys.stdout = open(os.path.join(cfg.OUTPUT_DIR, "log.txt"), "w")
    set_random_seed(cfg.SEED)
    build_trainer(cfg).train()
"""
WEIGHTS = """
_MODELS = {"ViT-B/16": "url"}


def _download(url, root=None):
    raise ConnectionError(url)
"""
TASK = ("TASK", "B2N")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("check")
    (root / "train.py").write_text(TRAIN)
    (root / "weights.py").write_text(WEIGHTS)
    (root / "descriptions.json").write_text(json.dumps(dict.fromkeys(PETS.split(), "")))
    (root / "configs" / "datasets").mkdir(parents=True)
    (root / "configs/datasets/oxford_pets.yaml").write_text("DATASET:\n  NAME: OxfordPets\n")
    right, wrong = (f"TRAINER:\n  FINE:\n    WIDTH: {width}\n" for width in (256, 1))
    for trainer in ("Fine", "Broken", "Lossless", "Restless", "untested"):
        folder = root / "configs" / "trainers" / trainer
        folder.mkdir(parents=True)
        (folder / "rn50.yaml").write_text(wrong)
        (folder / "vit_b16_a.yaml").write_text("OTHERS: 1\n")  # does not fit
        (folder / "vit_b16_b.yaml").write_text(right)
    (root / "configs" / "trainers" / "testless.yaml").write_text(right)
    return root


def test_each_trainer_works_or_the_reason_and_whose_it_is_are_told(checkout):
    before = sorted(checkout.rglob("*"))
    shown = run(checkout, "--check", *TASK)
    assert shown.returncode == 1, shown.stderr
    lines = [line for line in shown.stdout.splitlines() if not line.startswith((" ", "coop_cmp"))]
    rows = dict(line.split(": ", 1) for line in lines)
    works, own = (
        "works; lambda 0 is bit-identical",
        "the checkout's: with these arguments, on six classes, ",
    )
    assert rows["Fine"] == rows["Testless"] == works
    assert rows["Broken"].startswith(f"{own}Broken fails without coop_cmp too")
    assert "in building: AttributeError: no such method (train.py, line " in rows["Broken"]
    assert rows["Taught"].startswith("not tried: in building it needs what is not here: FileNotFou")
    assert rows["Taught"].endswith("; put it there, or run the command below where it is")
    assert rows["Lossless"].startswith("Lossless_CMP fails in training, Lossless does not: Runtim")
    assert rows["Restless"].endswith("Restless itself differs between two runs, as does lambda 0")
    assert rows["Untested"].startswith(f"{works}; its test fails without coop_cmp too: KeyError")
    assert len(rows) == 7
    assert shown.stdout.count("  --fast: nothing to do: the trainer keeps no text encoder") == 4
    command = "train.py --trainer Broken --dataset-config-file configs/datasets/oxford_pets.yaml"
    file = "--config-file configs/trainers/Broken/vit_b16_b.yaml"
    assert f"  the command that decides: python {command} --seed 1 {file} TASK" in shown.stdout
    left = [f for f in sorted(checkout.rglob("*")) if "__pycache__" not in f.parts]
    assert left == before


def test_arguments_are_those_of_the_script_and_their_want_is_not_the_trainers_fault(checkout):
    shown = run(checkout, "--check", "--trainer", "Fine")
    assert shown.returncode == 1
    assert (
        "not tried: train.py stops before it builds a trainer: ValueError: 'TASK'" in shown.stdout
    )
    shown = run(checkout, "--check", "--trainer", "Fine", "--factr", "3", *TASK)
    assert "stops before it builds a trainer: RuntimeError: exit code 2: " in shown.stdout
    assert "unrecognized arguments: --factr" in shown.stdout
    shown = run(checkout, "--check", "--trainer", "Fine", "--factor", "3", *TASK)
    assert "Fine fails without coop_cmp too, in building: AssertionError" in shown.stdout
    file = "configs/trainers/Fine/rn50.yaml"
    width = ("TRAINER.FINE.WIDTH", "256")
    shown = run(checkout, "--check", "--trainer", "Fine", "--config-file", file, *TASK, *width)
    assert shown.returncode == 0, shown.stdout
    assert "Fine: works; lambda 0 is bit-identical\n" in shown.stdout


def test_a_twin_with_another_term_can_be_tried(checkout):
    shown = run(checkout, "--check", "--trainer=Fine_Focal", *TASK)
    assert shown.returncode == 0, shown.stdout
    assert "Fine: works with the focal loss\n" in shown.stdout


def test_an_unknown_trainer_is_refused(checkout):
    shown = run(checkout, "--check", "--trainer", "Fin_CMP")
    assert shown.returncode == 2
    assert shown.stderr.strip().endswith('no trainer "Fin" that trains; did you mean "Fine"?')


@pytest.mark.parametrize(
    ("trainer", "text"),
    [("CoOp", "works; lambda 0 is bit-identical"), ("ZeroshotCLIP", "works; it has no variants")],
)
def test_the_trainers_of_this_project_pass(trainer, text):
    root = Path(__file__).parents[2]
    shown = run(root, "--check", "--trainer", trainer, "DATASET.NUM_SHOTS", "1")
    assert shown.stdout.splitlines()[0] == f"{trainer}: {text}"
    assert shown.returncode == 0


def test_the_random_weights_have_the_layout_of_openais_package():
    weights = random_weights("ViT-B-16")
    layers = {key.split(".")[2] for key in weights if key.startswith("transformer.resblocks.")}
    assert layers == {str(i) for i in range(12)}
    assert weights["transformer.resblocks.0.attn.in_proj_weight"].shape == (1536, 512)
    assert weights["visual.conv1.weight"].shape == (768, 3, 16, 16)
    assert weights["visual.positional_embedding"].shape == (197, 768)
    assert all(torch.isfinite(value).all() for value in weights.values())


@pytest.mark.skipif(torch.cuda.is_available(), reason="nothing is faked")
@pytest.mark.parametrize("device", ["cuda", torch.device("cpu")])  # what trainers take without one
def test_a_tensor_is_copied_once_as_on_its_way_to_a_gpu(device):
    table, layer = torch.zeros(3), torch.nn.Linear(3, 3)
    with without_gpu():
        assert layer.to(device) is layer.cuda() is layer
        assert layer.weight.to(device) is layer.weight
        for _ in range(2):  # a graph of its own in each step
            x = table.to(device, non_blocking=True)
            assert x.cuda() is x.to(device) is x
            x[0] = layer.weight[0, 0]
            layer(x).sum().backward()
        assert layer.to(device, torch.float64).weight.dtype == torch.float64
        assert table.to(dtype=torch.float64).dtype == table.double().dtype
        assert table.half() is table.to(torch.float32) is table
    assert not table.any()
