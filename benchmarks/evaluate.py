"""Evaluation of CoOp: as the CoOp codebase does it, and with the feature store.

    python benchmarks/evaluate.py [--json FILE] [--threads 2] [--images 200] [--classes 100]

ViT-B/32 with random weights on random pictures. The CoOp codebase encodes all images in every run
and the prompts again for every batch. Every row is measured in a process of its own. Seconds and
memory are those of the whole test: finding, reading or encoding images, encoding prompts, all
metrics. Differences are those to the first row.
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
from common import (
    ROOT,
    alone,
    class_names,
    count_flops,
    now,
    parser_of,
    peak_bytes,
    random_clip,
    report,
)
from dassl.engine import build_trainer
from dassl.utils import set_random_seed
from PIL import Image
from safetensors.torch import save_file

from coop_cmp import cli
from coop_cmp.cli import training
from coop_cmp.clip import add_models
from coop_cmp.runs.outputs import PREDICTIONS_FILE
from coop_cmp.runs.records import RESULTS_FILE

BATCH = 100
# Way: text encoder, feature store, prompts encoded again for every batch.
WAYS = {
    "CoOp codebase": ("naive", False, True),
    "shared prefix, text once": ("shared", False, False),
    "with the store, first run": ("shared", True, False),
    "with the store, second run": ("shared", True, False),
}
FIRST = "CoOp codebase"
WEIGHTS = "random.safetensors"
SMALL = {
    "embed_dim": 32,
    "vision_cfg": {"image_size": 224, "patch_size": 32, "width": 64, "layers": 2},
    "text_cfg": {"width": 64, "heads": 2, "layers": 2},
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


def make_weights(folder: Path, small: bool) -> None:
    """Write random weights."""
    if small:
        (folder / "models").mkdir()
        (folder / "models" / "SmallCLIP.json").write_text(json.dumps(SMALL))
        add_models(folder / "models")
    state = random_clip("SmallCLIP" if small else "ViT-B-32").state_dict()
    save_file({key: value.contiguous() for key, value in state.items()}, folder / WEIGHTS)


def weights_options(folder: Path, small: bool) -> list[str]:
    """The options that choose these weights."""
    if small:
        add_models(folder / "models")
    name = "SmallCLIP" if small else "ViT-B/32"  # OpenAI's name, which means QuickGELU
    return ["MODEL.BACKBONE.NAME", name, "MODEL.BACKBONE.WEIGHTS", str(folder / WEIGHTS)]


def make_trainer(folder: Path, options: list[str], way: str) -> Any:
    """A trainer of CoOp with a fixed random context."""
    encoder, has_store, per_batch = WAYS[way]
    arguments = ["--trainer", "CoOp", "--root", str(folder / "pictures"), "--seed", "1"]
    arguments += ["--dataset-config-file", str(ROOT / "configs/datasets/folder.yaml")]
    arguments += ["--config-file", str(ROOT / "configs/trainers/CoOp/clip.yaml")]
    arguments += ["--output-dir", str(folder / way), *options]
    arguments += ["MODEL.TEXT_ENCODER", encoder, "TRAINER.COOP.PREC", "fp32"]
    arguments += ["MODEL.FEATURE_STORE", str(folder / "store") if has_store else ""]
    arguments += ["DATALOADER.NUM_WORKERS", "0", "DATALOADER.TEST.BATCH_SIZE", str(BATCH)]
    cfg = training.setup_cfg(cli.parse(["train", *arguments])[1])
    set_random_seed(cfg.SEED)
    trainer = build_trainer(cfg)
    if per_batch:
        trainer.model.classifier = lambda: None  # nothing is kept for the next batch
    return trainer


def measure(folder: Path, way: str, small: bool, device: str = "cpu") -> dict[str, Any]:
    """Seconds, memory and arithmetic of one evaluation in this process."""
    options = [*weights_options(folder, small), "DEVICE", device]
    images: list[int] = []
    passes: list[int] = []
    seconds: list[float] = []

    def test() -> None:
        start = now()
        trainer.test()
        seconds.append(now() - start)

    with contextlib.redirect_stdout(io.StringIO()):
        trainer = make_trainer(folder, options, way)
        model = trainer.model
        model.visual.register_forward_pre_hook(lambda _, inputs: images.append(len(inputs[0])))
        model.text_encoder.register_forward_pre_hook(lambda *_: passes.append(1))
        peak = peak_bytes(test)
    count = {"images": sum(images), "passes": len(passes)}
    with torch.no_grad():
        per_image = count_flops(lambda: trainer.encode_image(torch.zeros(1, 3, 224, 224)))
        per_pass = count_flops(model.text_features)
    layout, length = model.prompt_learner.layout, len(model.text_encoder.clip.positional_embedding)
    tokens = layout.n_tokens if WAYS[way][0] == "shared" else layout.n_classes * length
    return {
        **count,
        "tokens": count["passes"] * tokens,
        "flops": count["images"] * per_image + count["passes"] * per_pass,
        "seconds": seconds[0],
        "bytes": peak,
        "metrics": json.loads((folder / way / RESULTS_FILE).read_text())["metrics"],
    }


def differs(folder: Path, way: str) -> float:
    """How far the logits are from those of the CoOp codebase's way."""
    ours, theirs = (np.load(folder / w / PREDICTIONS_FILE)["logits"] for w in (way, FIRST))
    return float(np.abs(ours - theirs).max())


def main() -> None:
    parser = parser_of(__doc__ or "")
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--classes", type=int, default=100)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_pictures(folder / "pictures", args.classes, args.images)
        make_weights(folder, args.small)
        found = {way: alone(args, measure, folder, way, args.small, args.device) for way in WAYS}
        logits = {way: differs(folder, way) for way in WAYS}
    first = found[FIRST]
    rows = [
        {
            "evaluation": way,
            "images encoded": run["images"],
            "text passes": run["passes"],
            "text tokens": run["tokens"],
            "GFLOP": run["flops"] / 1e9,
            "seconds": run["seconds"],
            "MB": run["bytes"] / 1e6,
            "faster": first["seconds"] / run["seconds"],
            "accuracy": run["metrics"]["accuracy"],
            "ece": run["metrics"]["ece"],
            "logits differ": logits[way],
            "metrics differ": max(
                abs(value - first["metrics"][key]) for key, value in run["metrics"].items()
            ),
        }
        for way, run in found.items()
    ]
    report(args, rows)


if __name__ == "__main__":
    main()
