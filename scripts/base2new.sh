#!/usr/bin/env bash
# Train on the first half of the classes, test on both halves and show their harmonic mean:
#   bash scripts/base2new.sh digits 8
# Options: those of coop-cmp base2new (--help).
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
on_dataset base2new "$@"
