#!/usr/bin/env bash
# What the feature store holds and how large it is; with --prune DAYS delete what no run used since:
#   bash scripts/store.sh [--prune 30] [--store DIR]
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
coop_cmp store "$@"
