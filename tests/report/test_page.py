"""The page's numbers are the frame's, and what it says of missing and mixed runs is true."""

from __future__ import annotations

import base64
import io
import json
import shlex
from pathlib import Path
from statistics import mean

import numpy as np
import pytest
from PIL import Image

from coop_cmp.errors import UserError
from coop_cmp.report.groups import grouped
from coop_cmp.report.page.build import SCRIPTS, build
from coop_cmp.report.page.details import (
    TEMPERATURES,
    at_temperatures,
    class_gaps,
    pictures,
    training,
)
from coop_cmp.report.page.missing import find_missing, last_words, missing_seeds
from coop_cmp.report.page.records import mixtures, warnings
from coop_cmp.report.page.rows import rows_of
from coop_cmp.runs import Comparer, circumstances, load
from coop_cmp.runs.compare import corrected
from coop_cmp.runs.frame import find_runs
from coop_cmp.runs.identity import Identity, claim, read_command
from coop_cmp.runs.outputs import Predictions
from coop_cmp.runs.stored import StoredRun
from tests.commands import command
from tests.made_runs import SETTINGS
from tests.page_runs import CLASSES, NASTY, settings_of, store_many, store_run

main = command("report")


@pytest.fixture(scope="module")
def output(tmp_path_factory):
    folder = tmp_path_factory.mktemp("output")
    store_many(folder)
    return folder


@pytest.fixture(scope="module")
def rows(output):
    return rows_of(find_runs(output)[0])


def find(rows, **labels):
    return next(r for r in rows if all(r.summary()[k] == v for k, v in labels.items()))


def test_a_row_has_the_means_of_the_frame_and_the_difference_of_the_comparer(output, rows):
    frame = load(output)
    twin = find(rows, term="CMP", shots=4, **{"lambda": 0.5})
    runs = frame[(frame["lambda"] == 0.5) & (frame["shots"] == 4)]
    plain = frame[(frame["trainer"] == "CoOp") & (frame["shots"] == 4)]
    plain = plain[(plain["dataset"] == "Digits") & (plain["classes"] == "all")]
    assert twin.values["ece"].estimate == pytest.approx(runs["ece"].mean())
    assert twin.summary()["values"]["ece"][3] == pytest.approx(runs["ece"].std(), rel=1e-8)
    pairs = list(zip(runs.to_dict("records"), plain.to_dict("records"), strict=True))
    assert twin.changes["nll"] == Comparer().compare(pairs, "nll")
    assert rows[twin.baseline].group.row["group"] == plain["group"].iloc[0]


def test_the_interval_of_a_value_holds_seeds_and_images(rows):
    value = find(rows, trainer="CoOp", shots=8).values["accuracy"]
    seeds = [fact["accuracy"] for fact in find(rows, trainer="CoOp", shots=8).group.rows]
    # Three seeds that err on other images, as these made-up ones do, are as good as 600 images.
    over_images = value.estimate * (1 - value.estimate) / 600
    half = (value.high - value.low) / 2
    # Between that of the images alone and both added up with Student's factor for two degrees.
    assert half > 1.96 * np.sqrt(over_images) * 0.8
    assert half < 4.31 * np.sqrt(over_images + np.var(seeds, ddof=1) / 3) * 1.2
    zero_shot = find(rows, trainer="ZeroshotCLIP").values["accuracy"]
    assert zero_shot.low < zero_shot.estimate < zero_shot.high


def test_families_join_what_differs_in_one_setting_alone(rows):
    weak, strong = (find(rows, shots=4, **{"lambda": lam}) for lam in (0.01, 0.5))
    later = find(rows, shots=8, **{"lambda": 0.01})
    assert weak.family("lambda") == strong.family("lambda") != later.family("lambda")
    assert weak.family("shots") == later.family("shots") != strong.family("shots")
    assert find(rows, classes="base").family("classes") == find(rows, classes="new").family(
        "classes"
    )


def test_holm_takes_the_rows_in_one_place_together(rows):
    weak, strong = (find(rows, shots=4, **{"lambda": lam}) for lam in (0.01, 0.5))
    expected = [change.p for change in corrected([weak.changes["ece"], strong.changes["ece"]])]
    assert [weak.together["ece"], strong.together["ece"]] == expected


