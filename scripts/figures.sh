#!/usr/bin/env bash
# Draw the figures of stored runs: reliability diagrams, confidences, risk against coverage,
# calibration per class, Figure 1 of the paper, and curves over lambda and shots:
#   bash scripts/figures.sh output/digits                      into output/digits/figures
#   bash scripts/figures.sh a/predictions.npz b/predictions.npz --to figures
#   bash scripts/figures.sh output --column-width 3.25 --no-title --formats pdf
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
coop_cmp figures "$@"
