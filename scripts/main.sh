#!/usr/bin/env bash
# Zero-shot CLIP, CoOp and CoOp with the penalty on one data set, over seeds 1 to 3, as a table:
#   bash scripts/main.sh digits 8
#   bash scripts/main.sh ./my_images 4 --template "a photo of a {}, a breed of cat."
# Complete runs are skipped, an interrupted one is continued. Choose with the environment:
#   TRAINERS="CoOp CoOp_CMP" SEEDS="1 2 3" LAMBDAS=0.01 BACKBONE=RN50 DATA=dir DEVICE=cuda:0 OUTPUT=dir
set -euo pipefail
if [ $# -lt 2 ] && [ "${1:-}" != --help ]; then
    echo "usage: bash scripts/main.sh <dataset or folder> <shots> [options, see --help]" >&2
    exit 2
fi
. "$(dirname "$0")/env.sh"
[ "${1:-}" != --help ] || exec "$PYTHON" -m coop_cmp.cli.sweep --help
uses TRAINERS SEEDS LAMBDAS BACKBONE DATA DEVICE OUTPUT

# The lists are split at spaces on purpose.
# shellcheck disable=SC2086
exec "$PYTHON" -m coop_cmp.cli.sweep --datasets "$1" --shots "$2" \
    --trainers ${TRAINERS:-ZeroshotCLIP CoOp CoOp_CMP} --seeds ${SEEDS:-1 2 3} \
    --lambdas ${LAMBDAS:-0.01} --project "$ROOT" --output "${OUTPUT:-$ROOT/output}" \
    ${BACKBONE:+--backbones $BACKBONE} ${DEVICE:+--devices $DEVICE} ${DATA:+--data "$DATA"} "${@:3}"
