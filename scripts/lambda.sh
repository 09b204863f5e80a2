#!/usr/bin/env bash
# The line search for the weight of the penalty, per method, on the few-shot validation part:
#   bash scripts/lambda.sh digits 8
# Choose with TRAINERS="CoOp KgCoOp", LAMBDAS="0.01 0.1" and the variables of main.sh.
set -euo pipefail
if [ $# -lt 2 ] && [ "${1:-}" != --help ]; then
    echo "usage: bash scripts/lambda.sh <dataset> <shots> [--metric ece|ace|mce] [options]" >&2
    exit 2
fi
. "$(dirname "$0")/env.sh"
[ "${1:-}" != --help ] || exec "$PYTHON" -m coop_cmp.cli.selection --help
uses TRAINERS SEEDS LAMBDAS BACKBONE DATA DEVICE OUTPUT

# The lists are split at spaces on purpose.
# shellcheck disable=SC2086
exec "$PYTHON" -m coop_cmp.cli.selection --datasets "$1" --shots "$2" \
    --trainers ${TRAINERS:-CoOp} --seeds ${SEEDS:-1 2 3} ${LAMBDAS:+--lambdas $LAMBDAS} \
    --project "$ROOT" --output "${OUTPUT:-$ROOT/output}" ${BACKBONE:+--backbones $BACKBONE} \
    ${DEVICE:+--devices $DEVICE} ${DATA:+--data "$DATA"} "${@:3}"
