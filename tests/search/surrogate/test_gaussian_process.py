"""The Gaussian process: its predictions equal the textbook's, failures lower scores, and threads change nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace

import mpmath
import numpy as np
import pytest
from scipy.stats import norm
from sklearn.gaussian_process.kernels import Matern
from threadpoolctl import threadpool_info, threadpool_limits

from anole.search.roles import History
from anole.search.surrogate.gaussian_process import GaussianProcess, log_expected_improvement
from anole.space import Space, option_knob

from ..conftest import fit, history_of

SPACE = Space([option_knob("a", list(range(30))), option_knob("b", list(range(30)))])
GRID = np.array([[a, b] for a in range(10, 30, 2) for b in range(0, 15, 2)])


@dataclass
class Sums:
    """A description of configs with n features."""

    columns: dict[str, np.ndarray]
    n: int

    @property
    def feature_names(self):
        return [f"sum {power}" for power in range(self.n)]

    def features(self):
        total = self.columns["a"] + self.columns["b"]
        return np.stack([total * power for power in range(self.n)], axis=1).astype(np.float32)


def history_with(vectors: np.ndarray, fails_above: int = 30, space: Space = SPACE) -> History:
    latencies_s = [1.0 + (a - 20) ** 2 / 50 + (b - 5) ** 2 / 50 for a, b in vectors.tolist()]
    latencies_s = [s if vector[0] <= fails_above else None for s, vector in zip(latencies_s, vectors, strict=True)]
    return history_of(space, vectors, latencies_s)


def scaled(vectors: np.ndarray) -> np.ndarray:
    return np.log2(1.0 + vectors) / np.log2(30.0)


def test_scores_are_expected_improvements_of_the_textbooks_posterior():
    """Rasmussen and Williams, "Gaussian Processes for Machine Learning" (2006), equations 2.23, 2.24 and 4.17."""
    history, vectors = history_with(GRID), SPACE.sample(50, np.random.default_rng(0))
    surrogate = fit(GaussianProcess(), history)
    amplitude, lengths, noise = np.split(np.exp(surrogate._kernel.theta), [1, 3])

    def kernel(x, y):
        r = np.sqrt(5) * np.sqrt((((scaled(x)[:, None] - scaled(y)[None]) / lengths) ** 2).sum(axis=-1))
        return amplitude * (1 + r + r**2 / 3) * np.exp(-r)

    log_speeds = np.log(history.scores)
    offset, unit = log_speeds.mean(), log_speeds.std()
    inverse = np.linalg.inv(kernel(GRID, GRID) + noise * np.eye(len(GRID)))
    cross = kernel(vectors, GRID)
    mean = offset + unit * cross @ inverse @ (log_speeds - offset) / unit
    std = unit * np.sqrt(amplitude + noise - np.einsum("ij,jk,ik->i", cross, inverse, cross))
    np.testing.assert_allclose(surrogate.spread(vectors), std, rtol=1e-3)
    improvements = mean * norm.cdf(mean / std) + std * norm.pdf(mean / std)
    scores = np.exp(10 * surrogate.score(vectors))
    np.testing.assert_allclose(scores / scores.max(), improvements / improvements.max(), rtol=2e-2, atol=1e-4)


def test_a_config_near_the_best_scores_high_unless_its_neighbors_fail():
    best, worse = np.array([[21, 5]]), np.array([[12, 13]])
    surrogate = fit(GaussianProcess(), history_with(GRID))
    assert surrogate.score(best)[0] > surrogate.score(worse)[0]
    failing = fit(GaussianProcess(), history_with(GRID, fails_above=19))
    assert failing.score(best)[0] < failing.score(np.array([[18, 5]]))[0]


def test_without_a_success_it_is_not_fitted():
    assert not fit(GaussianProcess(), history_with(GRID, fails_above=0)).fitted


def test_only_the_fastest_examples_are_used():
    fastest = GRID[np.argsort(-history_with(GRID).scores, kind="stable")[:20]]
    few, all_ = (fit(GaussianProcess(max_examples=20), history_with(each)) for each in (fastest, GRID))
    np.testing.assert_allclose(few.spread(GRID), all_.spread(GRID), rtol=1e-6)


def test_fits_and_predicts_on_one_thread(monkeypatch):
    """The order of sums depends on the number of threads, and near ties the proposals on the order of sums."""
    seen, called = [], Matern.__call__

    def spy(self, *args, **kwargs):
        seen.extend(pool["num_threads"] for pool in threadpool_info())
        return called(self, *args, **kwargs)

    monkeypatch.setattr(Matern, "__call__", spy)
    with threadpool_limits(2):
        fit(GaussianProcess(max_steps=2), history_with(GRID)).score(GRID)
    assert set(seen) == {1}


def test_of_many_described_features_only_the_knobs_are_used():
    """A length scale for each feature of a loop nest would make a fit take seconds."""
    for n_described, n_used in ((0, 0), (32, 32), (33, 0)):
        space = replace(SPACE, describe=lambda columns, n=n_described: Sums(columns, n)) if n_described else SPACE
        surrogate = fit(GaussianProcess(max_steps=2), history_with(GRID, space=space))
        assert len(surrogate._kernel.theta) == n_used + len(SPACE.knobs) + 2  # with the amplitude and the noise


@pytest.mark.parametrize("z", [-300.0, -37.0, -1.001, -1.0, -0.5, 0.0, 3.0])
def test_the_log_of_expected_improvement_does_not_underflow(z):
    with mpmath.workdps(50):
        expected = float(mpmath.log(2 * (mpmath.npdf(z) + z * mpmath.ncdf(z))))
    found = log_expected_improvement(np.array([2 * z + 1]), np.array([2.0]), 1.0)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
