#!/usr/bin/env bash
# Is my set-up right? Compares CLIP's weights and zero-shot accuracies with the published ones:
#   bash scripts/validate.sh --backbone RN50 --data /path/to/data
#   ... --checkpoint dir     tests a published CoOp checkpoint as well
#   ... --train              trains CoOp at 16 shots on the smallest data set that is there
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
coop_cmp validate "$@"
