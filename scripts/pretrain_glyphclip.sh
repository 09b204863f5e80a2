#!/usr/bin/env bash
# Pre-trains GlyphCLIP on rendered digits and letters: makes its weights and their log again.
#   bash scripts/pretrain_glyphclip.sh [folder, default configs/models] [options of the program]
set -euo pipefail
. "$(dirname "$0")/env.sh"
folder=${1:-$ROOT/configs/models}
mkdir -p "$folder"
"$PYTHON" -m coop_cmp.glyph.pretrain --output "$folder/GlyphCLIP.safetensors" "${@:2}" |
    tee "$folder/.GlyphCLIP.log"
mv "$folder/.GlyphCLIP.log" "$folder/GlyphCLIP.log"
