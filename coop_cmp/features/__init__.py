"""Image features that depend on nothing learned: stored once, and the views they are made of."""
