"""Do the runs of a command, here or on Slurm, or print what would be done."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections import Counter
from collections.abc import Mapping, Sequence

from coop_cmp.cli.options import settings_of
from coop_cmp.runs.project import Project, State
from coop_cmp.runs.run import Run
from coop_cmp.sweep.devices import THREADS
from coop_cmp.sweep.failures import Failure, report_failures
from coop_cmp.sweep.launcher import Launcher, Settings
from coop_cmp.sweep.process import command_on, import_for_runs, import_variables
from coop_cmp.sweep.progress import Progress
from coop_cmp.sweep.slurm import attach, queue
from coop_cmp.sweep.slurm.plan import chains, describe, parameters, plan
from coop_cmp.sweep.timing import Estimator, duration, kind_of


def execute(args: argparse.Namespace, project: Project, runs: Sequence[Run]) -> bool | None:
    """Do what is open of ``runs`` and say how it went.

    Returns:
        Whether all runs are done now; None where it was not to wait for them (a dry run, or Slurm
        jobs that go on or were cancelled) and there is nothing to show yet.
    """
    project.check(runs)
    settings = settings_of(args, runs)
    states = {run: project.state(run) for run in runs}
    open_runs = [run for run, state in states.items() if state.kind != "done"]
    to_train = {run for run in open_runs if run.training is None}
    open_runs += [r for r in runs if states[r].kind == "done" and r.training in to_train]
    estimator = Estimator()
    for run, state in states.items():
        if state.results is not None:
            estimator.add(run, float(state.results["seconds"]["total"]))
    if args.dry_run and args.commands:
        _print_commands(project, settings, open_runs)
        return None
    if args.dry_run:
        _preview(args, settings, states, open_runs, estimator)
        return None
    if not open_runs:
        print(f"All {len(runs)} runs are complete in {project.output}.")
        return True
    print(
        f"{len(open_runs)} of {len(runs)} runs to do, {settings.jobs} at a time on "
        f"{', '.join(settings.devices)}, output in {project.output}"
    )
    done, slots = len(runs) - len(open_runs), settings.jobs * args.per_job
    progress = Progress(len(runs), done, slots, estimator)
    failures: list[Failure] | None
    if args.slurm is not None:
        failures = _on_slurm(args, project, settings, progress, open_runs)
    else:
        if settings.fork:
            import_for_runs(settings.threads)
        failures = Launcher(project, settings, progress).launch(open_runs)
    return None if failures is None else _all_well(project, runs, failures)


def _on_slurm(
    args: argparse.Namespace,
    project: Project,
    settings: Settings,
    progress: Progress,
    runs: Sequence[Run],
) -> list[Failure] | None:
    """The runs that failed as Slurm jobs; None where jobs were left to go on or cancelled."""
    if ignored := [name for name in os.environ if name.startswith("SBATCH_")]:
        print(f"Ignored: {', '.join(ignored)}; name options of sbatch in --slurm", file=sys.stderr)
    attachment = attach.Attachment(
        project, settings, progress, runs, parameters(args.slurm), args.per_job
    )
    if args.cancel:
        attach.cancel(attachment)
        return None
    failures = attach.follow(attachment, args.detach)
    if args.detach:
        print("The same command without --detach attaches to the jobs; with --cancel ends them.")
    return failures


def _all_well(project: Project, runs: Sequence[Run], failures: Sequence[Failure]) -> bool:
    """Whether all runs are done and count; if not, say why."""
    if failures:
        print(f"\n{report_failures(project, failures)}", file=sys.stderr)
    failed = {failure.run for failure in failures}
    changed = [state for run in runs if run not in failed if (state := project.state(run)).reason]
    if changed:
        print(
            f"\n{len(changed)} runs do not count: settings changed while the sweep ran. "
            f"The first: {changed[0].reason}",
            file=sys.stderr,
        )
    return not failures and not changed


def _preview(
    args: argparse.Namespace,
    settings: Settings,
    states: Mapping[Run, State],
    runs: Sequence[Run],
    estimator: Estimator,
) -> None:
    """Print what is on disk of each run, how long those to do may take, and their Slurm jobs."""
    for run, state in states.items():
        print(f"{state.kind:8}{run}" + (f"  ({state.reason})" if state.reason else ""))
    expected = estimator.total(Counter(map(kind_of, runs)), settings.jobs * args.per_job)
    left = "unknown, no similar run has finished yet" if expected is None else duration(expected)
    print(f"{len(states)} runs, {len(runs)} to do; time: {left}")
    if args.slurm is None:
        return
    largest = queue.largest_array()
    if largest is None:
        largest = queue.DEFAULT_ARRAY
        print(f"Slurm is not available: its default of {largest} jobs in an array is assumed.")
    arrays = plan(runs, estimator, settings.time_limit, args.per_job, largest)
    print(describe(arrays, settings.jobs, parameters(args.slurm)))


def _print_commands(project: Project, settings: Settings, runs: Sequence[Run]) -> None:
    """Print a line per training with its evaluations after it; lines can run in any order."""
    variables = import_variables()
    variables |= dict.fromkeys(THREADS, str(settings.threads)) if settings.threads else {}
    first = ["env", *(f"{name}={value}" for name, value in variables.items())] if variables else []
    first += [sys.executable, *settings.program]
    for chain in chains(runs):
        redo = {run: settings.redo and project.state(run).kind == "foreign" for run in chain}
        calls = [command_on(settings.devices[0], project, run, redo[run]) for run in chain]
        print(" && ".join(shlex.join([*first, *call]) for call in calls))
