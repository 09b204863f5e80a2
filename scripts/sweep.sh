#!/usr/bin/env bash
# Shots x seeds x lambdas for one data set, several, or all of the paper's eleven:
#   bash scripts/sweep.sh digits
#   SHOTS="1 2 4 8" LAMBDAS="0.01 0.1" bash scripts/sweep.sh all --dry-run
#   bash scripts/sweep.sh my_grid.yaml --jobs 4
# A YAML file holds any grid (docs/reproducing.md); the variables of main.sh choose the rest.
set -euo pipefail

names=()
while [ $# -gt 0 ] && [[ $1 != -* ]]; do
    names+=("$1")
    shift
done
# Names come first, and a grid file alone.
if [ ${#names[@]} -eq 0 ] || { [[ " ${names[*]} " == *".yaml "* ]] && [ ${#names[@]} -gt 1 ]; }; then
    echo "usage: bash scripts/sweep.sh <dataset ...|all|grid.yaml> [options, see --help]" >&2
    exit 2
fi
. "$(dirname "$0")/env.sh"

if [ "${names[*]}" = all ]; then
    names=(caltech101 oxford_pets stanford_cars oxford_flowers food101 fgvc_aircraft sun397 dtd
        eurosat ucf101 imagenet)
fi
if [[ ${names[0]} == *.yaml ]]; then
    uses BACKBONE DATA DEVICE OUTPUT
    grid=("${names[0]}")
else
    uses TRAINERS SEEDS SHOTS LAMBDAS BACKBONE DATA DEVICE OUTPUT
    grid=(--datasets "${names[@]}" --shots ${SHOTS:-1 2 4 8 16} --seeds ${SEEDS:-1 2 3}
        --trainers ${TRAINERS:-ZeroshotCLIP CoOp CoOp_CMP} --lambdas ${LAMBDAS:-0.01})
fi
exec "$PYTHON" -m coop_cmp.cli.sweep "${grid[@]}" --project "$ROOT" --output "${OUTPUT:-$ROOT/output}" \
    ${BACKBONE:+--backbones $BACKBONE} ${DEVICE:+--devices $DEVICE} ${DATA:+--data "$DATA"} "$@"
