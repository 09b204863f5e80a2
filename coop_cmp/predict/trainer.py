"""The trainer of a finished run, made from its settings and without its data."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from dassl.data.data_manager import build_data_loader
from dassl.data.datasets import Datum
from dassl.data.transforms import build_transform
from dassl.engine import TRAINER_REGISTRY
from torch import Tensor

import coop_cmp.datasets
import coop_cmp.trainers  # noqa: F401 - importing these registers what they hold
from coop_cmp import CONFIGS
from coop_cmp.clip import add_models
from coop_cmp.config.resolve import resolve
from coop_cmp.errors import UserError, closest
from coop_cmp.runs.identity import Identity
from coop_cmp.trainers.terms import register_if_term


def trainer_of(identity: Identity, classnames: list[str], here: dict[str, str]) -> Any:
    """Return the run's trainer for some classes, without its data, with settings of one's own."""
    add_models(CONFIGS / "models")
    name = identity.settings["TRAINER.NAME"]
    register_if_term(name)
    if name not in TRAINER_REGISTRY.registered_names():
        hint = closest(name, TRAINER_REGISTRY.registered_names())
        raise UserError(f"the run's trainer {name} is not among the trainers{hint}")
    fixed: dict[str, Any] = {
        "OUTPUT_DIR": "",
        "MODEL.FEATURE_STORE": "",
        "DATALOADER.NUM_WORKERS": 0,
        "TEST.SPLIT": "test",
        "TEST.FINAL_MODEL": "last_step",
        "TEST.EVALUATOR": "Classification",
    }
    cfg = resolve(CONFIGS.parent, {}, {}, {**identity.settings, **fixed, **here})
    cfg.freeze()

    def no_data(trainer: Any) -> None:
        dataset = SimpleNamespace(classnames=classnames, train_x=[], test=[], image_name=str)
        trainer.dm = SimpleNamespace(dataset=dataset)
        trainer.train_loader_x = trainer.val_loader = trainer.test_loader = None
        trainer.num_classes, trainer.lab2cname = len(classnames), dict(enumerate(classnames))

    kind = TRAINER_REGISTRY.get(name)
    with quiet():
        trainer = type(name, (kind,), {"build_data_loader": no_data})(cfg)
    trainer.evaluator = _Collector()
    return trainer


def logits_of(trainer: Any, items: Sequence[Datum]) -> np.ndarray:
    """Return logits [N, C] of listed images, by the steps of the trainer's own test."""
    cfg = trainer.cfg
    trainer.dm.dataset.test = items
    with quiet():
        trainer.test_loader = build_data_loader(
            cfg,
            data_source=items,
            batch_size=cfg.DATALOADER.TEST.BATCH_SIZE,
            tfm=build_transform(cfg, is_train=False),
            is_train=False,
        )
        trainer.test("test")
    return torch.cat(trainer.evaluator.logits).numpy()


class _Collector:
    """Stands in the place of a trainer's evaluator and keeps all logits."""

    split: str | None = None

    def __init__(self) -> None:
        self.facts: dict[str, Any] = {}
        self.logits: list[Tensor] = []

    def reset(self) -> None:
        self.logits = []

    def process(self, logits: Tensor, labels: Tensor) -> None:
        self.logits.append(logits.detach().to("cpu", torch.float32))

    def evaluate(self) -> dict[str, float]:
        return {"images": float(sum(map(len, self.logits)))}


@contextmanager
def quiet() -> Iterator[None]:
    """Keep to itself what trainers print."""
    with contextlib.redirect_stdout(io.StringIO()):
        yield
