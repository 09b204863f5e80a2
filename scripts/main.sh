#!/usr/bin/env bash
# Zero-shot CLIP, CoOp and CoOp with the penalty on one data set, over seeds 1 to 3, as a table:
#   bash scripts/main.sh digits 8
#   bash scripts/main.sh ./my_images 4 --template "a photo of a {}, a breed of cat."
#   bash scripts/main.sh oxford_pets 8 --data /path/to/data --trainers KgCoOp KgCoOp_CMP
# Complete runs are skipped and interrupted ones resume. Options: those of coop-cmp sweep (--help).
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
on_dataset sweep "$@"
