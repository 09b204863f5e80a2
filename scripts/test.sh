#!/usr/bin/env bash
# Run the tests; arguments go to pytest:
#   bash scripts/test.sh
#   bash scripts/test.sh tests/test_penalty.py -k gradient
set -euo pipefail
. "$(dirname "$0")/env.sh"
cd "$ROOT"
exec "$PYTHON" -m pytest "$@"
