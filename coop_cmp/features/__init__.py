"""Image features that depend on nothing learned: stored once, and the views of training images."""
