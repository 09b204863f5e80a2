"""Calibration after training: predictions in, predictions out, in NumPy.

A ``fit_...`` function takes logits [N, C] and labels [N] and gives a calibrator, which maps logits
to calibrated logits; SaLS and DAC need no labels.
"""

from coop_cmp.calibrate.affine import Affine, fit_dirichlet, fit_vector
from coop_cmp.calibrate.dac import DAC, class_factors
from coop_cmp.calibrate.onevsrest import Histogram, Isotonic, fit_histogram, fit_isotonic
from coop_cmp.calibrate.sals import scale_to_zero_shot
from coop_cmp.calibrate.temperature import Temperature, fit_temperature

__all__ = [
    "DAC",
    "Affine",
    "Histogram",
    "Isotonic",
    "Temperature",
    "class_factors",
    "fit_dirichlet",
    "fit_histogram",
    "fit_isotonic",
    "fit_temperature",
    "fit_vector",
    "scale_to_zero_shot",
]
