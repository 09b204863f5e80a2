"""The circumstances of a run, for the record: machine, memory, time and versions."""

from __future__ import annotations

import os
import platform
import resource
import subprocess
import sys
import time
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import coop_cmp

_PACKAGES = {"torch": "torch", "numpy": "numpy", "open_clip": "open_clip_torch"}
_IMPORTED = time.time()


def seconds_since_start() -> float:
    """Since the process began; if the system does not say, since this was imported."""
    try:
        # After the name, which may hold spaces and brackets, the 20th word is the start in ticks.
        words = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        uptime = float(Path("/proc/uptime").read_text().split()[0])
        return uptime - int(words[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return time.time() - _IMPORTED


def machine(device: Any, precision: str | None) -> dict[str, Any]:
    """Where a run was made: host, device (a ``torch.device``), threads and peak memory in MB."""
    import torch

    unit = 1 if sys.platform == "darwin" else 1024
    record: dict[str, Any] = {
        "host": platform.node(),
        "device": str(device) if device else None,
        "device_name": platform.processor() or platform.machine(),
        "precision": precision,
        "threads": torch.get_num_threads(),
        "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20,
    }
    if device is not None and device.type == "cuda" and torch.cuda.is_available():
        record["device_name"] = torch.cuda.get_device_name(device)
        record["gpu_memory_mb"] = torch.cuda.max_memory_allocated(device) / 2**20
    return record


def versions() -> dict[str, str]:
    """Of Python and of the packages that compute."""
    import dassl

    found = {
        "coop_cmp": coop_cmp.__version__,
        "python": platform.python_version(),
        "dassl": str(getattr(dassl, "__version__", "unknown")),
    }
    for name, package in _PACKAGES.items():
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(package)
    return found


@cache
def commit() -> str | None:
    """The commit of this checkout, marked "dirty" if files differ from it; None outside git."""
    root = Path(coop_cmp.__file__).resolve().parents[1]
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--exclude=*"]
    command += ["--abbrev=40", "--dirty= dirty"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
