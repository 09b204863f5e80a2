"""Predict the classes of images with a trained run."""

from __future__ import annotations

import argparse
import csv
import json
import math
import sys
from typing import TYPE_CHECKING

from coop_cmp.cli.options import add_data_argument, given
from coop_cmp.errors import UserError

if TYPE_CHECKING:
    from coop_cmp.predict.predictor import Predicted

DONT_KNOW = "don't know"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    add = parser.add_argument
    add("run", type=given, help="directory of a trained run")
    add("images", nargs="+", type=given, help="image files, or folders with images")
    add("--calibrator", metavar="RUN", help="run that coop-cmp calibrate made of it")
    add("--classes", nargs="+", metavar="NAME", help="classes; default: those of the run")
    add("--top", type=int, default=5, metavar="K", help="number of classes per image (%(default)s)")
    add("--threshold", type=float, metavar="P", help="confidence below which to answer don't know")
    add("--max-error", type=float, metavar="E", help="share of answers that may be wrong: "
        "a threshold is chosen on the run's validation images, in --data")  # fmt: skip
    add_data_argument(parser)
    add("--device", default="", help="device: cpu, cuda, cuda:1 or mps; default: auto-detected")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--csv", action="store_true", help="print CSV, a line for each class")
    form.add_argument("--json", action="store_true", help="print JSON, an object for each image")


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    if args.threshold is not None and args.max_error is not None:
        raise UserError("--threshold and --max-error exclude each other")
    if args.threshold is not None and not 0 <= args.threshold <= 1:
        raise UserError(f"--threshold: expected a probability from 0 to 1, got {args.threshold:g}")
    if args.top < 1:
        raise UserError(f"--top: expected a whole number >= 1, got {args.top}")
    from coop_cmp.predict.predictor import load  # loads torch, too slow for --help

    model = load(args.run, classnames=args.classes, calibrator=args.calibrator, device=args.device)
    least = args.threshold or 0.0
    if args.max_error is not None:
        chosen = model.threshold(args.max_error, args.data)
        print(chosen, file=sys.stderr)
        least = chosen.value
    predicted = model.predict(args.images, least)
    show = show_csv if args.csv else show_json if args.json else show_lines
    show(predicted, args.top)
    return 0


def show_lines(predicted: Predicted, count: int) -> None:
    """Print a line for each image."""
    width = max(map(len, predicted.images))
    for image, name, ranked in predicted.rows(count):
        classes = ", ".join(f"{k} {p:.1%}" for k, p in ranked)
        print(f"{image:{width}}  {classes if name else f'{DONT_KNOW} ({classes})'}")


def show_csv(predicted: Predicted, count: int) -> None:
    """Print a line of CSV for each image and class."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(["image", "answer", "rank", "class", "probability"])
    for image, name, ranked in predicted.rows(count):
        for rank, (classname, probability) in enumerate(ranked, 1):
            writer.writerow([image, name or DONT_KNOW, rank, classname, f"{probability:.6f}"])


def by_name(ranked: list[tuple[str, float]]) -> dict[str, float]:
    """The probabilities by name, the likeliest first; of two classes with one name, the larger."""
    found: dict[str, float] = {}
    for name, probability in ranked:
        found.setdefault(name, probability)
    return found


def show_json(predicted: Predicted, count: int) -> None:
    """Print a JSON object for each image; the answer is null where it is not known."""
    least = predicted.threshold if math.isfinite(predicted.threshold) else None
    listed = [
        {"image": image, "answer": name, "threshold": least, "classes": by_name(ranked)}
        for image, name, ranked in predicted.rows(count)
    ]
    print(json.dumps(listed, indent=2, ensure_ascii=False))
