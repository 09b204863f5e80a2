"""The figures show the data: heights are checked against the metrics, texts against each other."""

import re
import xml.etree.ElementTree as ElementTree
from itertools import combinations

import numpy as np
import pytest
import torch
from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from coop_cmp.errors import UserError
from coop_cmp.metrics import Samples, calibration_report, reliability_bins
from coop_cmp.report import figures, plots
from coop_cmp.report.groups import Group, find_predictions, grouped, paired, styles
from coop_cmp.report.summary import mean_text
from coop_cmp.runs.outputs import Predictions, write_predictions
from coop_cmp.runs.stored import StoredRun
from tests.commands import command
from tests.made_runs import SETTINGS, write_run

main = command("figures", handled=True)

NAMES = [str(i) for i in range(10)]


def outputs(n=400, classes=10, scale=3.0, seed=0):
    """Logits and labels; the larger the scale, the more over-confident."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % classes
    logits = rng.normal(size=(n, classes))
    logits[np.arange(n), labels] += 1.6
    return (logits * scale).astype(np.float32), labels


def made_run(
    tmp_path, scale=3.0, names=None, n=400, penalty=None, form="ratio", metrics=None, **fields
):
    """A stored run in a directory of its own; fields are settings, trainer, shots or seed."""
    shorter = {"trainer": "TRAINER.NAME", "shots": "DATASET.NUM_SHOTS", "seed": "SEED"}
    settings = {shorter.get(k, k.replace("_", ".")): value for k, value in fields.items()}
    settings = {"OPTIM.LR": 0.1, **settings}
    if penalty is not None:
        settings |= {"TRAINER.CMP.LAMBDA": penalty, "TRAINER.CMP.FORM": form}
    logits, labels = outputs(n, len(names or NAMES), scale)
    place = "_".join(str(value) for value in {**SETTINGS, **settings}.values())
    folder = tmp_path / settings.get("TRAINER.NAME", "CoOp") / place
    more = {"metrics": metrics} if metrics else {}
    return StoredRun.of(write_run(folder, settings, logits, labels, names or NAMES, **more))


def alone(*runs):
    """Each run as a group of its own."""
    return [Group([run]) for run in runs]


def curves_of(groups, over):
    return figures.curve_figure(groups, over, "Digits", styles(groups))


@pytest.fixture
def pair(tmp_path):
    twin = made_run(tmp_path, 1.2, trainer="CoOp_CMP", penalty=0.01)
    return [made_run(tmp_path), twin]


def bars(axes, label):
    """(left, bottom, width, height) of the bars of one label by bin, of ten."""
    found = [patch for bars in axes.containers if bars.get_label() == label for patch in bars]
    boxes = [(p.get_x(), p.get_y(), p.get_width(), p.get_height()) for p in found]
    return {round(10 * box[0]): box for box in boxes}


@pytest.mark.parametrize("scale", [0.3, 1.2, 3.0])
def test_the_bars_of_a_reliability_diagram_are_the_bins(scale):
    logits, labels = outputs(scale=scale)
    bins = reliability_bins(logits, labels, 10, from_logits=True)
    axes = Figure().subplots()
    plots.draw_reliability(axes, bins)
    filled = {k for k in range(10) if bins.count[k]}
    assert 0 < len(filled) < 10
    kinds = ("accuracy", "gap: over-confident", "gap: under-confident")
    accuracy, over, under = (bars(axes, kind) for kind in kinds)
    assert set(accuracy) == filled
    assert set(over) | set(under) == filled
    assert not set(over) & set(under)
    for k in filled:
        mean, hit = float(bins.confidence[k]), float(bins.accuracy[k])
        assert accuracy[k] == pytest.approx((k / 10, 0, 0.1, hit))
        assert (k in over) == (mean > hit)
        expected = (k / 10, min(mean, hit), 0.1, abs(mean - hit))
        assert (over | under)[k] == pytest.approx(expected)


def test_the_histogram_below_shows_the_share_of_every_bin():
    logits, labels = outputs()
    bins = reliability_bins(logits, labels, from_logits=True)
    axes = Figure().subplots()
    plots.draw_counts(axes, bins)
    assert [patch.get_height() for patch in axes.patches] == pytest.approx(bins.share * 100)
    accuracy, confidence = (line.get_xdata()[0] for line in axes.lines)
    report = calibration_report(logits, labels, from_logits=True)
    assert (accuracy, confidence) == pytest.approx((report["accuracy"], report["confidence"]))


def test_correct_and_incorrect_predictions_are_counted_apart():
    logits, labels = outputs()
    axes = Figure().subplots()
    plots.draw_confidence(axes, Samples(logits, labels, from_logits=True))
    probs = torch.tensor(logits).double().softmax(1)
    confidence, predicted = probs.max(1)
    for place, right in enumerate((True, False)):
        chosen = confidence[(predicted == torch.tensor(labels)) == right].numpy()
        expected = np.histogram(chosen, np.linspace(0, 1, 11))[0] / 4  # percent of 400
        heights = [patch.get_height() for patch in axes.containers[place]]
        assert heights == pytest.approx(expected)
        assert f"mean {100 * chosen.mean():.1f}%" in axes.get_legend_handles_labels()[1][place]


def test_the_risk_coverage_curve_ends_at_the_error_rate_and_stays_above_the_ideal():
    logits, labels = outputs()
    samples = Samples(logits, labels, from_logits=True)
    axes = Figure().subplots()
    plots.draw_risk_coverage(axes, {"CoOp": samples})
    risk, ideal = (np.asarray(line.get_ydata()) for line in axes.lines[:2])
    error = 100 * (1 - float(samples.correct.mean()))
    assert risk[-1] == pytest.approx(error)
    assert ideal[-1] == pytest.approx(error)
    assert (risk >= ideal - 1e-9).all()
    aurc = calibration_report(logits, labels, from_logits=True, keys=["aurc"])["aurc"]
    assert f"AURC {100 * aurc:.2f}%" in axes.get_legend_handles_labels()[1][0]


def test_classes_are_sorted_by_their_ece_and_their_mean_is_the_classwise_ece():
    logits, labels = outputs()
    axes = Figure().subplots()
    named = {"CoOp": Samples(logits, labels, from_logits=True)}
    plots.draw_class_ece(axes, named, NAMES)
    widths = [patch.get_width() for patch in axes.patches]
    assert widths == sorted(widths, reverse=True)
    (expected,) = calibration_report(
        logits, labels, from_logits=True, keys=["classwise_ece"]
    ).values()
    assert np.mean(widths) == pytest.approx(100 * expected)
    plots.draw_class_ece(axes := Figure().subplots(), named, NAMES, most=3)
    assert [patch.get_width() for patch in axes.patches] == widths[:3]
    assert axes.get_ylabel() == "the 3 largest of 10 classes"


def test_figure_one_shows_the_mean_probabilities_of_one_class(pair):
    drawn = figures.figure_one(*alone(*pair), class_index=7)
    assert len(drawn.axes) == 4
    for axes, run in zip(drawn.axes[:2], pair, strict=True):
        rows = run.predictions.labels == 7
        probs = torch.tensor(run.predictions.logits[rows]).double().softmax(1)
        assert [patch.get_height() for patch in axes.patches] == pytest.approx(100 * probs.mean(0))
        assert [label.get_text() for label in axes.get_xticklabels()] == NAMES
        colours = {patch.get_facecolor() for k, patch in enumerate(axes.patches) if k != 7}
        assert axes.patches[7].get_facecolor() not in colours
    assert "CoOp\n40 images" in drawn.axes[0].get_title()
    assert "CoOp + CMP, λ = 0.01" in drawn.axes[1].get_title()


def test_figure_one_keeps_the_likeliest_of_many_classes(tmp_path):
    names = [f"class {i}" for i in range(40)]
    runs = [made_run(tmp_path, scale, names, trainer=t) for t, scale in (("A", 3.0), ("B", 2.0))]
    axes = figures.figure_one(*alone(*runs), class_index=20).axes[0]
    shown = [label.get_text() for label in axes.get_xticklabels()]
    assert len(shown) == figures.MOST_CLASSES
    assert "class 20" in shown


def test_curves_show_the_mean_of_the_seeds(tmp_path):
    runs = []
    for penalty in (None, 0.001, 0.01, 0.5):
        for seed, ece in ((1, 0.1), (2, 0.3)):
            metrics = {"accuracy": 0.8, "ece": ece + (penalty or 0)}
            trainer = "CoOp" if penalty is None else "CoOp_CMP"
            runs.append(
                made_run(tmp_path, trainer=trainer, penalty=penalty, seed=seed, metrics=metrics)
            )
    axes = curves_of(alone(*runs), "lambda").axes[1]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0.001", "0.01", "0.5"]
    baseline, twin = axes.lines[0].get_ydata(), axes.containers[0].lines[0].get_ydata()
    assert list(baseline) == pytest.approx([20, 20])
    assert list(twin) == pytest.approx([20.1, 21, 70])
    (deviations,) = axes.containers[0].lines[2]
    low, high = deviations.get_segments()[0][:, 1]
    assert mean_text([0.101, 0.301]) == "20.10 ± 14.14", "what a table shows"
    assert (low, high) == pytest.approx((20.1 - 14.142, 20.1 + 14.142), abs=1e-3)
    assert list(axes.containers[0].lines[0].get_xdata()) == list(axes.get_xticks())
    assert "over 2 seeds per point" in axes.figure.get_suptitle()
    assert curves_of(alone(*runs), "shots") is None


def test_runs_with_other_options_are_another_curve(tmp_path):
    runs = [
        made_run(tmp_path, shots=shots, OPTIM_LR=rate, metrics={"accuracy": value})
        for shots in (1, 4)
        for rate, value in ((0.1, 0.9), (0.5, 0.1))
    ]
    axes = curves_of(alone(*runs), "shots").axes[0]
    curves = {c.get_label(): list(c.lines[0].get_ydata()) for c in axes.containers}
    assert curves == {
        "CoOp (OPTIM.LR=0.1)": pytest.approx([90, 90]),
        "CoOp (OPTIM.LR=0.5)": pytest.approx([10, 10]),
    }
    assert "over 1 seed per point" in axes.figure.get_suptitle()


def test_zero_shot_clip_is_a_horizontal_line_over_shots(tmp_path):
    def run(trainer, shots, ece):
        metrics = {"accuracy": 0.8, "ece": ece}
        return made_run(tmp_path, trainer=trainer, shots=shots, metrics=metrics)

    runs = [run("ZeroshotCLIP", -1, 0.09), run("CoOp", 1, 0.05), run("CoOp", 4, 0.03)]
    axes = curves_of(alone(*runs), "shots").axes[1]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1", "4"]
    assert list(axes.lines[0].get_ydata()) == pytest.approx([9, 9])
    assert curves_of(alone(*runs[:2]), "shots") is None
    assert alone(*runs)[0].heading == "Digits, GlyphCLIP, zero-shot, seed 1"


def drawn_texts(figure):
    """All texts of a figure that are drawn, with their boxes."""
    FigureCanvasAgg(figure).draw()
    hidden = set()
    for axis in [axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)]:
        low, high = sorted(axis.get_view_interval())
        for tick in axis.get_major_ticks():
            if not low <= tick.get_loc() <= high:  # ticks beyond the limits keep their texts
                hidden |= {tick.label1, tick.label2}
    texts = [text for text in figure.findobj(Text) if text.get_visible() and text not in hidden]
    return [(t.get_text(), t.get_window_extent().padded(-1)) for t in texts if t.get_text().strip()]


@pytest.mark.parametrize("kind", ["few", "many", "one"])
def test_no_texts_overlap_in_any_figure(tmp_path, kind):
    long_names = [f"a long-named class number {i}" for i in range(40)]
    names = long_names if kind == "many" else NAMES
    group = [made_run(tmp_path, 3.0, names)]
    if kind != "one":
        group.append(made_run(tmp_path, 1.0, names, trainer="CoOp_CMP", penalty=0.01))
    drawn = {}
    with rc_context(figures.LOOK):
        figures.draw_all(group, lambda figure, name: drawn.update({name: figure}), "0")
        assert len(drawn) == 4 + (len(group) == 2)
        for name, figure in drawn.items():
            texts = drawn_texts(figure)
            assert [(a, b) for (a, x), (b, y) in combinations(texts, 2) if x.overlaps(y)] == [], (
                name
            )


def test_a_whole_output_directory_is_drawn_into_png_svg_and_pdf(tmp_path, capsys):
    for seed in (1, 2):
        made_run(tmp_path, seed=seed)
        for penalty in (0.01, 0.1):
            made_run(tmp_path, 1.2, trainer="CoOp_CMP", penalty=penalty, seed=seed)
    broken = tmp_path / "CoOp/broken"
    write_predictions(broken / "predictions.npz", *outputs(), NAMES)
    (broken / "results.json").write_text('{"schema": 9}')
    assert main([str(tmp_path)]) == 0
    captured = capsys.readouterr()
    assert f"left out: {broken / 'results.json'}: schema 9 is unknown" in captured.err
    stems = {
        f"Digits_GlyphCLIP_4shots_seeds1-2_CoOp_{kind}"
        for kind in ("reliability", "confidence", "risk_coverage", "classes", "figure1")
    }
    stems.add("Digits_GlyphCLIP_4shots_lambda")
    names = sorted(p.name for p in (tmp_path / "figures").iterdir())
    assert names == sorted(f"{stem}.{suffix}" for stem in stems for suffix in ("png", "svg", "pdf"))
    for path in (tmp_path / "figures").iterdir():
        if path.suffix == ".png":
            assert path.read_bytes().startswith(b"\x89PNG")
        elif path.suffix == ".pdf":
            assert path.read_bytes().startswith(b"%PDF")
        else:
            assert ElementTree.parse(path).getroot().tag.endswith("svg")


def test_two_files_of_others_are_compared(tmp_path, capsys):
    for name, scale in (("before", 3.0), ("after", 1.0)):
        write_predictions(tmp_path / f"{name}.npz", *outputs(scale=scale), NAMES)
    sources = [str(tmp_path / "before.npz"), str(tmp_path / "after.npz")]
    assert main([*sources, "--formats", "svg", "--class", "3"]) == 0
    written = capsys.readouterr().out.split()
    assert str(tmp_path / "figures/before_figure1.svg") in written
    first = (tmp_path / "figures/before_figure1.svg").read_bytes()
    assert main([*sources, "--formats", "svg", "--class", "3"]) == 0
    assert (tmp_path / "figures/before_figure1.svg").read_bytes() == first


def test_pairs_prefer_the_default_lambda_and_the_ratio(tmp_path):
    def run(trainer, penalty=None, **fields):
        return made_run(tmp_path, trainer=trainer, penalty=penalty, **fields)

    base, other_seed = run("CoOp"), run("CoOp", seed=2)
    twins = [run("CoOp_CMP", 0.001), run("CoOp_CMP", 0.01, form="log"), run("CoOp_CMP", 0.01)]
    single = run("MaPLe_CMP", 0.5)
    pairs = paired(alone(base, *twins, single, other_seed))
    runs = [[group.runs[0] for group in pair] for pair in pairs]
    assert runs == [[base, twins[2]], [other_seed], [single]]


def test_mistakes_are_one_line(tmp_path, capsys, pair):
    assert main([str(tmp_path / "nothing")]) == 2
    assert "no such file or directory" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    assert main([str(tmp_path / "empty")]) == 2
    assert "no predictions.npz below" in capsys.readouterr().err
    plain, other = alone(*pair)
    with pytest.raises(UserError, match='no class "cat" among 10'):
        plain.class_index("cat")
    with pytest.raises(UserError, match='no class "10"'):
        plain.class_index("10")
    old = other.predictions
    other.__dict__["predictions"] = Predictions(old.logits, old.labels, NAMES[::-1])
    with pytest.raises(UserError, match="its classes are not those of"):
        figures.figure_one(plain, other)


def test_a_file_given_twice_is_one_run(tmp_path, pair):
    runs, problems = find_predictions([str(tmp_path), str(pair[0].path)])
    assert len(runs) == 2
    assert problems == []


def test_seeds_are_pooled_and_a_baseline_keeps_its_twin(tmp_path):
    runs = [made_run(tmp_path, seed=seed) for seed in (1, 2, 3)]
    runs += [made_run(tmp_path, 1.2, trainer="CoOp_CMP", penalty=0.01, seed=s) for s in (1, 2)]
    ((plain, twin),) = paired(grouped(runs))
    assert len(plain.samples) == 1200
    assert len(twin.samples) == 800
    assert plain.heading == "Digits, GlyphCLIP, 4 shots, seeds 1, 2, 3"
    bins = reliability_bins(*outputs(), 10, from_logits=True)
    accuracy = bars(figures.reliability_figure([plain, twin]).axes[0], "accuracy")
    for k in accuracy:  # the seeds are alike here, so three times as many change no height
        assert accuracy[k][3] == pytest.approx(float(bins.accuracy[k]))


def test_figure_one_is_of_the_images_that_each_has(tmp_path):
    runs = [made_run(tmp_path, seed=1), made_run(tmp_path, seed=2)]
    runs.append(made_run(tmp_path, 1.2, trainer="CoOp_CMP", penalty=0.01))  # one of its seeds only
    drawn = []
    figures.draw_all(runs, lambda _, name: drawn.append(name))
    assert any("figure1" in name for name in drawn)


def test_figure_one_shows_the_class_most_confused_unless_one_is_named(tmp_path, pair):
    wrong = sum(
        np.bincount(
            run.predictions.labels[run.predictions.logits.argmax(1) != run.predictions.labels],
            minlength=10,
        )
        for run in pair
    )
    drawn = {}
    figures.draw_all(pair, lambda figure, name: drawn.update({name: figure}))
    (title,) = [f.axes[0].get_title() for name, f in drawn.items() if "figure1" in name]
    assert f"class “{wrong.argmax()}”" in title


def test_groups_without_the_class_named_do_without_figure_one(tmp_path, pair):
    names = [f"letter {i}" for i in range(10)]
    others = [
        made_run(tmp_path, 3.0, names, DATASET_NAME="Letters"),
        made_run(tmp_path, 3.0, names, trainer="CoOp_CMP", penalty=0.01, DATASET_NAME="Letters"),
    ]
    drawn = []
    figures.draw_all([*pair, *others], lambda _, name: drawn.append(name), "letter 3")
    assert [name for name in drawn if "figure1" in name] == [
        "Letters_GlyphCLIP_4shots_seed1_CoOp_figure1"
    ]
    with pytest.raises(UserError, match='no class "cat" among 10'):
        figures.draw_all([*pair, *others], lambda *_: None, "cat")


def test_figures_are_as_wide_as_the_columns_of_the_paper(tmp_path, pair):
    sources = [str(run.path.parent) for run in pair]
    options = ["--formats", "svg", "--column-width", "3", "--no-title", "--to", str(tmp_path)]
    assert main([*sources, *options]) == 0
    (file,) = tmp_path.glob("*_reliability.svg")
    assert ElementTree.parse(file).getroot().get("width") == "432pt"  # two columns of 3 inches
    assert "GlyphCLIP" not in file.read_text()


@pytest.mark.parametrize("over", ["shots", "lambda"])
def test_no_two_curves_of_a_figure_look_the_same(tmp_path, over):
    runs = []
    for shots in (1, 4):
        for trainer in ("CoOp", "CoOp_MMCE", "CoOp_MDCA", "CoOp_LS", "KgCoOp"):
            runs.append(made_run(tmp_path, trainer=trainer, shots=shots))
        for form in ("ratio", "log"):
            for penalty in (0.01, 0.1):
                twin = {"trainer": "CoOp_CMP", "penalty": penalty, "form": form}
                runs.append(made_run(tmp_path, shots=shots, **twin))
    groups = [group for group in alone(*runs) if over == "shots" or group.row["shots"] == 4]
    axes = curves_of(groups, over).axes[0]
    lines = [container.lines[0] for container in axes.containers]
    lines += [line for line in axes.lines if line.get_label() in {g.variant for g in groups}]
    looks = {
        (line.get_color(), line.get_linestyle(), line.get_marker(), line.get_fillstyle())
        for line in lines
    }
    assert len(looks) == len(lines) == (9 if over == "shots" else 7)


def test_a_curve_over_lambda_has_the_symbol_of_its_first_point(tmp_path):
    runs = [made_run(tmp_path)]
    runs += [made_run(tmp_path, trainer="CoOp_CMP", penalty=lam) for lam in (0.1, 0.5)]
    groups = alone(*runs)
    assert styles(groups) == {
        "CoOp": (0, 0),
        "CoOp + CMP, λ = 0.1": (0, 1),
        "CoOp + CMP, λ = 0.5": (0, 2),
    }
    axes = curves_of(groups, "lambda").axes[0]
    assert axes.containers[0].lines[0].get_marker() == "D", "the diamond of λ = 0.1 on the page"


def test_a_pdf_holds_truetype_fonts_and_names_are_no_mathematics(tmp_path, pair):
    made_run(tmp_path / "odd", DATASET_NAME="$x_{$ & λ = 2")
    assert main([str(tmp_path / "odd"), "--formats", "pdf", "svg"]) == 0
    names = [file.name for file in (tmp_path / "odd/figures").iterdir()]
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+", name) for name in names), names
    for file in tmp_path.glob("odd/figures/*.pdf"):
        content = file.read_bytes()
        assert b"/Type3" not in content
        assert b"/TrueType" in content or b"/CIDFontType2" in content


def test_pooled_seeds_are_counted_apart_from_images(tmp_path):
    runs = [made_run(tmp_path, trainer=t, seed=s) for t in ("A", "B") for s in (1, 2, 3)]
    groups = grouped(runs)
    title = figures.reliability_figure(groups).get_suptitle()
    assert "400 images × 3 seeds, pooled, 10 classes" in title
    drawn = figures.figure_one(*groups, class_index=7)
    assert "40 images × 3 seeds of class" in drawn.axes[0].get_title()
    assert drawn.axes[2].get_title() == "all 400 images × 3 seeds"
