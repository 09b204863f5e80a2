"""Wrong input gets a clear error, extreme input the right number; bootstrap and command line."""

import csv
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from coop_cmp import metrics
from coop_cmp.cli.panel import load_samples
from coop_cmp.errors import UserError
from coop_cmp.metrics import Samples, Weighted, bootstrap, calibration_report
from coop_cmp.metrics.records import check_keys
from coop_cmp.runs.outputs import write_predictions
from tests.commands import command
from tests.made_runs import write_run
from tests.metrics.test_metrics import made

main = command("metrics", handled=True)

ROOT = Path(__file__).parents[2]
GOOD = torch.tensor([[0.7, 0.3], [0.2, 0.8]])


@pytest.mark.parametrize(
    ("probs", "labels", "message"),
    [
        (torch.tensor([[math.nan, 0.5], [0.2, 0.8]]), [0, 1], "row 0 .*sum nan"),
        (torch.tensor([[0.2, 0.8], [1.2, -0.2]]), [0, 1], "row 1 .*smallest value -0.2"),
        (torch.tensor([[0.2, 0.8], [0.9, 0.8]]), [0, 1], "row 1 .*sum 1.7.*from_logits"),
        (torch.tensor([[3.0, -1.0]]), [0], "from_logits=True"),
        (torch.zeros(0, 2), [], r"at least one sample.*\[0, 2\]"),
        (torch.zeros(2, 0), [0, 0], "at least one sample and one class"),
        (torch.tensor([0.3, 0.7]), [0, 1], r"\[N, C\].*both columns"),
        (GOOD, [0, 1, 1], r"labels: expected shape \[2\].*\[3\]"),
        (GOOD, [[0], [1]], r"labels: expected shape \[2\]"),
        (GOOD, [0, 2], "from 0 to 1, got values from 0 to 2"),
        (GOOD, [-1, 1], "from 0 to 1, got values from -1 to 1"),
        (GOOD, [0.0, 1.0], "integer class indices"),
        (torch.ones(2, 2, dtype=torch.int64), [0, 1], "floating-point"),
    ],
)
def test_wrong_predictions_and_labels_are_named(probs, labels, message):
    with pytest.raises(UserError, match=message):
        calibration_report(probs, torch.tensor(labels))


def test_wrong_options_are_named():
    labels = torch.tensor([0, 1])
    with pytest.raises(UserError, match=r"n_bins.*0"):
        metrics.ece(GOOD, labels, 0)
    with pytest.raises(UserError, match=r"n_bins.*2.5"):
        metrics.ece(GOOD, labels, 2.5)
    with pytest.raises(UserError, match=r"closed.*both"):
        metrics.ece(GOOD, labels, closed="both")
    with pytest.raises(UserError, match='did you mean "ece"'):
        calibration_report(GOOD, labels, keys=["eec"])
    with pytest.raises(UserError, match="resamples"):
        bootstrap(Samples(GOOD, labels), resamples=0)
    with pytest.raises(UserError, match="level"):
        bootstrap(Samples(GOOD, labels), level=95)


def test_one_class_is_always_right():
    report = calibration_report(torch.ones(5, 1), torch.zeros(5, dtype=torch.int64))
    assert math.isnan(report.pop("auroc"))
    ones = {"accuracy", "confidence", "perplexity", "sharpness"}
    assert report == {key: 1.0 if key in ones else 0.0 for key in report}


def test_numpy_arrays_and_float16_probabilities_are_taken():
    logits, labels = made(400, 50)
    probs = logits.softmax(1)
    expected = metrics.ece(probs, labels)
    assert metrics.ece(probs.numpy(), labels.numpy().astype(np.int32)) == expected
    assert metrics.ece(probs.half(), labels) == pytest.approx(expected, abs=5e-3)


