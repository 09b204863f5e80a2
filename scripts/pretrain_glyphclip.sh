#!/usr/bin/env bash
# Pre-trains GlyphCLIP on rendered signs: makes its weights and their log again.
#   bash scripts/pretrain_glyphclip.sh [folder, default output/glyphclip] [options of the program]
# The folder configs/models replaces the weights that the project ships.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
find_python
folder=$ROOT/output/glyphclip
if [ $# -gt 0 ] && [[ $1 != -* ]]; then
    folder=$1
    shift
fi
mkdir -p "$folder"
"$PYTHON" -m tools.glyphclip.pretrain --output "$folder/GlyphCLIP.safetensors" "$@" |
    tee "$folder/.GlyphCLIP.log"
mv "$folder/.GlyphCLIP.log" "$folder/GlyphCLIP.log"
