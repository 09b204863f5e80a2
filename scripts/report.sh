#!/usr/bin/env bash
# All runs of a directory as one HTML file to look at, which needs no network and no server:
#   bash scripts/report.sh output                      makes output/report.html
#   bash scripts/report.sh output/digits --to page.html
#   bash scripts/report.sh --help
# Paths are seen from where you are.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
uses
exec "$PYTHON" -m coop_cmp.cli.report "$@"
