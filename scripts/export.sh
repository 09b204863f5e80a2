#!/usr/bin/env bash
# A trained run as a safetensors file that open_clip alone can use (docs/predict.md):
#   bash scripts/export.sh output/digits/CoOp_CMP/GlyphCLIP_8shots_lambda0.01/seed1 digits.safetensors
#   ... --calibrator run                with the temperature or vector that coop-cmp calibrate found
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
coop_cmp export "$@"
