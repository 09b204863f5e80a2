"""Each calibrator against its definition or a library, and on a miscalibration that is known."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax

from coop_cmp.calibrate import (
    DAC,
    class_factors,
    fit_dirichlet,
    fit_histogram,
    fit_isotonic,
    fit_temperature,
    fit_vector,
    scale_to_zero_shot,
)
from coop_cmp.errors import UserError

FITS = {
    "temperature": fit_temperature,
    "vector": fit_vector,
    "dirichlet": fit_dirichlet,
    "isotonic": fit_isotonic,
    "histogram": fit_histogram,
}


def sample(n: int, classes: int = 8, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Logits [N, C] whose softmax is the truth, and labels drawn from it."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 2, (n, classes))
    labels = (rng.random(n)[:, None] > softmax(logits, axis=1).cumsum(1)).sum(1)
    return logits, labels.clip(max=classes - 1)


def nll(logits: np.ndarray, labels: np.ndarray) -> float:
    return -log_softmax(logits, axis=1)[np.arange(len(labels)), labels].mean()


def gap(logits: np.ndarray, labels: np.ndarray) -> float:
    """Mean confidence minus accuracy."""
    return softmax(logits, axis=1).max(1).mean() - (logits.argmax(1) == labels).mean()


@pytest.mark.parametrize("name", FITS)
@pytest.mark.parametrize("factor", [0.4, 3.0])
def test_a_wrong_scale_is_removed(name, factor):
    fitted, tested = sample(2000), sample(4000, seed=1)
    wrong = factor * tested[0]
    calibrated = FITS[name](factor * fitted[0], fitted[1])(wrong)
    by_class = name in ("isotonic", "histogram")  # which sees one probability at a time
    assert abs(gap(wrong, tested[1])) > 0.1
    assert abs(gap(calibrated, tested[1])) < (0.05 if by_class else 0.02)
    best = nll(*tested)
    share = 0.7 if by_class else 0.05
    assert nll(calibrated, tested[1]) - best < share * (nll(wrong, tested[1]) - best)


@pytest.mark.parametrize("name", ["vector", "dirichlet", "isotonic"])
def test_a_shift_of_single_classes_is_removed_where_temperature_cannot(name):
    fitted, tested = sample(4000), sample(4000, seed=1)
    shift = np.linspace(-1.5, 1.5, 8)
    wrong = tested[0] + shift
    own = nll(FITS[name](fitted[0] + shift, fitted[1])(wrong), tested[1])
    scaled = nll(fit_temperature(fitted[0] + shift, fitted[1])(wrong), tested[1])
    assert own < scaled - 0.1
    assert own < nll(*tested) + 0.1


@pytest.mark.parametrize("prior", [None, 0.2])
@pytest.mark.parametrize("factor", [0.2, 1.0, 30.0])
def test_the_temperature_is_the_optimum(factor, prior):
    logits, labels = sample(300)
    logits = logits * factor

    def objective(log_t: float) -> float:
        penalty = 0.0 if prior is None else log_t**2 / (2 * prior**2)
        return len(labels) * nll(logits / math.exp(log_t), labels) + penalty

    expected = minimize_scalar(objective, bounds=(-6, 6), method="bounded", options={"xatol": 1e-9})
    fitted = fit_temperature(logits, labels, prior)
    assert math.log(fitted.value) == pytest.approx(expected.x, abs=1e-6)
    step = 1e-3
    curvature = (
        objective(expected.x + step) - 2 * objective(expected.x) + objective(expected.x - step)
    ) / step**2
    assert fitted.error == pytest.approx(1 / math.sqrt(curvature), rel=1e-3)
    assert fitted.labels == 300


def test_the_standard_error_is_the_spread_over_samples():
    fits = [fit_temperature(*sample(200, seed=seed)) for seed in range(100)]
    spread = np.std([math.log(fit.value) for fit in fits])
    assert np.mean([fit.error for fit in fits]) == pytest.approx(spread, rel=0.25)


def test_temperature_on_training_samples_is_refused_and_held_by_a_prior():
    logits, _ = sample(100)
    with pytest.raises(UserError, match=r"T would run to 0; fit on samples .* \(map\)"):
        fit_temperature(logits, logits.argmax(1))
    assert 0.1 < fit_temperature(logits, logits.argmax(1), prior=0.2).value < 1
    with pytest.raises(UserError, match="run to infinity"):
        fit_temperature(logits, logits.argmin(1))


def torchs_optimum(loss: Callable[..., torch.Tensor], *start: torch.Tensor) -> float:
    """The least value of a convex loss, by torch's own optimiser."""
    values = [value.clone().requires_grad_() for value in start]
    optimiser = torch.optim.LBFGS(
        values, max_iter=2000, tolerance_change=1e-15, line_search_fn="strong_wolfe"
    )

    def closure() -> torch.Tensor:
        optimiser.zero_grad()
        found = loss(*values)
        found.backward()
        return found

    for _ in range(5):
        optimiser.step(closure)
    return closure().item()


