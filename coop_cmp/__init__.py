"""The confidence misalignment penalty for CLIP prompt learning, and calibration measures."""

from coop_cmp.loss import cmp_loss
from coop_cmp.penalty import CMPenalty, CMPMixin, add_cmp_config, penalty_logits, plug

__version__ = "0.1.0"

__all__ = ["CMPMixin", "CMPenalty", "add_cmp_config", "cmp_loss", "penalty_logits", "plug"]
