#!/usr/bin/env bash
# Train on the first half of the classes, test on both halves and show their harmonic mean:
#   bash scripts/base2new.sh digits 8
# The variables of main.sh choose methods, seeds, backbone, data and device.
set -euo pipefail
if [ $# -lt 2 ] && [ "${1:-}" != --help ]; then
    echo "usage: bash scripts/base2new.sh <dataset> <shots> [options, see --help]" >&2
    exit 2
fi
. "$(dirname "$0")/env.sh"
[ "${1:-}" != --help ] || exec "$PYTHON" -m coop_cmp.cli.protocols base2new --help
uses TRAINERS SEEDS LAMBDAS BACKBONE DATA DEVICE OUTPUT

# The lists are split at spaces on purpose.
# shellcheck disable=SC2086
exec "$PYTHON" -m coop_cmp.cli.protocols base2new --datasets "$1" --shots "$2" \
    --trainers ${TRAINERS:-ZeroshotCLIP CoOp CoOp_CMP} --seeds ${SEEDS:-1 2 3} \
    --lambdas ${LAMBDAS:-0.01} --project "$ROOT" --output "${OUTPUT:-$ROOT/output}" \
    ${BACKBONE:+--backbones $BACKBONE} ${DEVICE:+--devices $DEVICE} ${DATA:+--data "$DATA"} "${@:3}"
