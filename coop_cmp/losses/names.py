"""The training-time terms by name: what a trainer is called, and where a term's settings live.

``CoOp_MbLS`` is the trainer CoOp with the term MbLS, whose settings are in ``TRAINER.MBLS``. This
module works without torch, so that sweeps and tables can read names cheaply.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

WEIGHT = "LAMBDA"  # the setting that weighs a term which is added to the cross-entropy
Need = Literal["zero_shot_logits", "text_features"]


@dataclass(frozen=True)
class Term:
    """A training-time term.

    Attributes:
        name: The end of its trainers' names.
        title: For people.
        settings: Keys of its config node, with their defaults. In lower case they are the arguments
            of its function, except for the weight.
        needs: What its function takes besides logits and labels.
    """

    name: str
    title: str
    settings: Mapping[str, float | str] = field(default_factory=dict)
    needs: tuple[Need, ...] = ()

    @property
    def node(self) -> str:
        """The name of its node below ``TRAINER``."""
        return self.name.upper()

    @property
    def weight_key(self) -> str | None:
        """The setting that is 0 for the plain trainer; None if the term replaces cross-entropy."""
        return WEIGHT if WEIGHT in self.settings else None

    @property
    def replaces(self) -> bool:
        """Whether it takes the place of the cross-entropy."""
        return self.weight_key is None


TERMS: dict[str, Term] = {
    term.name: term
    for term in (
        Term(
            "CMP",
            "the confidence misalignment penalty",
            {"LAMBDA": 0.01, "FORM": "ratio", "EPS": 1e-10},
        ),
        Term("LS", "label smoothing", {"LAMBDA": 0.05}),
        Term("Focal", "the focal loss", {"GAMMA": 3.0}),
        Term(
            "FLSD",
            "the sample-dependent focal loss",
            {"GAMMA": 3.0, "GAMMA_UNSURE": 5.0, "THRESHOLD": 0.2},
        ),
        Term("ECP", "the penalty on confident outputs", {"LAMBDA": 0.1}),
        Term("MbLS", "margin-based label smoothing", {"LAMBDA": 0.1, "MARGIN": 10.0}),
        Term("MDCA", "the multi-class difference of confidence and accuracy", {"LAMBDA": 1.0}),
        Term("DCA", "the difference of confidence and accuracy", {"LAMBDA": 1.0}),
        Term("MMCE", "the maximum mean calibration error", {"LAMBDA": 2.0, "WIDTH": 0.4}),
        Term("Brier", "the Brier score"),
        Term("ZSNorm", "zero-shot normalisation", needs=("zero_shot_logits",)),
        Term("ZSPenalty", "the zero-shot range penalty", {"LAMBDA": 10.0}, ("zero_shot_logits",)),
        Term(
            "TCPT",
            "margin regularisation and text moment matching",
            {"LAMBDA": 1.0, "ALPHA": 0.1, "BETA": 0.01, "MOMENTS": 5.0},
            ("text_features",),
        ),
    )
}


def split_trainer(name: str) -> tuple[str, str | None]:
    """The plain trainer and the term of a trainer's name.

    Example:
        >>> split_trainer("CoOp_MbLS"), split_trainer("CoOp")
        (('CoOp', 'MbLS'), ('CoOp', None))
    """
    plain, _, term = name.rpartition("_")
    return (plain, term) if plain and term in TERMS else (name, None)


def twin_of(trainer: str, term: str = "CMP") -> str:
    """The name of the trainer with the term: ``CoOp_CMP``."""
    return f"{trainer}_{term}"


def settings_of(cfg: Any, term: str) -> dict[str, Any]:
    """The settings of a term in a config, by key; without those that the config does not have."""
    node = getattr(cfg.TRAINER, TERMS[term].node, {})
    return {key: node[key] for key in TERMS[term].settings if key in node}
