"""Trainers on top of the generic loop: data, evaluation, checkpoints, and how a batch is taken."""

from __future__ import annotations

import datetime
import os
import time
from typing import Any

import torch
from dassl.data import DataManager
from dassl.evaluation import build_evaluator
from dassl.optim import build_lr_scheduler, build_optimizer
from dassl.utils import AverageMeter, MetricMeter, count_num_param, load_pretrained_weights
from dassl.utils.checkpoint import BEST_NAME
from tqdm import tqdm
from yacs.config import CfgNode

from coop_cmp.files import remove_leftovers

from .base import TrainerBase
from .progress import EpochProgress, on_terminal
from .resume import carry_best
from .simple_net import SimpleNet

__all__ = [
    "AverageMeter",
    "MetricMeter",
    "SimpleNet",
    "SimpleTrainer",
    "TrainerBase",
    "TrainerX",
    "TrainerXU",
]


def __getattr__(name: str) -> Any:
    if name != "SummaryWriter":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Checkouts with a loop of their own take it from here; it is slow to load for all others.
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter


class SimpleTrainer(TrainerBase):
    """A trainer made from a config: loaders, model, evaluator, training and test."""

    def __init__(self, cfg: CfgNode) -> None:
        super().__init__()
        self.check_cfg(cfg)
        use_cuda = torch.cuda.is_available() and cfg.USE_CUDA
        self.device = torch.device("cuda" if use_cuda else "cpu")
        self.start_epoch = self.epoch = 0
        self.max_epoch = cfg.OPTIM.MAX_EPOCH
        self.output_dir = cfg.OUTPUT_DIR
        self.cfg = cfg
        self.build_data_loader()
        self.build_model()
        self.evaluator = build_evaluator(cfg, lab2cname=self.lab2cname)
        self.best_result = -float("inf")

    def check_cfg(self, cfg: CfgNode) -> None:
        """Hook: refuse settings that do not suit the trainer."""

    def build_data_loader(self) -> None:
        """Make the loaders."""
        dm = DataManager(self.cfg)
        self.train_loader_x = dm.train_loader_x
        self.train_loader_u: Any = dm.train_loader_u
        self.val_loader = dm.val_loader
        self.test_loader = dm.test_loader
        self.num_classes = dm.num_classes
        self.num_source_domains = dm.num_source_domains
        self.lab2cname = dm.lab2cname
        self.dm = dm

    def build_model(self) -> None:
        """Make and register the model; most trainers have their own."""
        cfg = self.cfg
        print("Building model")
        self.model = SimpleNet(cfg, cfg.MODEL, self.num_classes)
        if cfg.MODEL.INIT_WEIGHTS:
            load_pretrained_weights(self.model, cfg.MODEL.INIT_WEIGHTS)
        self.model.to(self.device)
        print(f"# params: {count_num_param(self.model):,}")
        self.optim = build_optimizer(self.model, cfg.OPTIM)
        self.sched = build_lr_scheduler(self.optim, cfg.OPTIM)
        self.register_model("model", self.model, self.optim, self.sched)

    def train(self) -> None:  # type: ignore[override]
        """Train and test as the config says."""
        super().train(self.start_epoch, self.max_epoch)

    def before_train(self) -> None:
        """Continue an interrupted run if there is one, and start the records."""
        names = self.get_model_names()
        for folder in ("", *names):
            remove_leftovers(os.path.join(self.output_dir, folder))
        if self.cfg.RESUME:
            self.start_epoch = self.resume_model_if_exist(self.cfg.RESUME)
            if names and not self.start_epoch:
                raise FileNotFoundError(
                    f'RESUME: there is no whole checkpoint of {names} in "{self.cfg.RESUME}"'
                )
            carry_best(self.cfg.RESUME, self.output_dir, names)
        else:
            self.start_epoch = self.resume_model_if_exist(self.output_dir)
        self.epoch = max(self.start_epoch - 1, 0)
        self.init_writer(os.path.join(self.output_dir, "tensorboard"))
        self.time_start = time.time()

    def after_train(self) -> None:
        """Test the final model."""
        print("Finish training")
        if not self.cfg.TEST.NO_TEST:
            if self.cfg.TEST.FINAL_MODEL == "best_val":
                print("Deploy the model with the best val performance")
                self.load_model(self.output_dir)
            else:
                print("Deploy the last-epoch model")
            self.test()
        elapsed = datetime.timedelta(seconds=round(time.time() - self.time_start))
        print(f"Elapsed: {elapsed}")
        self.close_writer()

    def after_epoch(self) -> None:
        """Validate and save, when the config asks for it."""
        cfg = self.cfg
        last_epoch = self.epoch + 1 == self.max_epoch
        frequency = cfg.TRAIN.CHECKPOINT_FREQ
        due = frequency > 0 and (self.epoch + 1) % frequency == 0
        if not cfg.TEST.NO_TEST and cfg.TEST.FINAL_MODEL == "best_val":
            result = self.test(split="val")
            if result > self.best_result:
                self.best_result = result
                self.save_model(
                    self.epoch, self.output_dir, val_result=result, model_name=BEST_NAME
                )
        if due or last_epoch:
            self.save_model(self.epoch, self.output_dir)

    @torch.no_grad()
    def test(self, split: str | None = None) -> Any:
        """Evaluate on ``split`` (TEST.SPLIT by default).

        ``val`` means the test data if there are no validation data.

        Returns:
            The first of the evaluator's results.
        """
        self.set_model_mode("eval")
        split = split or self.cfg.TEST.SPLIT
        self.evaluator.split = split
        self.evaluator.reset()
        loader = self.test_loader
        if split == "val" and self.val_loader is not None:
            loader = self.val_loader
        else:
            split = "test"
        print(f"Evaluate on the *{split}* set")
        for batch in tqdm(loader, desc=split, leave=False, disable=not on_terminal()):
            input, label = self.parse_batch_test(batch)
            self.evaluator.process(self.model_inference(input), label)
        results = self.evaluator.evaluate()
        for name, value in results.items():
            self.write_scalar(f"{split}/{name}", value, self.epoch)
        return next(iter(results.values()))

    def model_inference(self, input: Any) -> Any:
        """Scores [N, C] for a test batch."""
        return self.model(input)

    def parse_batch_test(self, batch: dict[str, Any]) -> Any:
        """Image and label of a test batch, on the device."""
        return batch["img"].to(self.device), batch["label"].to(self.device)


