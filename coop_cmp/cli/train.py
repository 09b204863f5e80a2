"""Train and test a method, with CoOp's command line.

  coop-cmp train --trainer CoOp_CMP --dataset-config-file configs/datasets/digits.yaml \\
    --config-file configs/trainers/CoOp/glyph.yaml --output-dir out DATASET.NUM_SHOTS 4

A configs/... file that is not in the current folder is taken from coop-cmp.
"""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add CoOp's arguments, and a few more."""
    parser.epilog = "coop-cmp settings [BEGINNING OF KEY] lists the settings"
    add = parser.add_argument
    add("--root", default="", help="folder that holds the data sets")
    add("--output-dir", default="", help="directory for the log, the checkpoints and the results")
    add("--resume", default="", help="directory of the run to continue")
    add("--seed", type=int, default=None, help="seed of a deterministic run, 0 included")
    add("--source-domains", nargs="+", help="source domains, for data sets that have them")
    add("--target-domains", nargs="+", help="target domains, for data sets that have them")
    add("--transforms", nargs="+", help="names of the training transforms")
    add("--config-file", default="", help="settings of the method, a file in configs/trainers")
    add(
        "--dataset-config-file",
        default="",
        help="settings of the data set, a file in configs/datasets",
    )
    add("--trainer", default="", help="method, e.g. CoOp or CoOp_CMP")
    add("--backbone", default="", help="CLIP model, e.g. ViT-B/16")
    add("--head", default="", help="classification head, for Dassl's own trainers")
    add("--device", default="", help="device: cpu, cuda, cuda:1 or mps; default: auto-detected")
    add("--eval-only", action="store_true", help="test a trained model")
    add("--model-dir", default="", help="directory of the run to test")
    add("--load-epoch", type=int, help="epoch of the model to test; default: the last")
    add("--redo", action="store_true", help="replace the run that is in the output directory")
    add("--no-train", action="store_true", help="build everything, train nothing")
    add("--no-feature-store", action="store_true", help="encode all images in every run")
    add("opts", nargs=argparse.REMAINDER, help="KEY VALUE pairs that change the settings")


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    from coop_cmp.cli.training import train_or_test  # loads torch, too slow for --help

    return train_or_test(args)