def test_far_apart_logits_stay_finite_at_any_temperature():
    predictions = Predictions(np.array([[3e4, -3e4]], np.float32), np.array([1]), ["a", "b"])
    (cold,) = at_temperatures(predictions, (TEMPERATURES[0],))
    assert cold.nll.isfinite().all()
    assert float(cold.confidence) == 1


def test_class_gaps_are_of_the_predictions_of_each_class(rows):
    row = find(rows, trainer="ZeroshotCLIP")
    samples = row.group.samples
    gaps = class_gaps(samples, CLASSES)
    assert sum(one["predictions"] for one in gaps) == len(samples)
    assert {one["name"] for one in gaps} == {"ant (0)", NASTY, "<b>bee</b>", "=1+1", "ant (4)"}
    bee = next(one for one in gaps if one["name"] == "<b>bee</b>")
    chosen = samples.predicted == 2
    assert bee["accuracy"] == pytest.approx(float(samples.correct[chosen].mean()), abs=1e-4)


def test_the_most_confident_mistakes_are_those_of_readable_images(rows, tmp_path):
    group = find(rows, trainer="CoOp", shots=4, dataset="Digits", classes="all").group
    by_image = {}
    for run in group.runs:
        said = run.outcomes
        for number, label, predicted, sure in zip(
            said.images.tolist(), said.labels, said.predicted, said.confidence, strict=True
        ):
            if label != predicted:
                by_image[number] = max((sure, label, predicted), by_image.get(number, (0, 0, 0)))
    first, second, third = sorted(by_image, key=lambda number: -by_image[number][0])[:3]
    Image.new("RGB", (300, 100), "red").save(tmp_path / "red.png")
    (tmp_path / "broken.png").write_bytes(b"no picture")
    names = {first: "red.png", second: "broken.png", third: "red.png"}
    found = pictures(group, {k: str(tmp_path / v) for k, v in names.items()})["mistakes"]
    assert [one["confidence"] for one in found] == [
        round(by_image[number][0], 4) for number in (first, third)
    ]
    assert found[0]["label"] == CLASSES[by_image[first][1]]
    assert found[0]["predicted"] == CLASSES[by_image[first][2]]
    content = base64.b64decode(found[0]["picture"].removeprefix("data:image/jpeg;base64,"))
    with Image.open(io.BytesIO(content)) as small:
        assert small.size == (96, 32)


def test_training_curves_are_means_over_the_seeds_and_the_epochs_of_all():
    first = {"loss": [[1, 4.0], [2, 2.0]], "acc": [[1, 50.0]]}
    records = [{"fit": {"curves": curves}} for curves in (first, {"loss": [[2, 1.0]]})]
    runs = [StoredRun(Path("predictions.npz"), record) for record in records]
    assert training(runs) == {"loss": [[2, 1.5]]}
    assert training([StoredRun(Path("predictions.npz"), {"fit": {}})]) == {}


def test_without_logits_there_is_one_temperature_and_without_outcomes_none(tmp_path):
    store_run(tmp_path / "a", settings_of("CoOp", 1))
    (tmp_path / "a" / "predictions.npz").unlink()
    (row,) = rows_of(find_runs(tmp_path)[0])
    found = pictures(row.group, {})
    assert found["temperatures"]["temperature"] == [1.0]
    assert "no temperatures" in found["problem"]
    (tmp_path / "a" / "outcomes.npz").unlink()
    (row,) = rows_of(find_runs(tmp_path)[0])
    assert "outcomes.npz" in pictures(row.group, {})["problem"]
    assert "no interval" in row.problems[0]
    assert row.values["ece"].estimate == row.group.row["ece"]


def test_other_versions_and_namesakes_are_told(tmp_path, monkeypatch):
    for place, version, seed, more in (
        ("a/seed1", "2", 1, {}),
        ("a/seed2", "1", 2, {}),
        ("b", "2", 1, {"OPTIM.LR": 0.5}),
    ):
        monkeypatch.setattr(circumstances, "versions", lambda version=version: {"torch": version})
        store_run(tmp_path / place, settings_of("CoOp", seed, **more))
    rows = rows_of(find_runs(tmp_path)[0])
    assert mixtures(rows) == [["versions.torch"], []]
    told = warnings(rows)
    assert told[0] == "versions.torch is not the same for all runs: 2 (2 runs), 1 (1 run)"
    assert told[1].endswith("differ in OPTIM.LR")


