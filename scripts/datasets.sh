#!/usr/bin/env bash
# Checks the data sets on disk, or brings an archive into the expected layout (docs/datasets.md):
#   bash scripts/datasets.sh check [name ...] [--root dir] [--full] [--json]
#   bash scripts/datasets.sh prepare cifar10|ucf101|imagenet <archive or folder> [--root dir]
# The root is $DATA by default, or data.
set -euo pipefail
. "$(dirname "$0")/env.sh"
exec "$PYTHON" -m coop_cmp.datasets.tools "$@"
