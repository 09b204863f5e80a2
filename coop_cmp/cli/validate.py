"""Compare CLIP's weights, the data and accuracies with the published ones: is my set-up right?

coop-cmp validate --backbone RN50 --data /path/to/data
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coop_cmp import CONFIGS, cli
from coop_cmp.cli.execute import execute
from coop_cmp.cli.options import add_launch_arguments, project_of
from coop_cmp.config.defaults import OPENAI_NAMES
from coop_cmp.errors import UserError
from coop_cmp.files import read_yaml
from coop_cmp.runs.project import Project
from coop_cmp.runs.records import RESULTS_FILE, read_results
from coop_cmp.runs.run import Run

CAUSES = {
    "weights": "an incomplete download, or the weights of another release: fetch the file again",
    "zero_shot": (
        "another prompt (DATASET.TEMPLATE), class names that are not CLIP's curated ones "
        "(ImageNet's classnames.txt), bilinear instead of bicubic interpolation, a split file of "
        "one's own, or a backbone without QuickGELU"
    ),
    "coop_16_shots": (
        "other epochs (200 at 16 shots, 50 on ImageNet), another split file, a single seed (they "
        "differ by a point), or prompts kept in half precision (MODEL.LEARNABLE_DTYPE)"
    ),
}


@dataclass(frozen=True)
class Line:
    """A comparison.

    Attributes:
        what: What is compared.
        kind: A key of ``CAUSES``.
        numbers: What was expected and what came.
        fits: Whether they agree; None where nothing is published.
    """

    what: str
    kind: str
    numbers: str
    fits: bool | None

    def __str__(self) -> str:
        verdict = {True: "ok     ", False: "DIFFERS", None: "-      "}[self.fits]
        hint = "" if self.fits is not False else f"\n        usual causes: {CAUSES[self.kind]}"
        return f"{verdict} {self.what}: {self.numbers}{hint}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    add = parser.add_argument
    add("--backbone", default="ViT-B/16", help="CLIP model of OpenAI's (%(default)s)")
    add("--weights", default="", help="file of its weights; default: downloaded")
    add(
        "--expected",
        type=Path,
        metavar="FILE",
        default=CONFIGS / "validation.yaml",
        help="file of published numbers; default: configs/validation.yaml",
    )
    add("--checkpoint", metavar="DIR", help="directory of a CoOp run, ours or published, to test")
    add("--checkpoint-dataset", default="imagenet", help="data set to test it on (%(default)s)")
    add("--train", action="store_true", help="train CoOp at 16 shots on the smallest data set, too")
    add_launch_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Run the command; 1 if something differs."""
    project = project_of(args)
    published = _published(args.expected)
    lines = []
    for line in compare(args, project, published):
        print(line, flush=True)
        lines.append(line)
    bad = sum(line.fits is False for line in lines)
    print(f"{len(lines)} compared, {bad} differ" if bad else f"{len(lines)} compared, none differs")
    return 1 if bad else 0


def compare(
    args: argparse.Namespace, project: Project, published: Mapping[str, Any]
) -> Iterator[Line]:
    """The lines, each as soon as it is known."""
    yield weights_line(args.backbone, args.weights)
    options = (("MODEL.BACKBONE.WEIGHTS", args.weights),) if args.weights else ()
    there = data_sets(project, published["zero_shot"].get(args.backbone, {}))
    if not there:
        print(f"No data set is below {project.data or '--data'}: see coop-cmp datasets check")
    runs = [Run(name, "ZeroshotCLIP", args.backbone, options=options) for name in there]
    for run in runs:
        yield from _run(args, project, run, "zero_shot", published)
    if args.checkpoint:
        base = Run(args.checkpoint_dataset, "CoOp", args.backbone, shots=16, options=options)
        yield _checkpoint(args, project, base, published)
    if args.train and there:
        smallest = min(there, key=lambda name: there[name])
        run = Run(smallest, "CoOp", args.backbone, shots=16, options=options)
        yield from _run(args, project, run, "coop_16_shots", published)


def weights_line(backbone: str, file: str) -> Line:
    """Compare the SHA-256 of the weights with the one that is part of their address."""
    from open_clip.pretrained import get_pretrained_cfg

    from coop_cmp.clip import load_clip  # these load torch, too slow for --help

    if backbone not in OPENAI_NAMES:
        raise UserError(f"--backbone must be one of {', '.join(OPENAI_NAMES)}, got {backbone}")
    expected = get_pretrained_cfg(OPENAI_NAMES[backbone], "openai")["url"].split("/")[-2]
    got = load_clip(backbone, file).digest
    numbers = f"expected {expected[:12]}, got {got[:12]}"
    return Line(f"weights of {backbone}", "weights", numbers, expected == got)


def data_sets(project: Project, names: Sequence[str]) -> dict[str, int]:
    """Those of the data sets that are on disk, with their numbers of training images."""
    from dassl.data.datasets import DATASET_REGISTRY

    import coop_cmp.datasets  # noqa: F401 - registers them

    classes = {name: DATASET_REGISTRY.get(project.dataset_names[name]) for name in names}
    return {
        name: kind.sizes.train
        for name, kind in classes.items()
        if project.data and Path(project.data, kind.dataset_dir).is_dir()
    }


def accuracy_line(run: Run, kind: str, accuracy: float, published: Mapping[str, Any]) -> Line:
    """Compare an accuracy in percent with the published one."""
    node = published[kind]
    tolerance, expected = node["tolerance"], node.get(run.backbone, {}).get(run.dataset)
    what = f"{kind.replace('_', ' ')} on {run.dataset}"
    if expected is None:
        return Line(what, kind, f"got {accuracy:.2f}, no published number here", None)
    numbers = f"expected {expected:.2f} ± {tolerance:g} ({node['sure']}), got {accuracy:.2f}"
    return Line(what, kind, numbers, abs(expected - accuracy) <= tolerance + 1e-9)


def _run(
    args: argparse.Namespace, project: Project, run: Run, kind: str, published: Mapping[str, Any]
) -> Iterator[Line]:
    if execute(args, project, [run]) and not args.dry_run:
        accuracy = 100 * float(project.frame([run])["accuracy"].iloc[0])
        yield accuracy_line(run, kind, accuracy, published)


def _checkpoint(
    args: argparse.Namespace, project: Project, run: Run, published: Mapping[str, Any]
) -> Line:
    """Test a trained prompt, of this or of the CoOp codebase."""
    from coop_cmp.predict.trainer import quiet  # loads torch, too slow for --help

    place = project.output / "validation" / run.path
    words = project.command(run)
    at = words.index("--output-dir")
    words[at + 1] = str(place)
    words[at:at] = ["--eval-only", "--model-dir", args.checkpoint, "--redo"]
    with quiet():
        cli.dispatch(words)
    accuracy = 100 * read_results(place / RESULTS_FILE)["metrics"]["accuracy"]
    return accuracy_line(run, "coop_16_shots", accuracy, published)


def _published(path: Path) -> Mapping[str, Any]:
    content = read_yaml(path)
    for kind in ("zero_shot", "coop_16_shots"):
        node = content.get(kind) if isinstance(content, dict) else None
        if not isinstance(node, dict) or not {"tolerance", "sure"} <= set(node):
            raise UserError(f"{path}: expected {kind} with tolerance, sure and a row per backbone")
    return content
