"""The Gaussian process of comparisons: it ranks and doubts as a surrogate should."""

from __future__ import annotations

import numpy as np

from anole.record import Measurement, Status
from anole.search.roles import History
from anole.space import Space, option_knob
from benchmarks.search.gaussian_process import GaussianProcess

SPACE = Space([option_knob("a", list(range(30))), option_knob("b", list(range(30)))])


def history_of(vectors):
    history = History(SPACE, 10**9)
    latencies = (1.0 + (vector[0] - 20) ** 2 / 50 + (vector[1] - 5) ** 2 / 50 for vector in vectors.tolist())
    history.add(vectors, [Measurement(Status.OK, latency_s=latency_s) for latency_s in latencies])
    return history


def test_it_prefers_what_is_near_the_best_and_doubts_what_is_far_from_all():
    corner = np.array([[a, b] for a in range(10, 30, 2) for b in range(0, 15, 2)])
    surrogate = GaussianProcess().start(SPACE)
    surrogate.fit(history_of(corner))
    optimum, edge = np.array([[20, 5]]), np.array([[12, 13]])
    assert surrogate.fitted and surrogate.score(optimum)[0] > surrogate.score(edge)[0]
    assert surrogate.spread(np.array([[0, 29]]))[0] > 3 * surrogate.spread(corner[:5]).max()


def test_without_a_success_it_is_not_fitted():
    surrogate, history = GaussianProcess().start(SPACE), History(SPACE, 1)
    surrogate.fit(history)
    history.add(SPACE.vectors([1, 2]), [Measurement(Status.RUN_ERROR, "no")] * 2)
    surrogate.fit(history)
    assert not surrogate.fitted and not surrogate.score(SPACE.vectors([1, 2, 3])).any()
