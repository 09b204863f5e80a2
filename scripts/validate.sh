#!/usr/bin/env bash
# Is my set-up right? Checks CLIP's weights and zero-shot accuracies against the published ones:
#   bash scripts/validate.sh --backbone RN50 --data /path/to/data
#   ... --checkpoint dir     tests a published CoOp checkpoint as well
#   ... --train              trains CoOp at 16 shots on the smallest data set that is there
set -euo pipefail
. "$(dirname "$0")/env.sh"
uses DATA OUTPUT
exec "$PYTHON" -m coop_cmp.cli.validate --project "$ROOT" --output "${OUTPUT:-$ROOT/output}" \
    ${DATA:+--data "$DATA"} "$@"
