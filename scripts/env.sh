# Sourced by the other scripts: sets $PYTHON to a Python that has everything this project needs.
# Where the current one has not, a virtual environment is made once, beside the project, in .venv.
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$ROOT"
export PYTHONPATH="$ROOT${PYTHONPATH:+:$PYTHONPATH}"

has_everything() {
    "$1" -c 'from importlib.util import find_spec as f; import sys
sys.exit(not all(map(f, "dassl torch torchvision open_clip yacs tabulate sklearn pytest".split())))' \
        >/dev/null 2>&1
}

if [ -z "${PYTHON:-}" ]; then
    if [ -x .venv/bin/python ]; then PYTHON=$ROOT/.venv/bin/python; else PYTHON=$(command -v python3 || command -v python); fi
fi
if ! has_everything "$PYTHON"; then
    echo "Setting up: installing requirements.txt into $ROOT/.venv (once, a few minutes) ..." >&2
    "$PYTHON" -m venv .venv || exit 2
    PYTHON=$ROOT/.venv/bin/python
    "$PYTHON" -m pip install --quiet --disable-pip-version-check -r requirements.txt || exit 2
fi
