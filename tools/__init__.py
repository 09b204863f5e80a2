"""Tools that are not installed."""
