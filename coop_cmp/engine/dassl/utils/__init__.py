"""Registry, logging, seeds, meters, files and checkpoints."""

from . import tools, torchtools
from .logger import Logger, setup_logger
from .meters import AverageMeter, MetricMeter
from .registry import Registry
from .tools import *  # noqa: F403
from .torchtools import *  # noqa: F403

__all__ = ["AverageMeter", "Logger", "MetricMeter", "Registry", "setup_logger"]
__all__ += tools.__all__
__all__ += torchtools.__all__
