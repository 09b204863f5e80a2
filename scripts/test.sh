#!/usr/bin/env bash
# Run the tests; arguments go to pytest:
#   bash scripts/test.sh
#   bash scripts/test.sh tests/test_penalty.py -k gradient
#   bash scripts/test.sh --device cuda     what compares a GPU with the CPU
set -euo pipefail
. "$(dirname "$0")/env.sh"
cd "$ROOT"
exec "$PYTHON" -m pytest "$@"
