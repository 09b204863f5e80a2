"""What a user sees of an epoch: a bar on a terminal, lines in a log."""

from __future__ import annotations

import datetime
import shutil
import sys
import time
from typing import Any

from dassl.utils import AverageMeter, Logger, MetricMeter
from tqdm import tqdm


def on_terminal() -> bool:
    """Whether somebody is watching: standard output and error are both a terminal."""
    return sys.stdout.isatty() and sys.stderr.isatty()


class EpochProgress:
    """Times the batches of one epoch and reports them.

    Every TRAIN.PRINT_FREQ batches a line goes to the log (and to standard output, unless that is a
    terminal, which has a bar on standard error instead). TensorBoard gets every batch.
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
        self._start = time.time()

    def __enter__(self) -> EpochProgress:
        return self

    def __exit__(self, *exception: object) -> None:
        if self.bar is not None:
            self.bar.close()

    def batch_loaded(self) -> None:
        """Note that the next batch has arrived."""
        self.data_time.update(time.time() - self._start)

    def batch_done(self, loss_summary: dict[str, Any] | None) -> None:
        """Report what ``forward_backward`` returned."""
        trainer = self.trainer
        self.batch_time.update(time.time() - self._start)
        self.losses.update(loss_summary)
        lr = trainer.get_current_lr()
        self._report(lr)
        step = trainer.epoch * trainer.num_batches + trainer.batch_idx
        for name, meter in self.losses.meters.items():
            trainer.write_scalar("train/" + name, meter.avg, step)
        trainer.write_scalar("train/lr", lr, step)
        self._start = time.time()

    def _report(self, lr: float) -> None:
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

        frequency = trainer.cfg.TRAIN.PRINT_FREQ
        if done % frequency and trainer.num_batches >= frequency:
            return
        self._print(
            f"epoch [{trainer.epoch + 1}/{trainer.max_epoch}] "
            f"batch [{done}/{trainer.num_batches}] "
            f"time {self.batch_time.val:.3f} ({self.batch_time.avg:.3f}) "
            f"data {self.data_time.val:.3f} ({self.data_time.avg:.3f}) "
            f"{self.losses} lr {lr:.4e} eta {eta}"
        )

    def _print(self, line: str) -> None:
        stdout: Any = sys.stdout
        if self.bar is None:
            print(line)
        elif isinstance(stdout, Logger):
            stdout.write_file(line + "\n")
