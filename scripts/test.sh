#!/usr/bin/env bash
# Run the tests; arguments go to pytest:
#   bash scripts/test.sh                   all, on up to four cores
#   bash scripts/test.sh tests/losses/test_cmp.py -k gradient
#   bash scripts/test.sh --device cuda     what compares a GPU with the CPU
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
find_python
cd "$ROOT"
if [ $# = 0 ]; then
    export OMP_NUM_THREADS=1
    set -- -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder
fi
exec "$PYTHON" -m pytest "$@"
