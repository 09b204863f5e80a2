"""What a run is and what it left: identity, records, the frame of all runs, differences.

``coop_cmp.runs.load("output")`` gives a pandas DataFrame with a row per run; tables, figures,
searches and pages are views of it. ``coop-cmp results output --csv`` prints it.
"""

from coop_cmp.runs.compare import Comparer, Difference, corrected, difference, holm
from coop_cmp.runs.frame import load, make_frame
from coop_cmp.runs.identity import Identity, claim, identify, read_identity
from coop_cmp.runs.records import (
    OUTCOMES_FILE,
    PREDICTIONS_FILE,
    RESULTS_FILE,
    Outcomes,
    Predictions,
    read_outcomes,
    read_predictions,
    read_results,
    write_outcomes,
    write_predictions,
    write_results,
)

__all__ = [
    "OUTCOMES_FILE",
    "PREDICTIONS_FILE",
    "RESULTS_FILE",
    "Comparer",
    "Difference",
    "Identity",
    "Outcomes",
    "Predictions",
    "claim",
    "corrected",
    "difference",
    "holm",
    "identify",
    "load",
    "make_frame",
    "read_identity",
    "read_outcomes",
    "read_predictions",
    "read_results",
    "write_outcomes",
    "write_predictions",
    "write_results",
]
