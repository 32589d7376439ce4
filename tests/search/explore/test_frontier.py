"""The frontier, compared with a sort of all visited configs."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from anole.search.explore.frontier import Frontier, converged_at
from kit.oracle import OracleSurrogate

from ...examples import examples
from ..conftest import history_of, space_of

SPACE = space_of([8, 5])


@settings(max_examples=examples(80), deadline=None)
@given(
    st.lists(st.floats(-1, 1), min_size=40, max_size=40),
    st.lists(st.lists(st.integers(0, 39), min_size=1, max_size=12), min_size=1, max_size=6),
    st.sets(st.integers(0, 39), max_size=20),
    st.integers(1, 12),
    st.none() | st.integers(1, 16),
)
def test_keeps_the_best_unmeasured_configs(scores, steps, visited, n_best, n_watched):
    scores = np.array(scores)
    surrogate = OracleSurrogate(SPACE, lambda vectors: scores[SPACE.indices(vectors)])
    history = history_of(SPACE, SPACE.vectors(sorted(visited)), [None] * len(visited))
    frontier = Frontier(surrogate, history, n_best, n_watched)
    seen, best, n_watched = set(), [], n_watched or n_best
    for step in steps:
        returned, changed = frontier.score(SPACE.vectors(step))
        np.testing.assert_array_equal(returned, scores[step])
        seen |= set(step)
        now = sorted((scores[index] for index in seen - visited), reverse=True)[:n_best]
        assert changed == (now[:n_watched] != best[:n_watched])
        best = now
    candidates = frontier.candidates(steps=3)
    assert candidates.scores.tolist() == best
    np.testing.assert_array_equal(scores[SPACE.indices(candidates.vectors)], candidates.scores)
    assert candidates.log == {"queries": len(seen), "steps": 3}
    assert surrogate.asked == dict.fromkeys(seen, 1)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_convergence_is_the_first_step_within_1_percent_of_the_best(bests):
    step = converged_at(bests)
    assert max(bests[: step + 1]) >= 0.99 * max(bests)
    assert step == 0 or max(bests[:step]) < 0.99 * max(bests)
