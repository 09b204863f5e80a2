"""Training loops."""

from .build import TRAINER_REGISTRY, build_trainer
from .trainer import SimpleNet, SimpleTrainer, TrainerBase, TrainerX, TrainerXU

__all__ = [
    "TRAINER_REGISTRY",
    "SimpleNet",
    "SimpleTrainer",
    "TrainerBase",
    "TrainerX",
    "TrainerXU",
    "build_trainer",
]