@pytest.mark.skipif(sys.platform != "linux", reason="the high-water mark is Linux's")
def test_a_large_test_set_needs_little_memory_beside_itself():
    # In a process of its own: memory that earlier tests have freed would hide the growth.
    script = """
import pathlib, re, torch
from coop_cmp.metrics import calibration_report

def kilobytes(field):
    return int(re.search(field + r":\\s+(\\d+)", pathlib.Path("/proc/self/status").read_text())[1])

torch.set_num_threads(1)
logits, labels = torch.randn(20_000, 1000), torch.zeros(20_000, dtype=torch.int64)
keys = ["ece", "ace", "nll", "brier", "classwise_ece"]
calibration_report(logits[:10], labels[:10], from_logits=True, keys=keys)
pathlib.Path("/proc/self/clear_refs").write_text("5")
before = kilobytes("VmRSS")
calibration_report(logits, labels, from_logits=True, keys=keys)
print(kilobytes("VmHWM") - before)
"""
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert int(done.stdout) < 30 * 1024  # the logits alone are 76 MB, in float64 153 MB


def test_coverage_counts_whole_samples():
    # Ten samples, the two least confident wrong: the eight kept at 80 % have no error.
    confidence = torch.linspace(0.5, 0.95, 10, dtype=torch.float64)
    probs = torch.stack([confidence, 1 - confidence], 1)
    samples = Samples(probs, torch.tensor([1, 1] + [0] * 8))
    risks = [Weighted(samples).risk_at(coverage).item() for coverage in (0.8, 0.9, 1.0)]
    assert risks == pytest.approx([0, 1 / 9, 0.2])


def test_the_interval_of_the_accuracy_is_that_of_a_binomial():
    logits, labels = made(400)
    samples = Samples(logits, labels, from_logits=True)
    interval = bootstrap(samples, ["accuracy"], resamples=2000)["accuracy"]
    deviation = math.sqrt(interval.value * (1 - interval.value) / 400)
    assert interval.low == pytest.approx(interval.value - 1.96 * deviation, abs=0.006)
    assert interval.high == pytest.approx(interval.value + 1.96 * deviation, abs=0.006)


def test_every_metric_has_an_interval_that_a_seed_repeats():
    logits, labels = made(60, 4)
    samples = Samples(logits, labels, from_logits=True)
    first = bootstrap(samples, resamples=20, seed=3)
    assert set(first) == set(check_keys(None))
    assert all(interval.low <= interval.high for interval in first.values())
    assert bootstrap(samples, resamples=20, seed=3) == first
    assert bootstrap(samples, resamples=20, seed=4) != first


def test_a_paired_difference_is_narrower_than_the_two_intervals():
    logits, labels = made(400)
    sharp = Samples(logits, labels, from_logits=True)
    flat = Samples(logits * 0.6, labels, from_logits=True)
    keys = ["accuracy", "ece", "nll"]
    paired = bootstrap(flat, keys, minus=sharp, resamples=200)
    assert paired["accuracy"] == metrics.Interval(0.0, 0.0, 0.0)
    assert not paired["accuracy"].excludes_zero
    assert paired["ece"].value == pytest.approx(
        metrics.ece(logits * 0.6, labels, from_logits=True)
        - metrics.ece(logits, labels, from_logits=True)
    )
    assert paired["nll"].high < 0
    assert paired["nll"].excludes_zero
    alone = bootstrap(sharp, keys, resamples=200)["nll"]
    assert paired["nll"].high - paired["nll"].low < alone.high - alone.low


def test_a_comparison_needs_the_same_test_set():
    logits, labels = made(50)
    first = Samples(logits, labels, from_logits=True)
    second = Samples(logits, labels.flip(0), from_logits=True)
    with pytest.raises(UserError, match="same test set"):
        bootstrap(first, ["ece"], minus=second)


def stored(folder, scale=1.0):
    logits, labels = made(200, 4)
    path = folder / f"predictions{scale}.npz"
    write_predictions(path, logits * scale, labels, list("abcd"))
    return str(path)