def test_vector_scaling_is_where_torchs_optimiser_ends():
    logits, labels = sample(500)
    logits = logits * np.linspace(0.5, 2, 8) + np.linspace(-1, 1, 8)
    fitted = fit_vector(logits, labels)
    z, y = torch.from_numpy(logits), torch.from_numpy(labels)

    def loss(factors: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(z * factors + offsets, y)

    start = torch.ones(8, dtype=torch.float64), torch.zeros(8, dtype=torch.float64)
    assert nll(fitted(logits), labels) == pytest.approx(torchs_optimum(loss, *start), abs=1e-9)


@pytest.mark.parametrize("strength", [0.01, 1.0])
def test_dirichlet_minimises_likelihood_and_regulariser(strength):
    logits, labels = sample(300, classes=4)
    fitted = fit_dirichlet(logits, labels, strength)
    log_p, y = torch.from_numpy(log_softmax(logits, axis=1)), torch.from_numpy(labels)

    def loss(weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        off = weight[~torch.eye(4, dtype=torch.bool)]
        likelihood = torch.nn.functional.cross_entropy(log_p @ weight.t() + bias, y)
        return likelihood + strength * (off.square().mean() + bias.square().mean())

    weight, bias = torch.from_numpy(fitted.weight), torch.from_numpy(fitted.bias)
    start = torch.eye(4, dtype=torch.float64), torch.zeros(4, dtype=torch.float64)
    assert loss(weight, bias).item() == pytest.approx(torchs_optimum(loss, *start), abs=1e-9)
    expected = (log_p @ weight.t() + bias).numpy()
    np.testing.assert_allclose(fitted(logits), expected, atol=1e-12)


def test_dirichlet_is_held_back_where_labels_are_few():
    few, tested = sample(24), sample(2000, seed=1)
    chosen = fit_dirichlet(*few)
    assert chosen.strength >= 0.1
    loose = fit_dirichlet(*few, strength=1e-6)
    assert nll(chosen(tested[0]), tested[1]) < nll(loose(tested[0]), tested[1])


def test_histogram_binning_is_that_of_netcal():
    from netcal.binning import HistogramBinning

    logits, labels = sample(5000, classes=5)
    tested, _ = sample(500, classes=5, seed=1)
    theirs = HistogramBinning(bins=10)
    theirs.fit(softmax(logits, axis=1), labels)
    ours = np.exp(fit_histogram(logits, labels)(tested))
    np.testing.assert_allclose(ours, theirs.transform(softmax(tested, axis=1)), atol=1e-6)


def test_isotonic_regression_pools_violators():
    logits, labels = sample(200, classes=3)
    fitted = fit_isotonic(logits, labels)
    probability = softmax(logits, axis=1)
    columns = np.stack(
        [pool(probability[:, k], (labels == k).astype(float)) for k in range(3)], axis=1
    )
    expected = columns / columns.sum(1, keepdims=True)
    found = np.exp(fitted(logits))
    known = columns.sum(1) > 0
    np.testing.assert_allclose(found[known], expected[known].clip(min=1e-12), atol=1e-6)


def pool(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Pool-adjacent-violators, as the definition reads."""
    order = np.argsort(x)
    blocks: list[list[float]] = []
    for value in y[order]:
        blocks.append([value, 1])
        while len(blocks) > 1 and blocks[-2][0] / blocks[-2][1] >= blocks[-1][0] / blocks[-1][1]:
            total, count = blocks.pop()
            blocks[-1][0] += total
            blocks[-1][1] += count
    fitted = np.concatenate([np.full(int(count), total / count) for total, count in blocks])
    result = np.empty_like(fitted)
    result[order] = fitted
    return result


def test_bins_without_samples_keep_what_falls_into_them():
    logits = np.log([[0.95, 0.05], [0.95, 0.05], [0.05, 0.95]])
    fitted = fit_histogram(logits, np.array([0, 0, 1]))
    between = np.exp(fitted(np.log([[0.55, 0.45]])))
    np.testing.assert_allclose(between, [[0.55, 0.45]], atol=1e-9)


def test_sals_is_a_temperature_of_each_sample():
    logits, zero_shot = sample(300)[0], sample(300, seed=5)[0]
    scaled = scale_to_zero_shot(4 * logits, zero_shot)
    np.testing.assert_allclose(scaled.min(1), zero_shot.min(1))
    np.testing.assert_allclose(scaled.max(1), zero_shot.max(1))
    temperature = np.ptp(4 * logits, axis=1) / np.ptp(zero_shot, axis=1)
    expected = softmax(4 * logits / temperature[:, None], axis=1)
    np.testing.assert_allclose(softmax(scaled, axis=1), expected, atol=1e-12)
    assert (scaled.argmax(1) == logits.argmax(1)).all()
    flat = scale_to_zero_shot(np.ones((1, 3)), zero_shot[:1, :3])
    assert np.ptp(flat) == 0
    with pytest.raises(UserError, match="same shape"):
        scale_to_zero_shot(logits, zero_shot[:5])


@pytest.mark.parametrize("n_base", [7, 5, 3])
def test_dac_follows_its_definition(n_base):
    """The authors' code divides by five also where there are fewer base classes."""
    rng = np.random.default_rng(0)
    base0, base, new0, new = (rng.normal(size=(count, 6)) for count in (n_base, n_base, 4, 4))
    new[3] = 2 * base[2]  # is a base class
    factors = class_factors(new, new0, base, base0)

    def mean_distance(row: np.ndarray, others: np.ndarray) -> float:
        unit = row / math.sqrt(sum(row**2))
        distances = [math.dist(unit, other / math.sqrt(sum(other**2))) for other in others]
        return sum(sorted(distances)[:5]) / 5

    for i in range(3):
        expected = math.exp(mean_distance(new0[i], base0) - mean_distance(new[i], base))
        assert factors[i] == pytest.approx(expected)
    assert factors[3] == 1
    logits = np.array([[1.0, 5.0, 2.0, 0.0], [9.0, 1.0, 1.0, 1.0]])
    expected_logits = logits * factors[[1, 0]][:, None]
    np.testing.assert_allclose(DAC(factors)(logits), expected_logits)


@pytest.mark.parametrize("name", ["vector", "dirichlet", "isotonic", "histogram"])
def test_values_for_each_class_do_not_serve_other_classes(name):
    fitted = FITS[name](*sample(40))
    with pytest.raises(UserError, match=r"each of 8 classes .* a temperature and SaLS can"):
        fitted(sample(10, classes=5)[0])


@pytest.mark.parametrize(
    ("logits", "labels", "words"),
    [
        (np.zeros((3, 2)), np.zeros(2, int), "expected logits"),
        (np.zeros((0, 2)), np.zeros(0, int), "N >= 1"),
        (np.full((3, 2), np.nan), np.zeros(3, int), "finite"),
        (np.zeros((3, 2)), np.array([0, 1, 2]), r"\[0, 2\), got 2"),
        (np.zeros((3, 2)), np.zeros(3), "class indices"),
    ],
)
@pytest.mark.parametrize("name", FITS)
def test_wrong_input_is_refused(name, logits, labels, words):
    with pytest.raises(UserError, match=words):
        FITS[name](logits, labels)
