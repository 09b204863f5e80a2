"""Use a trained run: predictions for new images, selective prediction, export."""
