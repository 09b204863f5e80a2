"""The same runs as Slurm jobs, through submitit."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from coop_cmp.errors import UserError
from coop_cmp.results.project import Project
from coop_cmp.results.run import Run
from coop_cmp.sweep.failures import Failure
from coop_cmp.sweep.launcher import Launcher, Settings
from coop_cmp.sweep.progress import Progress
from coop_cmp.sweep.timing import Estimator


def group(runs: Sequence[Run]) -> list[list[Run]]:
    """One list per job: a training and its evaluations belong together."""
    jobs: dict[Run, list[Run]] = {}
    for run in runs:
        jobs.setdefault(run.training or run, []).append(run)
    return list(jobs.values())


def work(project: Project, settings: Settings, runs: Sequence[Run]) -> list[Failure]:
    """What a job does on its node: the local launcher on a few runs, one at a time."""
    progress = Progress(len(runs), 0, 1, Estimator())
    return Launcher(project, replace(settings, jobs=1), progress).launch(runs)


def parameters(text: str) -> dict[str, Any]:
    """``partition=gpu gres=gpu:1`` as submitit's Slurm parameters; numbers become numbers."""
    try:
        pairs = [part.partition("=") for part in shlex.split(text)]
    except ValueError as error:
        raise UserError(f"--slurm: cannot be split into words ({error}): {text}") from error
    wrong = [key for key, equals, _ in pairs if not equals]
    if wrong:
        raise UserError(f"--slurm: expected key=value pairs, got {wrong[0]!r}")
    return {f"slurm_{key}": int(v) if v.isdigit() else v for key, _, v in pairs}


def launch(
    project: Project, settings: Settings, runs: Sequence[Run], text: str, cluster: str = "slurm"
) -> list[Failure]:
    """Submit a job array and wait for it.

    Args:
        text: Slurm parameters, such as ``partition=gpu cpus_per_task=8``.
        cluster: submitit's executor; ``local`` runs the jobs here.
    """
    try:
        import submitit
    except ImportError as error:
        raise UserError("--slurm needs submitit: pip install 'coop-cmp[slurm]'") from error
    jobs = group(runs)
    count, longest = len(jobs), max(map(len, jobs))
    folder = project.output / "slurm"
    wanted = {
        "timeout_min": int(settings.time_limit * settings.tries * longest / 60) + 5,
        "slurm_array_parallelism": settings.jobs,
        **parameters(text),
    }
    try:
        executor = submitit.AutoExecutor(folder=folder, cluster=cluster)
        executor.update_parameters(name="coop_cmp", **wanted)
        submitted = executor.map_array(work, [project] * count, [settings] * count, jobs)
    except (RuntimeError, NameError) as error:  # no srun, sbatch refuses; a key nobody knows
        raise UserError(f"--slurm: {str(error).strip().splitlines()[0]}") from error
    print(f"Waiting for {count} Slurm jobs, logs in {folder}; Ctrl-C cancels them.", flush=True)
    try:
        return _wait(project, submitted, jobs)
    except KeyboardInterrupt:
        for job in submitted:
            job.cancel(check=False)
        raise


def _wait(project: Project, submitted: Sequence[Any], jobs: list[list[Run]]) -> list[Failure]:
    failures: list[Failure] = []
    for job, runs_of_job in zip(submitted, jobs, strict=True):
        try:
            failures += job.result()
        except Exception as error:  # a lost node or a cancelled job, in submitit's own types
            last = str(error).strip().splitlines()[-1:] or [type(error).__name__]
            open_runs = [run for run in runs_of_job if project.state(run).kind != "done"]
            failures += [Failure(run, f"Slurm job {job.job_id}: {last[0]}") for run in open_runs]
    return failures
