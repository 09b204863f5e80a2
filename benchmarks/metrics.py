"""Time and memory of the calibration metrics against other libraries, where these are installed.

    pip install torchmetrics netcal uncertainty-calibration "torch-uncertainty[cpu]"
    python benchmarks/metrics.py [--json FILE] [--threads 2] [--rounds 5] [--slow]

50,000 samples of 1,000 classes. The panel is ECE, MCE, weighted MCE, ACE, KS, NLL, AURC and AUROC
in one call; the other libraries compute their ECE alone. ``--slow`` adds torch-uncertainty's
classwise ECE, which takes minutes and gigabytes. Values are shown so that one sees that the same is
computed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
from common import alone, in_turns, parser_of, peak_bytes, prepare, report

from coop_cmp.metrics import calibration_report, classwise_ece

PANEL = ("ece", "mce", "weighted_mce", "ace", "ks", "nll", "aurc", "auroc")
BINS = 15

Contest = dict[str, Callable[[], Any]]


def predictions(n: int, classes: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Logits and probabilities [n, classes] of an over-confident model, and labels [n]."""
    logits = 3 * torch.randn(n, classes)
    labels = (logits / 2).softmax(1).multinomial(1)[:, 0]
    return logits, logits.softmax(1), labels


def top_label(logits: torch.Tensor, probs: torch.Tensor, labels: torch.Tensor) -> Contest:
    """Our panel, and the ECE of each library that is there."""
    contest: Contest = {
        "panel": lambda: calibration_report(probs, labels, BINS, keys=PANEL)["ece"],
        "panel of logits": lambda: calibration_report(
            logits, labels, BINS, from_logits=True, keys=PANEL
        )["ece"],
    }
    if torchmetrics := found("torchmetrics.functional.classification"):
        ece = torchmetrics.multiclass_calibration_error
        classes = probs.shape[1]
        contest["torchmetrics ECE"] = lambda: ece(probs, labels, classes, n_bins=BINS)
        contest["torchmetrics ECE of logits"] = lambda: ece(logits, labels, classes, n_bins=BINS)
    arrays = (probs.numpy(force=True), labels.numpy(force=True))
    if netcal := found("netcal.metrics"):
        contest["netcal ECE"] = lambda: netcal.ECE(BINS).measure(*arrays)
    if calibration := found("calibration"):
        contest["uncertainty-calibration ECE"] = lambda: calibration.get_ece(*arrays, num_bins=BINS)
    return contest


def per_class(probs: torch.Tensor, labels: torch.Tensor, slow: bool) -> Contest:
    """Classwise ECE, ours and theirs."""
    contest: Contest = {"classwise ECE": lambda: classwise_ece(probs, labels, BINS)}
    if calibration := found("calibration"):
        arrays = (probs.numpy(force=True), labels.numpy(force=True))
        contest["uncertainty-calibration classwise"] = lambda: calibration.get_ece(
            *arrays, num_bins=BINS, mode="marginal"
        )
    if slow and (peer := found("torch_uncertainty.metrics.classification.calibration")):
        name = "torch-uncertainty classwise"
        metric = peer.ClasswiseCalibrationError(num_classes=probs.shape[1], num_bins=BINS)

        def measured() -> Any:
            metric.reset()
            metric.update(probs, labels)
            return metric.compute()

        contest[name] = measured
    return contest


def found(module: str) -> Any:
    """The module, or None if it is not installed."""
    try:
        return import_module(module)
    except ImportError:
        return None


def contests(args: argparse.Namespace) -> tuple[Contest, Contest]:
    """What reads the top label, and what reads all classes, on the same predictions."""
    torch.manual_seed(0)
    torch.set_default_device(args.device)
    logits, probs, labels = predictions(*((2000, 50) if args.small else (50_000, 1000)))
    return top_label(logits, probs, labels), per_class(probs, labels, args.slow)


def measured(contest: Contest, rounds: int, args: argparse.Namespace) -> list[dict[str, Any]]:
    """Value, best seconds, extra memory of the first call, and how much longer than the first."""
    first_calls = {name: alone(args, first_call, name, args) for name in contest}
    seconds = in_turns(contest, rounds)
    first = seconds[next(iter(contest))]
    return [
        {
            "what": name,
            "value": first_calls[name][0],
            "seconds": seconds[name],
            "extra MB": first_calls[name][1] / 2**20,
            "times the first": seconds[name] / first,
        }
        for name in contest
    ]


def first_call(name: str, args: argparse.Namespace) -> tuple[float, int]:
    """The value and the extra memory of a call."""
    top, classes = contests(args)
    values: list[float] = []
    memory = peak_bytes(lambda: values.append(float((top | classes)[name]())))
    return values[0], memory


def main() -> None:
    parser = parser_of(__doc__ or "", rounds=5)
    parser.add_argument(
        "--slow", action="store_true", help="with torch-uncertainty's classwise ECE"
    )
    args = parser.parse_args()
    prepare(args)
    top, classes = contests(args)
    report(args, measured(top, args.rounds, args) + measured(classes, 1, args))


if __name__ == "__main__":
    main()