class TrainerX(SimpleTrainer):
    """Trains on labelled data."""

    def run_epoch(self) -> None:
        """Train one epoch."""
        self.set_model_mode("train")
        self.num_batches = len(self.train_loader_x)
        with EpochProgress(self) as progress:
            for batch_idx, batch in enumerate(self.train_loader_x):
                self.batch_idx = batch_idx
                progress.batch_loaded()
                progress.batch_done(self.forward_backward(batch))

    def parse_batch_train(self, batch: dict[str, Any]) -> Any:  # type: ignore[override]
        """Image, label and domain of a batch, on the device."""
        return tuple(batch[key].to(self.device) for key in ("img", "label", "domain"))


class TrainerXU(SimpleTrainer):
    """Trains on labelled and unlabelled data at once."""

    def run_epoch(self) -> None:
        """Train one epoch; the shorter loader starts again when it runs out."""
        self.set_model_mode("train")
        lengths = {"train_x": len(self.train_loader_x), "train_u": len(self.train_loader_u)}
        lengths["smaller_one"] = min(lengths.values())
        count_iter = self.cfg.TRAIN.COUNT_ITER
        if count_iter not in lengths:
            raise ValueError(
                f"TRAIN.COUNT_ITER: expected one of {list(lengths)}, got {count_iter!r}"
            )
        self.num_batches = lengths[count_iter]
        batches_x, batches_u = _endless(self.train_loader_x), _endless(self.train_loader_u)
        with EpochProgress(self) as progress:
            for batch_idx in range(self.num_batches):
                self.batch_idx = batch_idx
                batch_x, batch_u = next(batches_x), next(batches_u)
                progress.batch_loaded()
                progress.batch_done(self.forward_backward(batch_x, batch_u))

    def parse_batch_train(  # type: ignore[override]
        self, batch_x: dict[str, Any], batch_u: dict[str, Any]
    ) -> Any:
        """Image and label of the labelled batch, image of the other; on the device."""
        tensors = batch_x["img"], batch_x["label"], batch_u["img"]
        return tuple(tensor.to(self.device) for tensor in tensors)


def _endless(loader: Any) -> Any:
    while True:
        yield from loader
