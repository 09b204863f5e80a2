#!/usr/bin/env bash
# Shots x seeds x lambdas for one data set, several, or all of the paper's eleven:
#   bash scripts/sweep.sh digits
#   bash scripts/sweep.sh all --shots 1 2 4 8 --lambdas 0.01 0.1 --dry-run
#   bash scripts/sweep.sh my_grid.yaml --jobs 4
# A YAML file holds any grid (docs/reproducing.md). Options: those of coop-cmp sweep (--help).
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
coop_cmp sweep "$@"
