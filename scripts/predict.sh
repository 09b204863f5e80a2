#!/usr/bin/env bash
# Class probabilities of images from a trained run:
#   bash scripts/predict.sh output/digits/CoOp_CMP/GlyphCLIP_8shots_lambda0.01/seed1 new_images
#   ... --max-error 0.05 --data dir     "don't know" where more than 5 % of answers would be wrong
#   ... --calibrator run --top 3 --csv  calibrated, three classes per image, for other programs
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
coop_cmp predict "$@"
