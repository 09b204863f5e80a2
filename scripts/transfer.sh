#!/usr/bin/env bash
# Train on one data set, test on others with the same learned prompts:
#   bash scripts/transfer.sh digits 8          on its four shifts
#   bash scripts/transfer.sh imagenet 16       domain generalisation: V2, Sketch, A and R
#   TARGETS="caltech101 oxford_pets dtd" bash scripts/transfer.sh imagenet 16      cross-data-set
# ImageNet-A and -R are tested over their own 200 classes. The variables of main.sh choose the rest.
set -euo pipefail
if [ $# -lt 2 ] && [ "${1:-}" != --help ]; then
    echo "usage: bash scripts/transfer.sh <dataset> <shots> [options, see --help]" >&2
    exit 2
fi
. "$(dirname "$0")/env.sh"
[ "${1:-}" != --help ] || exec "$PYTHON" -m coop_cmp.cli.protocols transfer --help
uses TRAINERS SEEDS LAMBDAS TARGETS BACKBONE DATA DEVICE OUTPUT

# The lists are split at spaces on purpose.
# shellcheck disable=SC2086
exec "$PYTHON" -m coop_cmp.cli.protocols transfer --datasets "$1" --shots "$2" \
    ${TARGETS:+--targets $TARGETS} \
    --trainers ${TRAINERS:-ZeroshotCLIP CoOp CoOp_CMP} --seeds ${SEEDS:-1 2 3} \
    --lambdas ${LAMBDAS:-0.01} --project "$ROOT" --output "${OUTPUT:-$ROOT/output}" \
    ${BACKBONE:+--backbones $BACKBONE} ${DEVICE:+--devices $DEVICE} ${DATA:+--data "$DATA"} "${@:3}"
