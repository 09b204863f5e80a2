"""Which devices there are, and how a run gets one of them; without loading torch."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from itertools import takewhile

from coop_cmp.errors import UserError

VISIBLE = "CUDA_VISIBLE_DEVICES"
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
NO_DEVICES = 6  # what nvidia-smi ends with where the driver works and there is no GPU


def cores_here() -> int:
    """Return the number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def visible_gpus() -> list[str] | None:
    """The names of the GPUs that runs may use, or None where nothing tells them.

    Raises:
        UserError: the driver does not answer, so that a GPU that is there could not be used.
    """
    named = _named_gpus()
    tool = shutil.which("nvidia-smi")
    if named is not None or tool is None:
        return named
    # The tool lists all devices, whatever the variable says.
    listing = subprocess.run([tool, "-L"], capture_output=True, text=True, check=False)
    if listing.returncode not in (0, NO_DEVICES):
        words = (listing.stdout + listing.stderr).strip().splitlines() or ["it said nothing"]
        raise UserError(
            f"nvidia-smi ended with exit code {listing.returncode} ({words[0].strip()}); fix the "
            "driver, or choose another device with --devices cpu"
        )
    count = sum(line.startswith("GPU ") for line in listing.stdout.splitlines())
    return [str(index) for index in range(count)]


def _named_gpus() -> list[str] | None:
    """What the variable names; as for CUDA itself, the list ends at the first that is none."""
    if VISIBLE not in os.environ:
        return None
    names = (name.strip() for name in os.environ[VISIBLE].split(","))
    return list(takewhile(lambda name: name not in ("", "-1"), names))


def check_devices(devices: Sequence[str], here: bool = True) -> None:
    """Find mistakes before anything starts.

    Args:
        here: whether the runs will be on this machine, so that its GPUs count.

    Raises:
        UserError: for a name that is none, or a GPU beyond those that are visible.
    """
    for device in devices:
        if not re.fullmatch(r"cpu|mps|cuda(:\d+)?", device):
            raise UserError(f"--devices: expected cpu, mps, cuda or cuda:N, got {device!r}")
    cuda = [device for device in devices if device.startswith("cuda")]
    gpus = visible_gpus() if here and cuda else None
    if gpus is not None:
        for device in cuda:
            _pick(device, gpus)


def _pick(device: str, gpus: Sequence[str]) -> str:
    """The name of the GPU that ``cuda`` or ``cuda:N`` stands for."""
    index = int(device.partition(":")[2] or 0)
    if index >= len(gpus):
        hint = f" ({VISIBLE}={os.environ[VISIBLE]!r})" if VISIBLE in os.environ else ""
        raise UserError(f"--devices: {device} is not among the {len(gpus)} visible GPUs{hint}")
    return gpus[index]


def environment_for(device: str, threads: int) -> dict[str, str]:
    """The environment of a run on ``cpu``, ``mps`` or ``cuda:N`` with a fixed number of threads.

    The number of threads decides in which order floats are added, so a run's figures must not
    depend on what else is running: each run gets the same number (0 leaves it to torch).
    """
    environment = dict(os.environ)
    if device == "cpu":
        environment[VISIBLE] = ""
    elif device != "mps":
        named = _named_gpus()
        index = device.partition(":")[2] or "0"
        environment[VISIBLE] = index if named is None else _pick(device, named)
    if threads:
        environment |= dict.fromkeys(THREADS, str(threads))
    return environment