def test_the_command_prints_the_panel_and_its_convention(tmp_path, capsys):
    path = stored(tmp_path)
    assert main([path, "--bins", "15", "--closed", "left"]) == 0
    out = capsys.readouterr().out
    samples = load_samples(path)
    value = metrics.ece(samples.matrix, samples.labels, 15, "left", from_logits=True)
    assert f"{100 * value:.2f}%" in next(
        line for line in out.splitlines() if line.startswith("ece")
    )
    assert "15 equal-width bins [lo, hi)" in out
    assert all(f"\n{key} " in out for key in check_keys(None))


def test_the_command_compares_two_files(tmp_path, capsys):
    paths = [stored(tmp_path), stored(tmp_path, 0.5)]
    assert main([*paths, "--keys", "nll", "accuracy"]) == 0
    nll, accuracy = capsys.readouterr().out.splitlines()[1:3]
    assert nll.endswith("*")
    assert accuracy.split()[-3:] == ["+0.00%", "[+0.00%,", "+0.00%]"]


def test_probabilities_and_csv_files_of_others_are_read(tmp_path):
    logits, labels = made(30, 3)
    probs = logits.softmax(1)
    np.savez(tmp_path / "other.npz", probabilities=probs.numpy(), y_true=labels.numpy())
    with open(tmp_path / "other.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["cat", "dog", "label", "owl"])
        for row, label in zip(probs.tolist(), labels.tolist(), strict=True):
            writer.writerow([*row[:2], label, row[2]])
    expected = Samples(probs, labels)
    for samples in (
        load_samples(str(tmp_path / "other.npz")),
        load_samples(str(tmp_path / "other.csv"), "probs"),
    ):
        assert torch.equal(samples.confidence, expected.confidence)
        assert torch.equal(samples.labels, labels)


@pytest.mark.parametrize(
    ("name", "content", "kind", "message"),
    [
        ("a.csv", "label,a\n0,1\n", None, "--kind"),
        ("a.csv", "", "probs", "column called label"),
        ("a.csv", "label,a,b\n", "probs", "at least one sample"),
        ("a.csv", "label,a,b\n7,0.5,0.5\n", "probs", "a.csv: labels"),
        ("a.npz", "not an archive", None, "a.npz: not a readable npz"),
    ],
)
def test_unreadable_files_are_named(tmp_path, capsys, name, content, kind, message):
    path = tmp_path / name
    path.write_text(content)
    assert main([str(path), *(["--kind", kind] if kind else [])]) == 2
    assert message in capsys.readouterr().err


def test_an_npz_without_scores_is_refused(tmp_path):
    np.savez(tmp_path / "no.npz", labels=np.zeros(3))
    with pytest.raises(UserError, match="one array of scores"):
        load_samples(str(tmp_path / "no.npz"))


def test_a_run_whose_predictions_changed_is_refused(tmp_path):
    write_run(tmp_path, {}, np.eye(2), np.arange(2), "ab")
    before = load_samples(str(tmp_path))
    assert before.correct.tolist() == [1, 1]
    write_predictions(tmp_path / "predictions.npz", np.eye(2)[::-1], np.arange(2), ["a", "b"])
    with pytest.raises(UserError, match="changed since"):
        load_samples(str(tmp_path))


def test_a_run_directory_and_class_names_as_labels(tmp_path):
    probs, labels = np.array([[0.9, 0.1], [0.2, 0.8], [0.7, 0.3]]), np.array([0, 1, 1])
    np.savez(tmp_path / "predictions.npz", probs=probs, labels=labels)
    by_run = load_samples(str(tmp_path))
    rows = ["label,cat,dog", "cat,0.9,0.1", "dog,0.2,0.8", "1,0.7,0.3"]
    (tmp_path / "p.csv").write_text("\n".join(rows))
    by_name = load_samples(str(tmp_path / "p.csv"), "probs")
    for samples in (by_run, by_name):
        assert samples.correct.tolist() == [1, 1, 0]
    (tmp_path / "p.csv").write_text("label,cat,dog\nbird,0.9,0.1")
    with pytest.raises(UserError, match="bird"):
        load_samples(str(tmp_path / "p.csv"), "probs")
