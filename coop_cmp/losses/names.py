"""The training-time terms by name: what a trainer is called, and where a term's settings live.

``CoOp_MbLS`` is the trainer CoOp with the term MbLS, whose settings are in ``TRAINER.MBLS``. This
module works without torch, so that sweeps and tables can read names cheaply.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from coop_cmp.config import SETTINGS, Setting, choice, declare, number

WEIGHT = "LAMBDA"  # the setting that weighs a term which is added to the cross-entropy
Need = Literal["zero_shot_logits", "text_features"]

declare(
    "TRAINER.CMP",
    LAMBDA=number(0.01, "weight of the penalty", low=0),
    FORM=choice(
        "ratio",
        ("ratio", "log"),
        'form of the penalty: equation 2 ("ratio") or the boundedness proof ("log")',
    ),
    EPS=number(1e-10, "constant added to the sum of the competitors' probabilities", above=0),
)
declare("TRAINER.LS", LAMBDA=number(0.05, "share of the target for all classes", low=0, high=1))
declare("TRAINER.FOCAL", GAMMA=number(3.0, "exponent; 0 is cross-entropy", low=0))
declare(
    "TRAINER.FLSD",
    GAMMA=number(3.0, "exponent of samples whose probability reaches the threshold", low=0),
    GAMMA_UNSURE=number(5.0, "exponent of all others", low=0),
    THRESHOLD=number(0.2, "threshold of the true class's probability", low=0, high=1),
)
declare("TRAINER.ECP", LAMBDA=number(0.1, "weight of the entropy", low=0))
declare(
    "TRAINER.MBLS",
    LAMBDA=number(0.1, "weight of the distances", low=0),
    MARGIN=number(10.0, "distance to the largest logit without a penalty", low=0),
)
declare("TRAINER.MDCA", LAMBDA=number(1.0, "weight of the term", low=0))
declare("TRAINER.DCA", LAMBDA=number(1.0, "weight of the term", low=0))
declare(
    "TRAINER.MMCE",
    LAMBDA=number(2.0, "weight of the term", low=0),
    WIDTH=number(0.4, "width of the kernel", above=0),
)
declare("TRAINER.ZSPENALTY", LAMBDA=number(10.0, "weight of the distances", low=0))
declare(
    "TRAINER.TCPT",
    LAMBDA=number(1.0, "weight of the whole term", low=0),
    ALPHA=number(0.1, "weight of the mean margin", low=0),
    BETA=number(0.01, "weight of the margin's variance", low=0),
    MOMENTS=number(5.0, "weight of the distance of the text features' moments", low=0),
)


@dataclass(frozen=True)
class Term:
    """A training-time term.

    Attributes:
        name: The end of its trainers' names.
        title: For people.
        needs: What its function takes besides logits and labels.
    """

    name: str
    title: str
    needs: tuple[Need, ...] = ()

    @property
    def node(self) -> str:
        """The name of its node below ``TRAINER``."""
        return self.name.upper()

    @cached_property  # trainers ask in every step
    def settings(self) -> dict[str, Setting]:
        """Its settings by key; in lower case, all but the weight are arguments of its function."""
        prefix = f"TRAINER.{self.node}."
        return {k.removeprefix(prefix): s for k, s in SETTINGS.items() if k.startswith(prefix)}

    @cached_property
    def replaces(self) -> bool:
        """Whether it takes the place of the cross-entropy."""
        return WEIGHT not in self.settings


TERMS: dict[str, Term] = {
    term.name: term
    for term in (
        Term("CMP", "the confidence misalignment penalty"),
        Term("LS", "label smoothing"),
        Term("Focal", "the focal loss"),
        Term("FLSD", "the sample-dependent focal loss"),
        Term("ECP", "the penalty on confident outputs"),
        Term("MbLS", "margin-based label smoothing"),
        Term("MDCA", "the multi-class difference of confidence and accuracy"),
        Term("DCA", "the difference of confidence and accuracy"),
        Term("MMCE", "the maximum mean calibration error"),
        Term("Brier", "the Brier score"),
        Term("ZSNorm", "zero-shot normalisation", ("zero_shot_logits",)),
        Term("ZSPenalty", "the zero-shot range penalty", ("zero_shot_logits",)),
        Term("TCPT", "margin regularisation and text moment matching", ("text_features",)),
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
