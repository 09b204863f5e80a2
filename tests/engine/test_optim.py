"""Optimizers and learning-rate schedules."""

from __future__ import annotations

import math

import pytest
import torch
from dassl.config import get_cfg_default
from dassl.optim import build_lr_scheduler, build_optimizer
from dassl.optim.radam import RAdam
from torch import nn


def optim_cfg(**settings):
    cfg = get_cfg_default().OPTIM
    cfg.NAME, cfg.LR, cfg.MAX_EPOCH = "sgd", 0.002, 6
    for key, value in settings.items():
        cfg[key] = value
    return cfg


def rates(scheduler, epochs: int) -> list[float]:
    """The rate of each epoch, as the optimizer sees it."""
    optimizer, seen = scheduler.optimizer, []
    for _ in range(epochs):
        seen.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return seen


def build(**settings):
    cfg = optim_cfg(**settings)
    return build_lr_scheduler(build_optimizer(nn.Linear(1, 1), cfg), cfg)


COSINE = [0.001 * (1 + math.cos(math.pi * epoch / 6)) for epoch in range(6)]
CASES = {
    "cosine": ({"LR_SCHEDULER": "cosine"}, COSINE),
    "constant warm-up of 1 epoch": (
        {"LR_SCHEDULER": "cosine", "WARMUP_EPOCH": 1, "WARMUP_TYPE": "constant"},
        [1e-5, *COSINE[:5]],
    ),
    "constant warm-up of 2 epochs": (
        {"LR_SCHEDULER": "cosine", "WARMUP_EPOCH": 2, "WARMUP_TYPE": "constant"},
        [1e-5, 1e-5, *COSINE[:4]],
    ),
    "linear warm-up of 3 epochs": (
        {"LR_SCHEDULER": "cosine", "WARMUP_EPOCH": 3, "WARMUP_TYPE": "linear"},
        [1e-5, 0.002 / 3, 0.004 / 3, *COSINE[:3]],
    ),
    "constant warm-up without recount": (
        {
            "LR_SCHEDULER": "cosine",
            "WARMUP_EPOCH": 2,
            "WARMUP_TYPE": "constant",
            "WARMUP_RECOUNT": False,
        },
        [1e-5, 1e-5, 0.002, 0.001333, 0.000667, 0.000179],
    ),
    "single step": ({"STEPSIZE": (2,)}, [0.002, 0.002, 2e-4, 2e-4, 2e-5, 2e-5]),
    "single step at the end": ({"STEPSIZE": (-1,)}, [0.002] * 6),
    "multi step": (
        {"LR_SCHEDULER": "multi_step", "STEPSIZE": (2, 4)},
        [0.002, 0.002, 2e-4, 2e-4, 2e-5, 2e-5],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_each_schedule_has_the_published_rates(name):
    settings, expected = CASES[name]
    assert rates(build(**settings), 6) == pytest.approx(expected, abs=5e-7)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("stop", [1, 2, 3, 5])
def test_a_restored_schedule_goes_on_where_it_stopped(name, stop):
    settings, _ = CASES[name]
    whole = rates(build(**settings), 6)
    first = build(**settings)
    rates(first, stop)
    second = build(**settings)
    second.load_state_dict(first.state_dict())
    second.optimizer.load_state_dict(first.optimizer.state_dict())
    assert rates(second, 6 - stop) == whole[stop:]


def test_unknown_names_are_refused_with_the_closest():
    with pytest.raises(ValueError, match=r"do you mean \[cosine\]"):
        build(LR_SCHEDULER="cosin")
    with pytest.raises(ValueError, match=r"do you mean \[constant\]"):
        build(WARMUP_EPOCH=1, WARMUP_TYPE="constnt")
    with pytest.raises(ValueError, match=r"do you mean \[adamw\]"):
        build(NAME="adamww")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("adam", torch.optim.Adam),
        ("amsgrad", torch.optim.Adam),
        ("sgd", torch.optim.SGD),
        ("rmsprop", torch.optim.RMSprop),
        ("radam", RAdam),
        ("adamw", torch.optim.AdamW),
    ],
)
def test_each_optimizer_takes_its_settings(name, kind):
    cfg = optim_cfg(NAME=name, MOMENTUM=0.8, WEIGHT_DECAY=0.02, ADAM_BETA1=0.7, RMSPROP_ALPHA=0.6)
    optimizer = build_optimizer(nn.Linear(1, 1), cfg)
    assert type(optimizer) is kind
    defaults = optimizer.defaults
    assert (defaults["lr"], defaults["weight_decay"]) == (0.002, 0.02)
    assert defaults.get("momentum", 0.8) == 0.8
    assert defaults.get("betas", (0.7,))[0] == 0.7
    assert defaults.get("alpha", 0.6) == 0.6
    assert defaults.get("amsgrad", False) == (name == "amsgrad")