def test_a_seed_that_only_others_have_is_missing(tmp_path):
    for seed in (1, 2):
        store_run(tmp_path / f"a/seed{seed}", settings_of("CoOp", seed))
    store_run(tmp_path / "b/seed1", settings_of("KgCoOp", 1))
    store_run(tmp_path / "zero", settings_of("ZeroshotCLIP", 1))
    rows = rows_of(find_runs(tmp_path)[0])
    groups = [row.group for row in rows]
    assert [(g.row["trainer"], seed) for g, seed in missing_seeds(groups)] == [("KgCoOp", 2)]
    (missing,) = find_missing(None, groups, [])
    assert missing["directory"] == str(tmp_path / "b/seed2")
    assert missing["command"] == "", "nobody knows how it was called"


def called(monkeypatch, *words):
    """The process was called like this."""
    monkeypatch.setattr("sys.argv", list(words))
    monkeypatch.setattr("sys.orig_argv", ["python", *words])


def test_a_broken_or_unfinished_run_is_missing_with_its_last_words(tmp_path, monkeypatch):
    folder = tmp_path / "digits/CoOp/GlyphCLIP_4shots/seed1"
    words = ["train.py", "--output-dir", str(folder), "OPTIM.LR", "0.5"]
    called(monkeypatch, *words)
    claim(folder, Identity({**SETTINGS, "SEED": 1}))
    (folder / "sweep.log").write_text("epoch 1\nerror: no space <left>\n\n")
    store_run(tmp_path / "a", settings_of("CoOp", 1))
    store_run(tmp_path / "b", settings_of("CoOp", 2))
    (tmp_path / "b" / "results.json").write_text("{")
    runs, problems = find_runs(tmp_path)
    broken, unfinished = find_missing(tmp_path, grouped(runs), problems)
    assert broken["directory"] == str(tmp_path / "b")
    assert "not a JSON file" in broken["reason"]
    assert unfinished["reason"] == "not finished: error: no space <left>"
    assert shlex.split(unfinished["command"]) == ["python", *words]
    assert last_words(str(tmp_path / "a")) == "it left no log"


def test_a_forked_run_remembers_its_own_command(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["train.py", "--seed", "3"])
    monkeypatch.setattr("sys.orig_argv", ["python", "-m", "coop_cmp.cli.sweep", "digits"])
    claim(tmp_path, Identity(SETTINGS))
    assert read_command(tmp_path)[1:] == ["train.py", "--seed", "3"]


def test_nothing_from_files_becomes_markup(output):
    text = build(find_runs(output)[0], NASTY, intervals=False)
    own = text[text.index("<body>") : text.index('<script type="application/json"')]
    assert "<img" not in own
    assert "<script" not in own
    data = text.split('id="data">')[1].split("</script>")[0]
    assert "<" not in data
    assert json.loads(data)["title"] == NASTY
    assert text.count("<script>") == 1 + len(SCRIPTS)  # the charting library and ours
    assert 'http-equiv="Content-Security-Policy" content="default-src \'none\';' in text


def test_the_command_writes_the_page_and_says_how_large(output, tmp_path, capsys):
    page = tmp_path / "page.html"
    assert main([str(output), "--to", str(page), "--no-intervals"]) == 0
    assert "28 runs" in capsys.readouterr().out.replace(str(page), "")
    assert page.stat().st_size < 7e6
    with pytest.raises(UserError, match="no complete runs"):
        main([str(tmp_path)])


def test_values_without_intervals_are_plain_means(output):
    row = find(rows_of(find_runs(output)[0], intervals=False), trainer="CoOp", shots=8)
    assert row.summary()["values"]["ece"][:3] == [
        pytest.approx(mean(fact["ece"] for fact in row.group.rows), abs=1e-6),
        None,
        None,
    ]
