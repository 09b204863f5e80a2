"""What ``coop-cmp train`` does: resolve the settings, then train or test."""

from __future__ import annotations

import argparse
from contextlib import nullcontext
from pathlib import Path

from dassl.data.datasets import DATASET_REGISTRY
from dassl.engine import TRAINER_REGISTRY, build_trainer
from dassl.evaluation.build import EVALUATOR_REGISTRY
from dassl.utils import collect_env_info, set_random_seed, setup_logger
from yacs.config import CfgNode

import coop_cmp.datasets
import coop_cmp.runs.evaluator
import coop_cmp.trainers  # noqa: F401 - importing these registers what they hold
from coop_cmp import CONFIGS
from coop_cmp.clip import add_models, is_small
from coop_cmp.config.defaults import method_of
from coop_cmp.config.resolve import pairs, resolve
from coop_cmp.datasets.own import name_folder
from coop_cmp.devices import choose_device, use_one_thread
from coop_cmp.errors import UserError, closest
from coop_cmp.losses.names import split_trainer
from coop_cmp.runs.identity import (
    Identity,
    canonical,
    claimed,
    flatten,
    identify,
    read_identity,
)
from coop_cmp.runs.records import refuse_other_model
from coop_cmp.sweep.devices import cores_here
from coop_cmp.trainers.terms import register_if_term


def find_config(path: str) -> str:
    """Return the path of a config file, which may be one that comes with coop-cmp."""
    ours = CONFIGS.parent / path
    is_missing = Path(path).parts[:1] == (CONFIGS.name,) and not Path(path).exists()
    is_ours = is_missing and (ours.is_file() or not Path(path).parent.is_dir())
    return str(ours) if is_ours else path


def setup_cfg(args: argparse.Namespace) -> CfgNode:
    """Return the settings: defaults, then the data set's file, the method's file, the arguments."""
    files = {
        "--dataset-config-file": find_config(args.dataset_config_file),
        "--config-file": find_config(args.config_file),
    }
    flags = {
        "DATASET.ROOT": args.root,
        "OUTPUT_DIR": args.output_dir,
        "RESUME": args.resume,
        "DATASET.SOURCE_DOMAINS": args.source_domains,
        "DATASET.TARGET_DOMAINS": args.target_domains,
        "INPUT.TRANSFORMS": args.transforms,
        "TRAINER.NAME": args.trainer,
        "MODEL.BACKBONE.NAME": args.backbone,
        "MODEL.HEAD.NAME": args.head,
        "DEVICE": args.device,
    }
    given = {key: value for key, value in flags.items() if value}
    if args.seed is not None:
        given["SEED"] = args.seed
    if args.eval_only and not args.output_dir:
        given["OUTPUT_DIR"] = ""  # a test that names no place only prints
    if args.no_feature_store:
        given["MODEL.FEATURE_STORE"] = ""
    options = pairs(args.opts)
    cfg = resolve(CONFIGS.parent, files, given, options)
    if "DATALOADER.NUM_WORKERS" not in options:
        cfg.DATALOADER.NUM_WORKERS = min(cfg.DATALOADER.NUM_WORKERS, cores_here())
    check_names(cfg)
    method = method_of(cfg.TRAINER.NAME)
    if args.eval_only and not args.model_dir and (method is None or method.trains):
        raise UserError("--eval-only tests a trained model: name its run with --model-dir")
    name_folder(cfg)
    cfg.freeze()
    return cfg


def check_names(cfg: CfgNode) -> None:
    """Raise UserError for a trainer, data set or evaluator that is not registered."""
    register_if_term(cfg.TRAINER.NAME)
    for what, option, name, registry in (
        ("trainer", "--trainer", cfg.TRAINER.NAME, TRAINER_REGISTRY),
        ("data set", "--dataset-config-file", cfg.DATASET.NAME, DATASET_REGISTRY),
        ("evaluator", "TEST.EVALUATOR", cfg.TEST.EVALUATOR, EVALUATOR_REGISTRY),
    ):
        known = registry.registered_names()
        if not name:
            plain = sorted(n for n in known if split_trainer(n)[1] is None)  # not all their twins
            raise UserError(f"no {what} given ({option}); there are: {', '.join(plain)}")
        if name not in known:
            raise UserError(f'unknown {what} "{name}" ({option}){closest(name, known)}')
    if cfg.INPUT.NO_TRANSFORM:
        raise UserError("INPUT.NO_TRANSFORM True: the trainers need transformed images; leave it")
    if not cfg.MODEL.BACKBONE.NAME:
        raise UserError("no backbone given (--backbone or --config-file), e.g. ViT-B/16")


def print_args(args: argparse.Namespace, cfg: CfgNode) -> None:
    """Print the arguments and all settings."""
    print("***************\n** Arguments **\n***************")
    for name, value in sorted(vars(args).items()):
        print(f"{name}: {value}")
    print(f"************\n** Config **\n************\n{cfg}")


def evaluated(args: argparse.Namespace, cfg: CfgNode) -> Identity | None:
    """Return the run that is tested; None for a training, or a run of another codebase."""
    found = read_identity(args.model_dir) if args.eval_only and args.model_dir else None
    if found is None:
        return None
    given = flatten(cfg)
    is_same_method = method_of(cfg.TRAINER.NAME) == method_of(found.settings["TRAINER.NAME"])
    for key, trained in found.term.items() if is_same_method else ():
        if canonical(given.get(key)) != trained:
            raise UserError(
                f'"{args.model_dir}" was trained with {key} {trained}, not {given.get(key)}: give '
                "the same, or its results would stand under another name"
            )
    return found


def train_or_test(args: argparse.Namespace) -> int:
    """Run the command with its arguments and return the exit code."""
    add_models(CONFIGS / "models")
    cfg = setup_cfg(args)
    training = evaluated(args, cfg)
    identity = identify(cfg, training, args.load_epoch if training else None)
    for key in pairs(args.opts):
        if key.startswith("TRAINER.") and key not in identity.settings:
            print(f"Note that {cfg.TRAINER.NAME} does not use {key}")
    kept = cfg.OUTPUT_DIR and not args.no_train
    try:
        with claimed(cfg.OUTPUT_DIR, identity, args.redo) if kept else nullcontext():
            work(args, cfg)
    except FloatingPointError as error:  # raised by Dassl for a loss that is not finite
        raise UserError(f"{error}: lower OPTIM.LR, or the weight of a loss term") from error
    return 0


def work(args: argparse.Namespace, cfg: CfgNode) -> None:
    """Train or test."""
    if cfg.SEED >= 0:
        print(f"Setting fixed seed: {cfg.SEED}")
        set_random_seed(cfg.SEED)
    setup_logger(cfg.OUTPUT_DIR or None)
    print_args(args, cfg)
    if is_small(cfg.MODEL.BACKBONE.NAME):
        use_one_thread(choose_device(cfg))
    print(f"Collecting env info ...\n** System info **\n{collect_env_info()}\n")
    trainer = build_trainer(cfg)
    if args.eval_only:
        trainer.load_model(args.model_dir, epoch=args.load_epoch)
        if cfg.OUTPUT_DIR:
            refuse_other_model(cfg.OUTPUT_DIR, trainer.facts()["checkpoint"])
        trainer.test()
    elif not args.no_train:
        trainer.train()