def test_parameters_and_groups_can_be_given_instead_of_a_module():
    cfg, layer = optim_cfg(), nn.Linear(2, 2)
    assert len(build_optimizer(layer.parameters(), cfg).param_groups[0]["params"]) == 2
    assert build_optimizer([{"params": [layer.bias], "lr": 7.0}], cfg).param_groups[0]["lr"] == 7
    groups = build_optimizer(layer, cfg, param_groups=[{"params": [layer.bias]}]).param_groups
    assert groups[0]["params"][0] is layer.bias


def test_staged_rates_slow_down_all_but_the_new_layers():
    model = nn.ModuleDict({"old": nn.Linear(2, 2), "new": nn.Linear(2, 3)})
    cfg = optim_cfg(STAGED_LR=True, NEW_LAYERS=("new",))
    groups = build_optimizer(model, cfg).param_groups
    assert {group["params"][0].shape[0]: group["lr"] for group in groups} == {2: 0.0002, 3: 0.002}
    with pytest.raises(TypeError, match="STAGED_LR needs a module"):
        build_optimizer(model.parameters(), cfg)


def plain_radam(start: float, gradients: list[float], degenerated_to_sgd: bool) -> list[float]:
    """The weights after each step of algorithm 2 of the paper, with lr 0.1 and decay 0.2."""
    weight, first, second, seen = start, 0.0, 0.0, []
    for t, gradient in enumerate(gradients, start=1):
        first, second = 0.9 * first + 0.1 * gradient, 0.99 * second + 0.01 * gradient**2
        longest = 2 / (1 - 0.99) - 1
        length = longest - 2 * t * 0.99**t / (1 - 0.99**t)
        step = first / (1 - 0.9**t)
        if length > 5:
            numerator = (length - 4) * (length - 2) * longest
            rectified = math.sqrt(numerator / ((longest - 4) * (longest - 2) * length))
            step *= rectified / math.sqrt(second / (1 - 0.99**t))
        if length > 5 or degenerated_to_sgd:
            weight -= 0.1 * 0.2 * weight + 0.1 * step
        seen.append(weight)
    return seen


@pytest.mark.parametrize("degenerated_to_sgd", [True, False])
def test_radam_steps_as_the_paper_says_with_decoupled_decay(degenerated_to_sgd):
    gradients = [0.3, -0.2, 0.5, 0.1, 0.4, -0.3, 0.2, 0.6, -0.1, 0.2]
    weight = nn.Parameter(torch.tensor([2.0], dtype=torch.float64))
    optimizer = RAdam([weight], 0.1, (0.9, 0.99), 1e-12, 0.2, degenerated_to_sgd)
    seen = []
    for gradient in gradients:
        weight.grad = torch.tensor([gradient], dtype=torch.float64)
        optimizer.step()
        seen.append(weight.item())
    assert seen == pytest.approx(plain_radam(2.0, gradients, degenerated_to_sgd))
    assert (seen[0] == 2.0) == (not degenerated_to_sgd)
    assert optimizer.param_groups[0]["lr"] == 0.1
