"""Random seeds and a description of the machine."""

from __future__ import annotations

import platform
import random
from importlib.metadata import PackageNotFoundError, version

import numpy as np
import torch


def set_random_seed(seed: int) -> None:
    """Seed python, numpy and torch (all devices)."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.cuda.manual_seed_all(seed)


def collect_env_info() -> str:
    """Versions and device, one per line. No sub-processes: it takes milliseconds."""
    # Not platform.platform(), which asks `uname` in a process of its own.
    system = f"{platform.system()} {platform.release()} {platform.machine()}"
    lines = [f"Python: {platform.python_version()} ({system})"]
    for name in ("torch", "torchvision", "numpy", "pillow"):
        try:
            lines.append(f"{name}: {version(name)}")
        except PackageNotFoundError:
            lines.append(f"{name}: not installed")
    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        lines.append(f"device: CUDA {torch.version.cuda}, {', '.join(names)}")
    else:
        lines.append(f"device: CPU, {torch.get_num_threads()} threads")
    return "\n".join(lines)
