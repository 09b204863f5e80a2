"""What ``coop-cmp metrics`` does: read predictions, compute their metrics, print a table."""

from __future__ import annotations

import argparse
import csv
import io
import os
import sys
from functools import partial
from typing import Any

import numpy as np
from tabulate import tabulate
from tqdm import tqdm

from coop_cmp.errors import UserError
from coop_cmp.files import read_file
from coop_cmp.metrics.bins import check_bins, convention
from coop_cmp.metrics.panel import measure
from coop_cmp.metrics.records import METRICS, check_keys
from coop_cmp.metrics.resample import Interval, bootstrap
from coop_cmp.metrics.samples import Samples
from coop_cmp.runs.outputs import PREDICTIONS_FILE, read_npz
from coop_cmp.runs.records import RESULTS_FILE
from coop_cmp.runs.stored import StoredRun

SCORE_NAMES = {"logits": "logits", "probs": "probs", "probabilities": "probs"}
LONG = 10_000_000  # drawn samples, a few seconds
LABEL_NAMES = ("labels", "label", "targets", "target", "y_true", "y")


def load_samples(path: str, kind: str | None = None) -> Samples:
    """The predictions in an npz or CSV file, or of a run.

    Args:
        path: The file or directory; see ``coop-cmp metrics --help``.
        kind: "logits" or "probs"; a CSV needs it, an npz only if it holds both.
    """
    if os.path.isdir(path):
        if os.path.exists(os.path.join(path, RESULTS_FILE)):
            StoredRun.of(path).check(predictions=True)
        path = os.path.join(path, PREDICTIONS_FILE)
    read = _read_csv if path.lower().endswith(".csv") else _read_npz
    values, labels, kind = read(path, kind)
    scores: Any = "sigmoid" if kind == "sigmoid" else "softmax"
    try:
        return Samples(values, labels, kind != "probs", scores)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error


def _read_npz(path: str, kind: str | None) -> tuple[Any, Any, str]:
    arrays = read_npz(path)
    scores = [name for name in SCORE_NAMES if name in arrays and kind in (None, SCORE_NAMES[name])]
    labels = [name for name in LABEL_NAMES if name in arrays]
    if len(scores) != 1 or len(labels) != 1:
        raise UserError(
            f"{path}: expected one array of scores ({', '.join(SCORE_NAMES)}) and one of labels "
            f"({', '.join(LABEL_NAMES)}), got {', '.join(arrays) or 'nothing'}; "
            "--kind chooses between logits and probs"
        )
    numbers = (_numbers(arrays[name], f"{path}: {name}") for name in (scores[0], labels[0]))
    made_by = arrays.get("scores")  # as runs say it
    if scores[0] != "logits" or made_by is None or made_by.dtype.kind != "U":
        return *numbers, SCORE_NAMES[scores[0]]
    if str(made_by) not in ("softmax", "sigmoid"):
        raise UserError(f'{path}: expected scores "softmax" or "sigmoid", got {made_by}')
    return *numbers, "sigmoid" if str(made_by) == "sigmoid" else "logits"


