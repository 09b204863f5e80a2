#!/usr/bin/env bash
# The paper's tables by name, ours beside the paper's figures:
#   bash scripts/tables.sh list                                  all names
#   bash scripts/tables.sh run domain_calibration_metrics        do the runs behind a table
#   bash scripts/tables.sh show domain_calibration_metrics       print it (--format markdown|latex|csv)
#   bash scripts/tables.sh embedded                              all tables in miniature, on a CPU
# DATA, DEVICE and OUTPUT mean the same as in main.sh; --help after a verb lists the options.
set -euo pipefail
. "$(dirname "$0")/env.sh"

verb=${1:---help}
options=()
case $verb in
run | embedded)
    uses DATA DEVICE OUTPUT
    options=(${DEVICE:+--devices $DEVICE} ${DATA:+--data "$DATA"})
    ;;
show) uses OUTPUT ;;
*) uses ;;
esac
case $verb in
run | show | embedded) options+=(--project "$ROOT" --output "${OUTPUT:-$ROOT/output}") ;;
esac
exec "$PYTHON" -m coop_cmp.cli.tables "$verb" ${options[@]+"${options[@]}"} "${@:2}"
