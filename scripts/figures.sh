#!/usr/bin/env bash
# Draw the figures of stored runs: reliability diagrams, confidences of correct and incorrect
# predictions, risk against coverage, calibration per class, Figure 1 of the paper, and curves over
# lambda and shots. Each method is drawn beside its CMP twin, all seeds pooled.
#
#   bash scripts/figures.sh output/digits                      into output/digits/figures
#   bash scripts/figures.sh a/predictions.npz b/predictions.npz --to figures
#   bash scripts/figures.sh output/digits --class 8            the class that Figure 1 shows
#   bash scripts/figures.sh output --column-width 3.25 --no-title --formats pdf
#   bash scripts/figures.sh --help
# Paths are seen from where you are.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
uses
exec "$PYTHON" -m coop_cmp.report.figures "$@"