def _numbers(array: Any, where: str) -> Any:
    """An array of plain numbers, in this machine's order of bytes."""
    if array.dtype.kind not in "fiu" or array.dtype.itemsize > 8:
        raise UserError(f"{where}: expected numbers of at most 64 bits, got {array.dtype}")
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _read_csv(path: str, kind: str | None) -> tuple[Any, Any, str]:
    if kind is None:
        raise UserError(f"{path}: say what the columns hold with --kind logits or --kind probs")
    try:
        text = io.StringIO(read_file(path).decode("utf-8-sig"), newline="")
        header, *rows = [row for row in csv.reader(text) if row] or [[]]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path}: cannot be read ({error})") from error
    columns = [i for i, name in enumerate(header) if name.strip().lower() in LABEL_NAMES]
    if len(columns) != 1:
        raise UserError(f"{path}: expected a header with one column called label, got {header}")
    classes = [name.strip() for i, name in enumerate(header) if i not in columns]
    if len(set(classes)) < len(classes):
        raise UserError(f"{path}: two columns have the same name in {header}")
    if all(name.isdigit() for name in classes):
        if classes != [str(place) for place in range(len(classes))]:
            raise UserError(f"{path}: expected columns with numbers for names to be 0, 1, 2, ...")
        classes = []  # labels are places
    scores = np.empty((len(rows), len(header) - 1))
    labels = np.empty(len(rows), dtype=np.int64)
    for i, row in enumerate(rows):
        try:
            if len(row) != len(header):
                raise ValueError(f"{len(row)} columns where the header has {len(header)}")
            label = row.pop(columns[0]).strip()
            labels[i] = classes.index(label) if label in classes else int(label)
            scores[i] = [float(cell) for cell in row]
        except (ValueError, OverflowError) as error:
            raise UserError(f"{path}, line {i + 2}: {error}") from error
    return scores, labels, kind


def panel_rows(files: list[Samples], keys: list[str], args: argparse.Namespace) -> list[list[str]]:
    """The table as text: one row per metric, with intervals or a comparison where asked for."""
    drawn = [] if len(files) == 1 and not args.intervals else keys
    if not args.keys:
        # Resampling the whole matrix a thousand times is only for those who ask for it by name.
        drawn = [key for key in drawn if not METRICS[key].on_request]
    options = {"resamples": args.resamples, "level": args.level, "seed": args.seed}
    bins = {"n_bins": args.bins, "closed": args.closed}
    minus = files[0] if len(files) == 2 else None
    if drawn and len(files[0]) * args.resamples > LONG:
        classes = [key for key in drawn if METRICS[key].on_request]
        slow = f"; {', '.join(classes)} need the whole matrix each time" if classes else ""
        print(
            f"drawing {args.resamples} resamples of {len(files[0]):,} samples{slow}",
            file=sys.stderr,
        )
    shown = partial(tqdm, disable=None, leave=False)  # on a terminal
    intervals = {}
    if drawn:
        intervals = bootstrap(files[-1], drawn, minus=minus, progress=shown, **bins, **options)
    rows = []
    measured = [measure(file, keys, args.bins, args.closed) for file in files]
    for key in keys:
        show = METRICS[key].show
        values = [found[key] for found in measured]
        row = [key, *map(show, values)]
        if minus is not None:
            row.append(show(values[1] - values[0], signed=True))
        if key in intervals:
            row.append(_interval_text(key, intervals[key], signed=minus is not None))
        rows.append(row)
    return rows


def _interval_text(key: str, interval: Interval, signed: bool) -> str:
    low, high = (METRICS[key].show(end, signed) for end in (interval.low, interval.high))
    return f"[{low}, {high}]" + (" *" if signed and interval.excludes_zero else "")


def show(args: argparse.Namespace) -> None:
    """Print the metrics of one file, or the comparison of two."""
    if len(args.files) > 2:
        raise UserError(f"expected one file or two, got {len(args.files)}")
    check_bins(args.bins, args.closed)
    keys = check_keys(args.keys)
    files = [load_samples(path, args.kind) for path in args.files]
    if not args.keys:
        keys = [key for key in keys if not any(map(METRICS[key].undefined, files))]
    rows = panel_rows(files, keys, args)
    heads = ["metric", "value"] if len(files) == 1 else ["metric", "first", "second", "difference"]
    if any(len(row) > len(heads) for row in rows):
        heads.append(f"{100 * args.level:g}% interval")
    aligned = ("left", *["right"] * (len(heads) - 1))
    print(tabulate(rows, heads, "plain", disable_numparse=True, colalign=aligned))
    size = f"{len(files[0]):,} samples, {files[0].n_classes:,} classes"
    print(f"\n{size}; {convention(args.bins, args.closed)}")
    if len(files) == 2:
        print("* the interval of the difference (second - first) excludes zero")
