"""What a row's runs said about each image, reduced to what its pictures need."""

from __future__ import annotations

import base64
import io
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import mean
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from coop_cmp.errors import UserError
from coop_cmp.metrics import Samples
from coop_cmp.metrics.bins import Closed
from coop_cmp.metrics.ranked import risk_coverage_curve
from coop_cmp.metrics.samples import BLOCK_ELEMENTS
from coop_cmp.metrics.weighted import width_bins
from coop_cmp.report.groups import Group
from coop_cmp.runs.outputs import Outcomes, Predictions
from coop_cmp.runs.stored import StoredRun

TEMPERATURES = tuple(2 ** (step / 10) for step in range(-20, 21))
"""From a quarter to four, with 1 in the middle."""
CURVE_POINTS = 101
MOST_CLASSES = 30
MOST_MISTAKES = 12
SIDE = 96  # pixels of a thumbnail


def pictures(group: Group, files: Mapping[int, str]) -> dict[str, Any]:
    """Return the numbers of a row's pictures, pooled over its seeds; ready for JSON.

    Where logits are gone the temperatures are missing, and where outcomes are gone, everything.

    Args:
        files: The test images by their numbers, as far as they are known.
    """
    curves = training(group.runs)
    try:
        outcomes = [run.outcomes for run in group.runs]
    except UserError as error:
        return {"problem": str(error), "training": curves}
    arrays = zip(*(vars(one).values() for one in outcomes), strict=True)
    everything = Outcomes(*map(np.concatenate, arrays))
    pooled = everything.samples()
    try:
        names, cooled = group.runs[0].predictions.classnames, temperatures(group.runs)
        problem = ""
    except UserError as error:
        names, problem = [], f"no temperatures: {error}"
        cooled = _summed([[one.samples() for one in outcomes]], group.bins)
        cooled = {"temperature": [1.0], **cooled}
    return {
        "problem": problem,
        "images": len(pooled),
        "temperatures": cooled,
        "risk": risk(pooled),
        "classes": class_gaps(pooled, names),
        "mistakes": mistakes(everything, names, files),
        "training": curves,
    }


def training(runs: Sequence[StoredRun]) -> dict[str, list[list[float]]]:
    """What the runs recorded in each epoch, as [epoch, mean over the runs], by name."""
    curves = [dict(run.record["fit"].get("curves", {})) for run in runs]
    names = [name for name in curves[0] if all(name in other for other in curves)]
    found: dict[str, list[list[float]]] = {}
    for name in names:
        by_run = [dict(map(tuple, curve[name])) for curve in curves]
        common = [epoch for epoch in by_run[0] if all(epoch in other for other in by_run)]
        found[name] = [[epoch, mean(other[epoch] for other in by_run)] for epoch in common]
    return found


def mistakes(
    outcomes: Outcomes, names: Sequence[str], files: Mapping[int, str]
) -> list[dict[str, Any]]:
    """The most confident mistakes whose images can be read, each image once, with its picture."""
    wrong = np.flatnonzero(outcomes.predicted != outcomes.labels)
    order = wrong[np.argsort(-outcomes.confidence[wrong], kind="stable")]
    found: dict[int, dict[str, Any]] = {}
    for k in order:
        number = int(outcomes.images[k])
        if number in found or not (picture := thumbnail(files.get(number, ""))):
            continue
        label, predicted = (int(of[k]) for of in (outcomes.labels, outcomes.predicted))
        found[number] = {
            "picture": picture,
            "label": names[label] if names else str(label),
            "predicted": names[predicted] if names else str(predicted),
            "confidence": round(float(outcomes.confidence[k]), 4),
            "file": files[number],
        }
        if len(found) == MOST_MISTAKES:
            break
    return list(found.values())


def thumbnail(file: str) -> str:
    """An image made small, as an address that holds it; "" if it cannot be read."""
    try:
        with Image.open(file) as image:
            small = image.convert("RGB")
            small.thumbnail((SIDE, SIDE))
    except (OSError, ValueError, Image.DecompressionBombError):
        return ""
    content = io.BytesIO()
    small.save(content, "JPEG", quality=85)
    return f"data:image/jpeg;base64,{base64.b64encode(content.getvalue()).decode()}"


