"""Sweeps: a small grid becomes runs, the runs become processes, each result is kept once."""
