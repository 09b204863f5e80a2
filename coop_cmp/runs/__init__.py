"""What a run is and what it left: identity, records, the frame of all runs, differences.

``coop_cmp.runs.load("output")`` gives a pandas DataFrame with a row per run; tables, figures,
searches and pages are views of it. ``coop-cmp results output --csv`` prints it.
"""

from coop_cmp.runs.compare import Comparer, Difference
from coop_cmp.runs.frame import load
from coop_cmp.runs.outputs import Outcomes, Predictions, read_outcomes, read_predictions
from coop_cmp.runs.records import read_results

__all__ = [
    "Comparer",
    "Difference",
    "Outcomes",
    "Predictions",
    "load",
    "read_outcomes",
    "read_predictions",
    "read_results",
]
