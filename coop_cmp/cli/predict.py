"""``python -m coop_cmp.cli.predict``: class probabilities of images from a trained run."""

from __future__ import annotations

import argparse
import csv
import json
import math
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from coop_cmp.cli.guarded import guarded

if TYPE_CHECKING:
    from coop_cmp.predict.answers import Answers

DONT_KNOW = "don't know"


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="bash scripts/predict.sh", description=__doc__)
    add = parser.add_argument
    add("run", help="directory of a trained run")
    add("images", nargs="+", help="image files, or folders with images")
    add(
        "--calibrator", metavar="FILE", help="what python -m coop_cmp.cli.calibrate made of the run"
    )
    add("--classes", nargs="+", metavar="NAME", help="other classes than those of the run")
    add("--top", type=int, default=5, metavar="K", help="classes per image (%(default)s)")
    add("--threshold", type=float, metavar="P", help="don't know below this confidence")
    add("--max-error", type=float, metavar="E", help="the share of answers that may be wrong: "
        "a threshold is chosen on the run's validation images, in --data")  # fmt: skip
    add("--data", default="", metavar="DIR", help="folder that holds the run's data set")
    add("--device", default="", help="cpu, cuda, cuda:1 or mps; default: the best there is")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--csv", action="store_true", help="a line for each image and class")
    form.add_argument("--json", action="store_true", help="an object for each image, in a list")
    args = parser.parse_args(arguments)
    if args.threshold is not None and args.max_error is not None:
        parser.error("--threshold and --max-error exclude each other")
    if args.threshold is not None and not 0 <= args.threshold <= 1:
        parser.error(f"--threshold takes a probability from 0 to 1, got {args.threshold:g}")
    if args.top < 1:
        parser.error("--top takes a whole number from 1")

    from coop_cmp.predict.predictor import load

    model = load(args.run, classnames=args.classes, calibrator=args.calibrator, device=args.device)
    least = args.threshold or 0.0
    if args.max_error is not None:
        chosen = model.threshold(args.max_error, args.data)
        print(chosen, file=sys.stderr)
        least = chosen.value
    answers = model.predict(args.images, least)
    show = show_csv if args.csv else show_json if args.json else show_lines
    show(answers, args.top)
    return 0


def show_lines(answers: Answers, count: int) -> None:
    """A line for each image, for people."""
    width = max(map(len, answers.images))
    for image, name, ranked in zip(answers.images, answers.names, answers.top(count), strict=True):
        classes = ", ".join(f"{k} {p:.1%}" for k, p in ranked)
        print(f"{image:{width}}  {classes if name else f'{DONT_KNOW} ({classes})'}")


def show_csv(answers: Answers, count: int) -> None:
    """A line for each image and class."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(["image", "answer", "rank", "class", "probability"])
    for image, name, ranked in zip(answers.images, answers.names, answers.top(count), strict=True):
        for rank, (classname, probability) in enumerate(ranked, 1):
            writer.writerow([image, name or DONT_KNOW, rank, classname, f"{probability:.6f}"])


def show_json(answers: Answers, count: int) -> None:
    """A list with an object for each image; the answer is null where it is not known."""
    rows = zip(answers.images, answers.names, answers.top(count), strict=True)
    least = answers.threshold if math.isfinite(answers.threshold) else None
    listed = [
        {"image": image, "answer": name, "threshold": least, "classes": dict(ranked)}
        for image, name, ranked in rows
    ]
    print(json.dumps(listed, indent=2, ensure_ascii=False))


if __name__ == "__main__":
    sys.exit(guarded(main))
