"""GlyphCLIP, the very small CLIP of the embedded default: renderer, captions, pre-training."""
