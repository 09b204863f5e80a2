# Sourced by the other scripts: sets $ROOT, the project's folder, and gives them
#   find_python                              sets $PYTHON
#   coop_cmp COMMAND ...                     what `coop-cmp` does, of this clone
#   on_dataset COMMAND <dataset> <shots> ... the same, called as CoOp's scripts are
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export PYTHONPATH="$ROOT${PYTHONPATH:+:$PYTHONPATH}"
export PYTHONSAFEPATH=1 # a yaml.py in the folder one happens to be in is not imported

has_everything() {
    "$1" -c 'from importlib.util import find_spec; import sys
packages = "torch torchvision open_clip yacs tabulate sklearn matplotlib pandas jinja2 plotly pytest"
sys.exit(not all(map(find_spec, packages.split())))' >/dev/null 2>&1
}

# Sets $PYTHON to a Python that has everything the project needs. Where the current one has not, a
# virtual environment is made once, in .venv beside the project.
find_python() {
    if [ -z "${PYTHON:-}" ]; then
        PYTHON=$ROOT/.venv/bin/python
        [ -x "$PYTHON" ] || PYTHON=$(command -v python3 || command -v python)
    fi
    has_everything "$PYTHON" && return
    echo "Setting up: installing requirements.txt into $ROOT/.venv (once, a few minutes) ..." >&2
    "$PYTHON" -m venv "$ROOT/.venv" || exit 2
    PYTHON=$ROOT/.venv/bin/python
    # The paths in requirements.txt are relative to the project.
    (cd "$ROOT" && "$PYTHON" -m pip install --disable-pip-version-check -r requirements.txt >&2) ||
        exit 2
}

coop_cmp() {
    find_python
    exec "$PYTHON" -m coop_cmp.cli "$@"
}

on_dataset() {
    if [ $# -lt 3 ] || [[ $2 == -* ]]; then
        local usage="usage: bash scripts/$(basename "$0") <dataset> <shots> [options of coop-cmp $1]"
        [[ ${2:-} =~ ^(-h|--help)$ ]] || { echo "$usage" >&2 && exit 2; }
        echo "$usage" && coop_cmp "$1" --help
    fi
    coop_cmp "$1" "$2" --shots "${@:3}"
}
