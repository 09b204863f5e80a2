"""What a user sees of an epoch: a bar on a terminal, lines in a log."""

from __future__ import annotations

import datetime
import shutil
import sys
import time
from collections.abc import Mapping
from typing import Any

from dassl.utils import AverageMeter, Logger, MetricMeter
from torch import Tensor
from tqdm import tqdm

from .unread import read


def on_terminal() -> bool:
    """Whether somebody is watching: standard output and error are both a terminal."""
    streams = (sys.stdout, sys.stderr)  # a checkout's own logger may not know what a terminal is
    return all(getattr(stream, "isatty", bool)() for stream in streams)


class EpochProgress:
    """Times the batches of one epoch and reports them.

    Every TRAIN.PRINT_FREQ batches a line goes to the log (and to standard output, unless that is a
    terminal, which has a bar on standard error instead), and with it all numbers since the last one
    are read. TensorBoard gets every batch.
    """

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer
        self.losses = MetricMeter()
        self.batch_time = AverageMeter()
        self.data_time = AverageMeter()
        self.bar: Any = None
        if on_terminal():
            size = shutil.get_terminal_size()  # tqdm hides the bar if the terminal does not tell
            self.bar = tqdm(
                total=trainer.num_batches,
                desc=f"epoch {trainer.epoch + 1}/{trainer.max_epoch}",
                leave=False,
                ncols=size.columns,
                nrows=size.lines,
                bar_format="{desc} |{bar:10}| {n_fmt}/{total_fmt}{postfix}",
            )
        self._unread: list[tuple[int, float, Mapping[str, Any]]] = []  # batch, rate, what it gave
        self._start = time.time()

    def __enter__(self) -> EpochProgress:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        if self.bar is not None:
            self.bar.close()
        if kind is None:
            self._read()

    def batch_loaded(self) -> None:
        """Note that the next batch has arrived."""
        self.data_time.update(time.time() - self._start)

    def batch_done(self, loss_summary: dict[str, Any] | None) -> None:
        """Report what ``forward_backward`` returned; tensors in it are read when they are shown."""
        trainer = self.trainer
        self.batch_time.update(time.time() - self._start)
        lr = trainer.get_current_lr()
        self._unread.append((trainer.batch_idx, lr, {} if loss_summary is None else loss_summary))
        frequency = trainer.cfg.TRAIN.PRINT_FREQ
        due = (trainer.batch_idx + 1) % frequency == 0 or trainer.num_batches < frequency
        if due:
            self._read()
        self._report(lr, due)
        self._start = time.time()

    def _read(self) -> None:
        """Read all numbers that wait, in one go, and pass them on batch by batch."""
        trainer, waiting = self.trainer, self._unread
        self._unread = []
        losses = trainer.unread_losses
        numbers = [v for *_, found in waiting for v in found.values() if isinstance(v, Tensor)]
        values = read([*losses.tensors, *numbers])
        losses.check(values[: len(losses.tensors)])
        numbers_read = iter(values[len(values) - len(numbers) :])
        for batch_idx, lr, found in waiting:
            step = trainer.epoch * trainer.num_batches + batch_idx
            known = {
                k: next(numbers_read) if isinstance(v, Tensor) else v for k, v in found.items()
            }
            self.losses.update(known)
            for name, meter in self.losses.meters.items():
                trainer.write_scalar("train/" + name, meter.avg, step)
            trainer.write_scalar("train/lr", lr, step)

    def _report(self, lr: float, due: bool) -> None:
        trainer = self.trainer
        done = trainer.batch_idx + 1
        epochs_left = trainer.max_epoch - trainer.epoch - 1
        batches_left = trainer.num_batches - done + epochs_left * trainer.num_batches
        eta = datetime.timedelta(seconds=int(self.batch_time.avg * batches_left))
        if self.bar is not None:
            # The losses come last: a narrow terminal cuts the end.
            self.bar.set_postfix_str(f"eta {eta} lr {lr:.2e} {self.losses}", refresh=False)
            self.bar.update()
            if done == trainer.num_batches:  # short epochs end before tqdm draws by itself
                self.bar.refresh()

        if not due:
            return
        line = (
            f"epoch [{trainer.epoch + 1}/{trainer.max_epoch}] "
            f"batch [{done}/{trainer.num_batches}] "
            f"time {self.batch_time.val:.3f} ({self.batch_time.avg:.3f}) "
            f"data {self.data_time.val:.3f} ({self.data_time.avg:.3f}) "
            f"{self.losses} lr {lr:.4e} eta {eta}"
        )
        stdout: Any = sys.stdout
        if self.bar is None:
            print(line)
        elif isinstance(stdout, Logger):
            stdout.write_file(line + "\n")
