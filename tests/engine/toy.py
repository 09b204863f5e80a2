"""A tiny data set and trainer; everything random is drawn from every generator."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import torch
from dassl.config import get_cfg_default
from dassl.data.datasets import DATASET_REGISTRY, DatasetBase, Datum
from dassl.engine import TRAINER_REGISTRY, TrainerX, TrainerXU
from dassl.optim import build_lr_scheduler, build_optimizer
from PIL import Image
from torch import nn
from torch.nn import functional as F
from yacs.config import CfgNode

SIZE = 8
CLASSES = ("cat", "dog", "owl")


def write_images(root: Path) -> None:
    """Write 6 train, 2 val and 3 test images of each class."""
    rng = np.random.default_rng(0)
    for split, count in (("train", 6), ("val", 2), ("test", 3)):
        for name in CLASSES:
            for i in range(count):
                pixels = rng.integers(0, 256, (SIZE, SIZE, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(root / f"{split}-{name}-{i}.png")


def items(root: Path | str, split: str) -> list[Datum]:
    """The images of one split, alternating between two domains."""
    paths = [sorted(Path(root).glob(f"{split}-{name}-*.png")) for name in CLASSES]
    return [
        Datum(str(path), label, domain=i % 2, classname=CLASSES[label])
        for label, group in enumerate(paths)
        for i, path in enumerate(group)
    ]


@DATASET_REGISTRY.register()
class Toy(DatasetBase):
    """18 training, 6 validation and 9 test images."""

    def __init__(self, cfg: CfgNode) -> None:
        root = cfg.DATASET.ROOT
        train = self.generate_fewshot_dataset(items(root, "train"), num_shots=cfg.DATASET.NUM_SHOTS)
        super().__init__(
            train_x=train,
            train_u=items(root, "val"),
            val=items(root, "val"),
            test=items(root, "test"),
        )


@TRAINER_REGISTRY.register()
class ToyTrainer(TrainerX):
    """A linear model whose loss also depends on python's and numpy's generators."""

    def build_model(self) -> None:
        self.model = nn.Sequential(nn.Flatten(), nn.Dropout(0.3), nn.Linear(SIZE * SIZE * 3, 3))
        self.optim = build_optimizer(self.model, self.cfg.OPTIM)
        self.sched = build_lr_scheduler(self.optim, self.cfg.OPTIM)
        self.register_model("linear", self.model, self.optim, self.sched)

    def forward_backward(self, batch):
        image, label, _ = self.parse_batch_train(batch)
        noise = random.random() + np.random.rand() + np.random.randn()
        loss = F.cross_entropy(self.model(image) * (1 + 0.1 * noise), label)
        self.model_backward_and_update(loss)
        if self.batch_idx + 1 == self.num_batches:
            self.update_lr()
        return {"loss": loss.item()}


@TRAINER_REGISTRY.register()
class ToyTrainerXU(TrainerXU):
    """Counts the batches that it gets."""

    build_model = ToyTrainer.build_model

    def forward_backward(self, batch_x, batch_u):
        image_x, label_x, image_u = self.parse_batch_train(batch_x, batch_u)
        assert image_u.shape == (2, 3, SIZE, SIZE)
        loss = F.cross_entropy(self.model(image_x), label_x)
        self.model_backward_and_update(loss)
        return {"loss": loss}


def config(root: Path, output: Path, *options: object) -> CfgNode:
    """Settings of a run of 4 epochs with 4 batches each; ``options`` are keys and values."""
    cfg = get_cfg_default()
    cfg.merge_from_list(
        [
            *("DATASET.NAME", "Toy", "DATASET.ROOT", str(root), "OUTPUT_DIR", str(output)),
            *("TRAINER.NAME", "ToyTrainer", "SEED", 1, "DATALOADER.NUM_WORKERS", 0),
            *("INPUT.SIZE", (SIZE, SIZE), "INPUT.TRANSFORMS", ("random_flip", "normalize")),
            *("DATALOADER.TRAIN_X.BATCH_SIZE", 4, "TRAIN.CHECKPOINT_FREQ", 1),
            *("OPTIM.NAME", "sgd", "OPTIM.LR", 0.01, "OPTIM.MAX_EPOCH", 4),
            *("OPTIM.LR_SCHEDULER", "cosine", "OPTIM.WARMUP_EPOCH", 1),
            *("OPTIM.WARMUP_TYPE", "constant", *options),
        ]
    )
    return cfg


def weights(trainer: TrainerX) -> torch.Tensor:
    """All parameters of all registered models as one vector."""
    models = trainer._models.values()
    return torch.cat([p.detach().flatten() for model in models for p in model.parameters()])
