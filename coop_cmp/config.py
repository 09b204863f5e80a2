"""The configuration: what this project adds to Dassl's tree, and reading it without surprises."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from yacs.config import CfgNode

from coop_cmp.errors import UserError
from coop_cmp.penalty import add_cmp_config


def extend_cfg(cfg: CfgNode) -> None:
    """Add the nodes that CoOp's train.py adds, and those of this project."""
    cfg.DEVICE = ""  # cpu, cuda, cuda:1, mps; empty: the best there is
    cfg.MODEL.BACKBONE.WEIGHTS = ""  # an open_clip tag or a file; empty: bundled, else openai
    cfg.MODEL.TEXT_ENCODER = "shared"  # or naive: every token of every class, as CoOp does
    cfg.MODEL.TEXT_BUDGET_MB = 4096  # activations of the text tower; more is cut into chunks
    cfg.MODEL.FEATURE_STORE = "auto"  # a folder; auto: in the user's cache; empty: none
    cfg.MODEL.LEARNABLE_DTYPE = "fp32"  # under fp16, "model" keeps prompts in fp16 as CoOp does
    cfg.DATASET.SUBSAMPLE_CLASSES = "all"  # or base, new
    cfg.DATASET.ALLOW_NEW_SPLIT = False
    cfg.DATASET.TEMPLATE = ""  # empty: the table in coop_cmp/clip/templates.py
    cfg.DATASET.CLASSNAMES = ()
    cfg.INPUT.CACHED_VIEWS = 0  # fixed views of each training image; 0: a fresh one each time
    cfg.OPTIM.SHOT_EPOCHS = []  # pairs [shots, epochs]; sets MAX_EPOCH from NUM_SHOTS
    cfg.OPTIM.DATASET_EPOCHS = []  # pairs [data set, epochs], which come first
    cfg.TEST.EVALUATOR = "CalibrationEvaluator"
    cfg.TEST.N_BINS = 10
    cfg.TEST.BIN_CLOSED = "right"
    add_cmp_config(cfg)

    cfg.TRAINER.COOP = CfgNode()
    cfg.TRAINER.COOP.N_CTX = 16
    cfg.TRAINER.COOP.CSC = False
    cfg.TRAINER.COOP.CTX_INIT = ""
    cfg.TRAINER.COOP.PREC = "fp16"
    cfg.TRAINER.COOP.CLASS_TOKEN_POSITION = "end"

    cfg.TRAINER.COCOOP = CfgNode()
    cfg.TRAINER.COCOOP.N_CTX = 16
    cfg.TRAINER.COCOOP.CTX_INIT = ""
    cfg.TRAINER.COCOOP.PREC = "fp16"

    cfg.TRAINER.PRODA = CfgNode()
    cfg.TRAINER.PRODA.N_CTX = 16
    cfg.TRAINER.PRODA.N_PROMPT = 32
    cfg.TRAINER.PRODA.PROMPT_BS = 4  # prompts per step
    cfg.TRAINER.PRODA.ALPHA = 0.1  # weight of the diversity of prompts
    cfg.TRAINER.PRODA.PENALTY_ON = "mean"  # the logits that predict; or bound: those of the loss
    cfg.TRAINER.PRODA.PREC = "fp16"

    cfg.TRAINER.MAPLE = CfgNode()
    cfg.TRAINER.MAPLE.N_CTX = 2
    cfg.TRAINER.MAPLE.CTX_INIT = "a photo of a"
    cfg.TRAINER.MAPLE.PROMPT_DEPTH = 9  # layers with prompts; 1: only the input
    cfg.TRAINER.MAPLE.PREC = "fp16"

    cfg.TRAINER.KGCOOP = CfgNode()
    cfg.TRAINER.KGCOOP.N_CTX = 4
    cfg.TRAINER.KGCOOP.CTX_INIT = "a photo of a"
    # Of 1 - cosine, as in the authors' code; the squared distance of their paper is twice that.
    cfg.TRAINER.KGCOOP.W = 8.0
    cfg.TRAINER.KGCOOP.PREC = "fp16"

    cfg.TRAINER.CLIPFT = CfgNode()
    cfg.TRAINER.CLIPFT.MODE = "FT-CE"  # or FT-Contrastive
    cfg.TRAINER.CLIPFT.TRAIN_TEXT = True  # False: the image tower alone
    cfg.TRAINER.CLIPFT.TRAIN_SCALE = False  # the temperature of the logits
    cfg.TRAINER.CLIPFT.EPS = 1e-6  # of AdamW
    cfg.TRAINER.CLIPFT.MAX_NORM = 1.0  # of the gradient
    cfg.TRAINER.CLIPFT.PREC = "amp"


def merge_file(cfg: CfgNode, path: str, option: str) -> None:
    """Merge a yaml file; a mistake in it is reported with its path."""
    if not Path(path).is_file():
        raise UserError(f'{option}: no file "{path}"')
    try:
        cfg.merge_from_file(path)
    except KeyError as error:
        raise UserError(f"{path}: {_unknown_key(cfg, str(error.args[0]))}") from error
    except (ValueError, AssertionError, AttributeError, yaml.YAMLError) as error:
        raise UserError(f"{path}: {_first_line(error)}") from error


def merge_options(cfg: CfgNode, options: Sequence[str]) -> None:
    """Merge ``KEY VALUE`` pairs; an integer is taken for a float key."""
    if len(options) % 2:
        raise UserError(f"options come in pairs KEY VALUE; there is no value for {options[-1]}")
    for key, value in zip(options[::2], options[1::2], strict=True):
        node: Any = cfg
        for part in key.split("."):
            if not isinstance(node, CfgNode) or part not in node:
                raise UserError(_unknown_key(cfg, key))
            node = node[part]
        if isinstance(node, float) and value.lstrip("+-").isdigit():
            value += ".0"
        try:
            cfg.merge_from_list([key, value])
        except (ValueError, AssertionError) as error:
            raise UserError(
                f"{key} takes a {type(node).__name__}, such as {node!r}; got {value!r}"
            ) from error


def resolve_epochs(cfg: CfgNode) -> None:
    """Set OPTIM.MAX_EPOCH from the tables of epochs per data set and per number of shots."""
    for name, epochs in cfg.OPTIM.DATASET_EPOCHS:
        if name == cfg.DATASET.NAME:
            cfg.OPTIM.MAX_EPOCH = epochs
            return
    table = sorted(cfg.OPTIM.SHOT_EPOCHS)
    if not table:
        return
    shots = cfg.DATASET.NUM_SHOTS
    fitting = [epochs for listed, epochs in table if 0 < shots <= listed]
    cfg.OPTIM.MAX_EPOCH = fitting[0] if fitting else table[-1][1]


def _unknown_key(cfg: CfgNode, key: str) -> str:
    key = key.removeprefix("Non-existent config key: ")
    matches = difflib.get_close_matches(key.upper(), _keys(cfg), n=1, cutoff=0.5)
    hint = f'; did you mean "{matches[0]}"?' if matches else ""
    return f'there is no config key "{key}"{hint}'


def _keys(node: CfgNode, prefix: str = "") -> list[str]:
    keys: list[str] = []
    for name, value in node.items():
        keys += _keys(value, f"{prefix}{name}.") if isinstance(value, CfgNode) else [prefix + name]
    return keys


def _first_line(error: Exception) -> str:
    return str(error).strip().replace("\n", " ")[:300]
