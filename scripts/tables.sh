#!/usr/bin/env bash
# The paper's tables by name, ours beside the paper's:
#   bash scripts/tables.sh list                                  all names
#   bash scripts/tables.sh run domain_calibration_metrics        do the runs of a table
#   bash scripts/tables.sh show domain_calibration_metrics       print it (--format markdown|latex|csv)
#   bash scripts/tables.sh embedded                              all tables in miniature, on a CPU
# --help after a verb lists its options.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
coop_cmp tables "$@"
