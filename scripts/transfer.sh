#!/usr/bin/env bash
# Train on one data set, test on others with the same learned prompts:
#   bash scripts/transfer.sh digits 8          on its four shifts
#   bash scripts/transfer.sh imagenet 16       domain generalisation: V2, Sketch, A and R
#   bash scripts/transfer.sh imagenet 16 --targets caltech101 oxford_pets dtd
# Options: those of coop-cmp transfer (--help).
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
on_dataset transfer "$@"