def temperatures(runs: Sequence[StoredRun]) -> dict[str, Any]:
    """Bins pooled over runs, and ECE and NLL as means over runs, at each of ``TEMPERATURES``."""
    by_run = [at_temperatures(run.predictions, TEMPERATURES) for run in runs]
    levels = zip(*by_run, strict=True)
    return {"temperature": [round(t, 4) for t in TEMPERATURES], **_summed(levels, runs[0].bins)}


def at_temperatures(predictions: Predictions, levels: Sequence[float]) -> list[Samples]:
    """The top labels of all images with their logits divided by each temperature."""
    if predictions.scores != "softmax":
        raise UserError("they are defined for softmax scores")
    logits, labels = torch.from_numpy(predictions.logits), torch.from_numpy(predictions.labels)
    count = len(labels)
    table = torch.empty(2, len(levels), count, dtype=torch.float64)
    predicted = logits.argmax(1)
    step = max(1, BLOCK_ELEMENTS // logits.shape[1])
    for start in range(0, count, step):
        rows = slice(start, start + step)
        block = logits[rows].double()
        block -= block.gather(1, predicted[rows, None])  # [B, C], 0 for the predicted class
        true = block.gather(1, labels[rows, None])[:, 0]
        for k, level in enumerate(levels):
            normaliser = (block / level).exp_().sum(1).log()
            table[0, k, rows] = (-normaliser).exp()
            table[1, k, rows] = normaliser - true / level
    return [
        Samples.from_outcomes(labels, predicted, confidence, nll)
        for confidence, nll in zip(*table, strict=True)
    ]


def _summed(levels: Iterable[Sequence[Samples]], bins: tuple[int, Closed]) -> dict[str, list[Any]]:
    """For each level the runs' bins added up, and the means of their errors."""
    names = ("count", "correct", "confidence", "ece", "nll")
    found: dict[str, list[Any]] = {name: [] for name in names}
    for runs in levels:
        parts = [width_bins(samples, *bins) for samples in runs]
        total = sum(parts[1:], parts[0])
        found["count"].append([int(value) for value in total.count])
        found["correct"].append([int(value) for value in total.correct_sum])
        found["confidence"].append(_rounded(total.confidence_sum, 2))
        found["ece"].append(round(float(np.mean([float(part.ece) for part in parts])), 6))
        nll = float(np.mean([run.nll.mean() for run in runs]))
        found["nll"].append(None if np.isnan(nll) else round(nll, 5))
    return found


def _rounded(values: Tensor, digits: int) -> list[float]:
    return [round(value, digits) for value in values.tolist()]


def risk(samples: Samples) -> dict[str, list[float]]:
    """Coverage and the error rate of what is covered, at some hundred points."""
    coverage, error = risk_coverage_curve(samples)
    chosen = torch.linspace(0, len(coverage) - 1, min(CURVE_POINTS, len(coverage))).round().long()
    return {"coverage": _rounded(coverage[chosen], 4), "error": _rounded(error[chosen], 5)}


def class_gaps(samples: Samples, names: Sequence[str]) -> list[dict[str, Any]]:
    """For predictions of each class their mean confidence and how many are right.

    The classes with the largest sum of differences come first.
    """
    count = torch.bincount(samples.predicted)
    sure = torch.bincount(samples.predicted, samples.confidence)
    right = torch.bincount(samples.predicted, samples.correct)
    order = (sure - right).abs().argsort(descending=True, stable=True).tolist()
    labels = _distinct(names) if names else [str(k) for k in range(len(count))]
    return [
        {
            "name": labels[k],
            "predictions": int(count[k]),
            "confidence": round(float(sure[k] / count[k]), 4),
            "accuracy": round(float(right[k] / count[k]), 4),
        }
        for k in order[:MOST_CLASSES]
        if count[k]
    ]


def _distinct(names: Sequence[str]) -> list[str]:
    """The names, with their numbers where two are the same; a chart would merge them."""
    times = Counter(names)
    return [f"{name} ({k})" if times[name] > 1 else name for k, name in enumerate(names)]
