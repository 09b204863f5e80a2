"""Evaluation of CoOp: as the CoOp codebase does it, and with the feature store.

    python benchmarks/evaluate.py [--json FILE] [--threads 2] [--images 200] [--classes 100]

ViT-B/32 with random weights on random pictures. The CoOp codebase encodes all images in every run
and the prompts again for every batch. Seconds are those of the whole test: reading or encoding
images, encoding prompts, all metrics; the second run with the store finds its key anew, as a new
process would.
"""

from __future__ import annotations

import contextlib
import io
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import ROOT, class_names, count_flops, now, parser_of, random_clip, report
from dassl.engine import build_trainer
from dassl.utils import set_random_seed
from PIL import Image
from safetensors.torch import save_file

import train
from coop_cmp.clip import add_models
from coop_cmp.results import PREDICTIONS_FILE, RESULTS_FILE

BATCH = 100
# Way: text encoder, feature store, prompts encoded again for every batch.
WAYS = {
    "CoOp codebase": ("naive", False, True),
    "shared prefix, text once": ("shared", False, False),
    "with the store, first run": ("shared", True, False),
    "with the store, second run": ("shared", True, False),
}


def make_pictures(folder: Path, classes: int, images: int) -> None:
    """One training picture of each class, and test pictures in equal numbers."""
    draw = np.random.default_rng(0)
    for part, count in (("train", 1), ("test", images // classes)):
        for name in class_names(classes):
            place = folder / part / name.replace("/", " ")
            place.mkdir(parents=True)
            for i in range(count):
                pixels = draw.integers(0, 256, (24, 32, 3), dtype=np.uint8)
                picture = Image.fromarray(pixels).resize((320, 240), Image.Resampling.BICUBIC)
                picture.save(place / f"{i}.jpg")


def make_weights(folder: Path, small: bool) -> list[str]:
    """Write random weights, and return the options that choose them."""
    name = "ViT-B-32"
    if small:
        config = {
            "embed_dim": 32,
            "vision_cfg": {"image_size": 224, "patch_size": 32, "width": 64, "layers": 2},
            "text_cfg": {"width": 64, "heads": 2, "layers": 2},
        }
        (folder / "SmallCLIP.json").write_text(json.dumps(config))
        add_models(folder)
        name = "SmallCLIP"
    file = folder / "random.safetensors"
    state = random_clip(name).state_dict()
    save_file({key: value.contiguous() for key, value in state.items()}, file)
    backbone = "ViT-B/32" if not small else name  # the name of OpenAI's, which has QuickGELU
    return ["MODEL.BACKBONE.NAME", backbone, "MODEL.BACKBONE.WEIGHTS", str(file)]


def make_trainer(folder: Path, options: list[str], way: str) -> Any:
    """A trainer of CoOp with a fixed random context."""
    encoder, has_store, per_batch = WAYS[way]
    arguments = ["--trainer", "CoOp", "--root", str(folder / "pictures"), "--seed", "1"]
    arguments += ["--dataset-config-file", str(ROOT / "configs/datasets/folder.yaml")]
    arguments += ["--config-file", str(ROOT / "configs/trainers/CoOp/vit_b16.yaml")]
    arguments += ["--output-dir", str(folder / way), *options]
    arguments += ["MODEL.TEXT_ENCODER", encoder, "TRAINER.COOP.PREC", "fp32"]
    arguments += ["MODEL.FEATURE_STORE", str(folder / "store") if has_store else ""]
    arguments += ["DATALOADER.NUM_WORKERS", "0", "DATALOADER.TEST.BATCH_SIZE", str(BATCH)]
    cfg = train.setup_cfg(train.parse_args(arguments))
    set_random_seed(cfg.SEED)
    trainer = build_trainer(cfg)
    if per_batch:
        trainer.model.classifier = lambda: None  # nothing is kept for the next batch
    return trainer


def measure(folder: Path, options: list[str], way: str, images: int) -> dict[str, Any]:
    """Seconds and arithmetic of one evaluation, its metrics and its logits [N, C]."""
    with contextlib.redirect_stdout(io.StringIO()):
        trainer = make_trainer(folder, options, way)
        start = now()
        trainer.test()
        seconds = now() - start
    encoded = 0 if "second" in way else images
    passes = images // BATCH if WAYS[way][2] else 1
    with torch.no_grad():
        per_image = count_flops(lambda: trainer.encode_image(torch.zeros(1, 3, 224, 224)))
        per_pass = count_flops(trainer.model.text_features)
    return {
        "encoded": encoded,
        "passes": passes,
        "flops": encoded * per_image + passes * per_pass,
        "seconds": seconds,
        "metrics": json.loads((folder / way / RESULTS_FILE).read_text())["metrics"],
        "logits": np.load(folder / way / PREDICTIONS_FILE)["logits"],
    }


def main() -> None:
    parser = parser_of(__doc__ or "")
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--classes", type=int, default=100)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_pictures(folder / "pictures", args.classes, args.images)
        options = make_weights(folder, args.small)
        found = {way: measure(folder, options, way, args.images) for way in WAYS}
    first, plain = found["CoOp codebase"], found["shared prefix, text once"]
    rows = [
        {
            "evaluation": way,
            "images encoded": run["encoded"],
            "text passes": run["passes"],
            "GFLOP": run["flops"] / 1e9,
            "seconds": run["seconds"],
            "faster": first["seconds"] / run["seconds"],
            "accuracy": run["metrics"]["accuracy"],
            "ece": run["metrics"]["ece"],
            "logits differ from row 2": float(np.abs(run["logits"] - plain["logits"]).max()),
            "same metrics": run["metrics"] == plain["metrics"],
        }
        for way, run in found.items()
    ]
    report(args, rows)


if __name__ == "__main__":
    main()
