# Sourced by the other scripts: sets $ROOT, the project's folder, and $PYTHON to a Python that has
# everything the project needs. Where the current one has not, a virtual environment is made once,
# in .venv beside the project.
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export PYTHONPATH="$ROOT${PYTHONPATH:+:$PYTHONPATH}"
export PYTHONSAFEPATH=1 # a yaml.py in the folder one happens to be in is not imported

# Refuses a variable that the script would ignore: uses NAME ... lists those it reads.
uses() {
    local name
    for name in TRAINERS SEEDS SHOTS LAMBDAS LAMBDA TARGETS BACKBONE DATA DEVICE OUTPUT; do
        if [ -n "${!name:-}" ] && [[ " $* " != *" $name "* ]]; then
            echo "error: $(basename "$0") does not use $name; unset it$(
                [ $name = LAMBDA ] && [[ " $* " == *" LAMBDAS "* ]] && echo " or call it LAMBDAS"
            )" >&2
            exit 2
        fi
    done
}

has_everything() {
    "$1" -c 'from importlib.util import find_spec as f; import sys
sys.exit(not all(map(f, "torch torchvision open_clip yacs tabulate sklearn matplotlib pandas jinja2 plotly pytest".split())))' \
        >/dev/null 2>&1
}

if [ -z "${PYTHON:-}" ]; then
    PYTHON=$ROOT/.venv/bin/python
    [ -x "$PYTHON" ] || PYTHON=$(command -v python3 || command -v python)
fi
if ! has_everything "$PYTHON"; then
    echo "Setting up: installing requirements.txt into $ROOT/.venv (once, a few minutes) ..." >&2
    "$PYTHON" -m venv "$ROOT/.venv" || exit 2
    PYTHON=$ROOT/.venv/bin/python
    # The paths in requirements.txt are relative to the project.
    (cd "$ROOT" && "$PYTHON" -m pip install --quiet --disable-pip-version-check \
        -r requirements.txt) || exit 2
fi
