#!/usr/bin/env bash
# Checks the data sets on disk, or brings an archive into the expected layout (docs/datasets.md):
#   bash scripts/datasets.sh check [name ...] [--data dir] [--full] [--json]
#   bash scripts/datasets.sh prepare cifar10|ucf101|imagenet <archive or folder> [--data dir]
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
coop_cmp datasets "$@"
