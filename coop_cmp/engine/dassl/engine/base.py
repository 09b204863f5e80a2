"""The generic training loop and the care of the registered models."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import torch
from dassl.utils import load_checkpoint, save_checkpoint, tolist_if_not
from dassl.utils.checkpoint import BEST_NAME, fitting, restore
from torch import Tensor, nn

from .resume import newest_common_checkpoints, restore_training_state, training_state
from .unread import UnreadLosses


class TrainerBase:
    """Registers models with their optimizers and schedulers, saves, loads and trains them."""

    start_epoch: int
    max_epoch: int
    epoch: int
    batch_idx: int

    def __init__(self) -> None:
        self._models: OrderedDict[str, nn.Module] = OrderedDict()
        self._optims: OrderedDict[str, torch.optim.Optimizer | None] = OrderedDict()
        self._scheds: OrderedDict[str, Any] = OrderedDict()
        self._writer: Any = None
        self.unread_losses = UnreadLosses()

    def register_model(
        self, name: str = "model", model: Any = None, optim: Any = None, sched: Any = None
    ) -> None:
        """Put a model under the trainer's care; ``name`` is its directory in the output."""
        if "_models" not in self.__dict__:
            raise AttributeError("Cannot assign model before super().__init__() call")
        assert name not in self._models, "Found duplicate model names"
        self._models[name] = model
        self._optims[name] = optim
        self._scheds[name] = sched

    def get_model_names(self, names: str | list[str] | None = None) -> list[str]:
        """The given names, checked; all names for None."""
        if names is None:
            return list(self._models)
        names = tolist_if_not(names)
        for name in names:
            assert name in self._models, f"no model named {name!r}; there are {list(self._models)}"
        return names

    def save_model(
        self,
        epoch: int,
        directory: str,
        is_best: bool = False,
        val_result: float | None = None,
        model_name: str = "",
    ) -> None:
        """Write a checkpoint of each model to ``directory/<name>/``, after ``epoch`` (from 0)."""
        self.unread_losses.check()
        shared = training_state(self)
        for name in self.get_model_names():
            optim, sched = self._optims[name], self._scheds[name]
            save_checkpoint(
                {
                    "state_dict": self._models[name].state_dict(),
                    "epoch": epoch + 1,
                    "optimizer": optim.state_dict() if optim is not None else None,
                    "scheduler": sched.state_dict() if sched is not None else None,
                    "val_result": None if val_result is None else float(val_result),
                    **shared,
                },
                os.path.join(directory, name),
                is_best=is_best,
                model_name=model_name,
            )

    def resume_model_if_exist(self, directory: str) -> int:
        """Continue from the newest epoch of which every model has a whole checkpoint.

        Weights, optimizers, schedules, random generators, grad scaler and the best result are put
        back, so the run goes on as if it had not stopped.

        Returns:
            The epoch to start with; 0 if there is nothing to continue.
        """
        found = newest_common_checkpoints(directory, self.get_model_names())
        if not found:
            print("No checkpoint found, train from scratch")
            return 0
        print(f"Found checkpoint at {directory} (will resume training)")
        epoch = 0
        for name, (fpath, checkpoint) in found.items():
            print(f'Loading checkpoint from "{fpath}"')
            self.check_checkpoint(directory, fpath, checkpoint)
            epoch = restore(
                checkpoint, fpath, self._models[name], self._optims[name], self._scheds[name]
            )
        restore_training_state(self, checkpoint)
        return epoch

    def check_checkpoint(self, directory: str, fpath: str, checkpoint: Any) -> None:
        """Hook: refuse to continue from a checkpoint that the directory should not hold."""

    def load_model(self, directory: str, epoch: int | None = None) -> None:
        """Load the weights of each model: of the best epoch, or those saved after ``epoch``."""
        if not directory:
            print("Note that load_model() is skipped as no pretrained model is given")
            return
        file_name = BEST_NAME if epoch is None else f"model.pth.tar-{epoch}"
        for name in self.get_model_names():
            fpath = os.path.join(directory, name, file_name)
            checkpoint = load_checkpoint(fpath)
            with fitting(fpath):
                self._models[name].load_state_dict(checkpoint["state_dict"])
                result = checkpoint.get("val_result")
                note = "" if result is None else f", val_result={result:.1f}"
                print(f"Load {fpath} to {name} (epoch={checkpoint['epoch']}{note})")

    def set_model_mode(self, mode: str = "train", names: str | list[str] | None = None) -> None:
        """Set the registered models to ``train``, or ``test`` / ``eval``."""
        if mode not in ("train", "test", "eval"):
            raise KeyError(f'mode: expected "train", "test" or "eval", got {mode!r}')
        for name in self.get_model_names(names):
            model = self._models[name]
            model.train() if mode == "train" else model.eval()

    def update_lr(self, names: str | list[str] | None = None) -> None:
        """Step the schedules; trainers call it after the last batch of an epoch."""
        for name in self.get_model_names(names):
            if self._scheds[name] is not None:
                self._scheds[name].step()

    def get_current_lr(self, names: str | list[str] | None = None) -> float:
        """The rate of the first group of the first optimizer; 0 if nothing is optimized."""
        return next((optim.param_groups[0]["lr"] for optim in self._optimizers(names)), 0.0)

    def _optimizers(self, names: str | list[str] | None) -> Iterator[torch.optim.Optimizer]:
        for name in self.get_model_names(names):
            optim = self._optims[name]
            if optim is not None:
                yield optim

    def detect_anomaly(self, loss: Tensor) -> None:
        """Stop the run with a FloatingPointError if the loss is not finite.

        Not at once, which would make the host wait for the device in every step, but when losses
        are next read: at the next print, and before anything is saved.
        """
        place = ""
        if hasattr(self, "batch_idx"):
            rate = self.get_current_lr()
            place = f"(epoch {self.epoch + 1}, batch {self.batch_idx + 1}, rate {rate:g})"
        self.unread_losses.note(loss, place)

    def init_writer(self, log_dir: str) -> None:
        """Start writing TensorBoard files to ``log_dir``."""
        if self.__dict__.get("_writer") is not None:
            return
        try:
            from torch.utils.tensorboard import SummaryWriter  # slow, and not everybody has it
        except ImportError:
            print("tensorboard is not installed: no event files are written")
            return
        print(f"Initialize tensorboard (log_dir={log_dir})")
        self._writer = SummaryWriter(log_dir=log_dir)

    def close_writer(self) -> None:
        """Close the TensorBoard file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def write_scalar(self, tag: str, scalar_value: Any, global_step: int | None = None) -> None:
        """Add a value to the TensorBoard file; nothing happens without one."""
        if self._writer is not None:
            self._writer.add_scalar(tag, scalar_value, global_step)

    def train(self, start_epoch: int, max_epoch: int) -> None:
        """Run the epochs ``start_epoch`` to ``max_epoch - 1`` with all hooks."""
        self.start_epoch = start_epoch
        self.max_epoch = max_epoch
        self.before_train()
        epochs = range(self.start_epoch, self.max_epoch) if self._can_train() else ()
        for self.epoch in epochs:
            self.before_epoch()
            self.run_epoch()
            self.after_epoch()
        self.after_train()

    def _can_train(self) -> bool:
        """False for a method without any model or step of its own, such as zero-shot CLIP."""
        return bool(self._models) or type(self).forward_backward is not TrainerBase.forward_backward

    def before_train(self) -> None:
        """Hook."""

    def after_train(self) -> None:
        """Hook."""

    def before_epoch(self) -> None:
        """Hook."""

    def after_epoch(self) -> None:
        """Hook."""

    def run_epoch(self) -> None:
        """Train one epoch."""
        raise NotImplementedError

    def test(self, split: str | None = None) -> Any:
        """Evaluate."""
        raise NotImplementedError

    def parse_batch_train(self, *batches: Any) -> Any:
        """Take out of a training batch what forward_backward needs."""
        raise NotImplementedError

    def parse_batch_test(self, batch: Any) -> Any:
        """Take out of a test batch the input and the label."""
        raise NotImplementedError

    def forward_backward(self, *batches: Any) -> Any:
        """Make one step; return the values to report as a dict, or None."""
        raise NotImplementedError

    def model_inference(self, input: Any) -> Any:
        """Return the outputs for a test batch."""
        raise NotImplementedError

    def model_zero_grad(self, names: str | list[str] | None = None) -> None:
        """Clear the gradients."""
        for optim in self._optimizers(names):
            optim.zero_grad()

    def model_backward(self, loss: Tensor) -> None:
        """Back-propagate a loss, which has to be finite."""
        self.detect_anomaly(loss)
        loss.backward()

    def model_update(self, names: str | list[str] | None = None) -> None:
        """Step the optimizers."""
        for optim in self._optimizers(names):
            optim.step()

    def model_backward_and_update(self, loss: Tensor, names: str | list[str] | None = None) -> None:
        """Clear the gradients, back-propagate, step."""
        self.model_zero_grad(names)
        self.model_backward(loss)
        self.model_update(names)
