#!/usr/bin/env bash
# All runs of a directory as one HTML file, which needs no network and no server:
#   bash scripts/report.sh output                      makes output/report.html
#   bash scripts/report.sh output/digits --to page.html
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
coop_cmp report "$@"
