#!/usr/bin/env bash
# Choose the weight of the penalty by a line search on validation images, per method:
#   bash scripts/lambda.sh digits 8
#   bash scripts/lambda.sh digits 8 --trainers CoOp KgCoOp --lambdas 0.01 0.1
# Options: those of coop-cmp lambda (--help).
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
on_dataset lambda "$@"
