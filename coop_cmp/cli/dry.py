"""What a sweep would do: the runs, the time, the Slurm jobs or one command per run."""

from __future__ import annotations

import shlex
import sys
from collections import Counter
from collections.abc import Mapping, Sequence

from coop_cmp.runs.project import Project, State
from coop_cmp.runs.run import Run
from coop_cmp.sweep.devices import THREADS
from coop_cmp.sweep.launcher import Settings
from coop_cmp.sweep.slurm import queue
from coop_cmp.sweep.slurm.plan import chains, describe, parameters, plan
from coop_cmp.sweep.timing import Estimator, duration, kind_of


def print_states(states: Mapping[Run, State]) -> None:
    """What is on disk of each run, and why it does not count."""
    for run, state in states.items():
        print(f"{state.kind:8}{run}" + (f"  ({state.reason})" if state.reason else ""))


def print_time(runs: Sequence[Run], total: int, estimator: Estimator, side_by_side: int) -> None:
    """How many runs there are to do and how long that may take."""
    expected = estimator.total(Counter(map(kind_of, runs)), side_by_side)
    left = "unknown, as nothing like it was run yet" if expected is None else duration(expected)
    print(f"{total} runs, {len(runs)} to do; time: {left}")


def print_arrays(
    runs: Sequence[Run], settings: Settings, estimator: Estimator, per_job: int, text: str
) -> None:
    """The Slurm jobs that would be submitted, with the options of sbatch in ``text``."""
    largest = queue.largest_array()
    if largest is None:
        largest = queue.DEFAULT_ARRAY
        print(f"No Slurm here to ask: its default of {largest} jobs in an array is assumed.")
    arrays = plan(runs, estimator, settings.time_limit, per_job, largest)
    print(describe(arrays, settings.jobs, parameters(text)))


def print_commands(project: Project, settings: Settings, runs: Sequence[Run]) -> None:
    """One line per training with its evaluations after it; the lines can run in any order."""
    threads = [f"{name}={settings.threads}" for name in THREADS] if settings.threads else []
    first = ["env", *threads] if threads else []
    device = settings.devices[0].partition(":")[0]
    for chain in chains(runs):
        commands = []
        for run in chain:
            script, *words = project.command(run)
            redo = ["--redo"] if settings.redo and project.state(run).kind == "foreign" else []
            call = [*first, sys.executable, script, "--device", device, *redo, *words]
            commands.append(shlex.join(call))
        print(" && ".join(commands))
