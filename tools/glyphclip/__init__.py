"""Pre-training of GlyphCLIP, the embedded model."""
