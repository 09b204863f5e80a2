"""Train and test a method with CoOp's command line: ``coop-cmp train``."""

import sys

from coop_cmp.cli import main

if __name__ == "__main__":
    sys.exit(main(["train", *sys.argv[1:]]))

import coop_cmp.cli.training  # noqa: F401 - whoever imports this file gets the trainers registered
