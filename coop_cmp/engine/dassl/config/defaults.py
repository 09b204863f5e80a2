"""The default settings, whose meaning is said where they are declared."""

from yacs.config import CfgNode

from coop_cmp.config import add_settings
from coop_cmp.config.dassl_keys import DASSL_KEYS

cfg_default = CfgNode()
add_settings(cfg_default, settings=DASSL_KEYS)
cfg_default.TEST.EVALUATOR = "Classification"
