"""Show what the feature store holds and how large it is; delete what no run uses."""

from __future__ import annotations

import argparse

from tabulate import tabulate

MB = 2**20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    add = parser.add_argument
    add(
        "--store",
        default="auto",
        metavar="DIR",
        help="directory of the store; default: the user's cache",
    )
    add("--prune", type=float, metavar="DAYS", help="delete files unused for DAYS days; 0: all")


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    from coop_cmp.features.store import FeatureStore, store_folder  # loads torch

    store = FeatureStore(store_folder(args.store))
    if args.prune is not None:
        gone = store.prune(args.prune)
        print(f"deleted {len(gone)} files, {sum(e['bytes'] for e in gone) / MB:.1f} MB")
    entries = store.entries()
    rows = [
        [e["path"].stem[:12], e["about"], f"{e['bytes'] / MB:.1f}", f"{e['days']:.1f}"]
        for e in entries
    ]
    if rows:
        print(tabulate(rows, ["key", "features", "MB", "days unused"], disable_numparse=True))
    total = sum(entry["bytes"] for entry in entries) / MB
    print(f"{store.folder}: {len(entries)} files, {total:.1f} MB")
    return 0
