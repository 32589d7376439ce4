"""Adaptive sampling: the knee, the representative of a cluster, and its replacement."""

import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anole.search.roles import Candidates
from anole.search.sample import adaptive_sampler
from anole.search.sample.adaptive_sampler import AdaptiveSampler, cluster_at_knee, k_means
from anole.space import Constraint

from ...examples import examples
from ..conftest import choose, history_of, space_of

REPRESENTATIVES = ("centroid", "nearest", "best")
SAMPLERS = st.builds(
    AdaptiveSampler,
    representative=st.sampled_from(REPRESENTATIVES),
    synthesis=st.sampled_from(["mode", "cluster", "nearest"]),
)


def blobs(n_blobs, seed, n_each=40, n_knobs=6):
    """Return points around corners of a grid, a hundred times closer to their own corner than to others."""
    rng = np.random.default_rng(seed)
    corners = rng.permutation(list(itertools.product([0.0, 0.5, 1.0], repeat=n_knobs)))[:n_blobs]
    return (np.repeat(corners, n_each, axis=0) + rng.normal(0, 0.002, (n_blobs * n_each, n_knobs))).astype(np.float32)


def k_of(points, ks, threshold=2.5, seed=0):
    return len(cluster_at_knee(points, ks, threshold, np.random.default_rng(seed)).centroids)


def grid_space(constraints=()):
    """Return a space of two knobs, whose index vectors are points of a grid."""
    return space_of([21, 21], constraints)


def pick(sampler, history, vectors, scores=None, n=64, seed=0):
    """Return a sampler's choice as lists; scores are equal by default."""
    scores = np.ones(len(vectors)) if scores is None else np.array(scores)
    return choose(sampler, Candidates(np.array(vectors), scores), history, n, seed).tolist()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("n_blobs", [10, 14, 20])
def test_the_knee_is_one_step_beyond_the_true_clusters(n_blobs, seed):
    points = blobs(n_blobs, seed)
    assert k_of(points, range(n_blobs - 1, 64), seed=seed) == n_blobs + 1
    assert n_blobs <= k_of(points, range(8, 64, 8), seed=seed) <= n_blobs + 16


@pytest.mark.parametrize(("step", "threshold", "k"), [(8, 2.5, 16), (1, 2.5, 9), (8, 0.0, 56), (8, 1e9, 16)])
def test_without_clusters_the_search_ends_at_the_second_k(step, threshold, k):
    points = np.random.default_rng(0).random((1000, 8), dtype=np.float32)
    assert k_of(points, range(8, 64, step), threshold) == k


def test_centroids_and_loss_match_the_labels():
    points = blobs(12, seed=1)
    clusters = k_means(points, 12, np.random.default_rng(0))
    means = [points[clusters.labels == label].mean(axis=0) for label in range(12)]
    np.testing.assert_allclose(clusters.centroids, means, atol=1e-4)
    assert clusters.loss == pytest.approx(((points - clusters.centroids[clusters.labels]) ** 2).sum(), rel=1e-3)
    assert [len(set(clusters.labels[at : at + 40])) for at in range(0, 480, 40)] == [1] * 12


def test_clusters_do_not_depend_on_the_number_of_threads():
    from threadpoolctl import threadpool_limits

    points = np.random.default_rng(0).random((3000, 8), dtype=np.float32)
    found = []
    for n_threads in (1, 4):
        with threadpool_limits(n_threads):
            found.append(k_means(points, 16, np.random.default_rng(0)))
    np.testing.assert_array_equal(found[0].centroids, found[1].centroids)


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    sampler=SAMPLERS,
    n_measured=st.integers(0, 300),
    n_candidates=st.integers(1, 120),
    n=st.integers(1, 40),
    seed=st.integers(0, 99),
)
def test_one_valid_new_config_for_every_cluster(bowl, sampler, n_measured, n_candidates, n, seed):
    history = bowl.history(n_measured)
    space = history.space
    vectors = space.sample(n_candidates, np.random.default_rng(seed), exclude=history.visited)
    found = choose(sampler, Candidates(vectors, np.linspace(1, 0, n_candidates)), history, n, seed)
    indices = space.indices(found)
    assert min(8, n, n_candidates) <= len(found) <= min(n, n_candidates)
    assert found.dtype == np.int64 and space.valid(found).all()
    assert len(np.unique(indices)) == len(indices) and not np.isin(indices, history.visited).any()
    if sampler.representative != "centroid" and sampler.synthesis == "nearest":
        assert np.isin(indices, space.indices(vectors)).all()


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sampler=SAMPLERS, n_measured=st.integers(0, 7), seed=st.integers(0, 99))
def test_a_small_space_is_chosen_completely(formula, sampler, n_measured, seed):
    small = formula("handful")
    history = small.history(n_measured, seed)
    free = small.space.sample(12, np.random.default_rng(seed), exclude=history.visited)
    assert sorted(pick(sampler, history, free, seed=seed)) == sorted(free.tolist())


SQUARE = [[8, 8], [8, 10], [8, 12], [10, 12], [12, 12], [12, 8], [14, 8]]
"""Candidates with the centroid (10.3, 10) and the mode 8 of both knobs."""
ONE = {"k_min": 1, "k_max": 2}


@pytest.mark.parametrize(
    ("visited", "synthesis", "config"),
    [
        ([], "mode", [10, 10]),
        ([[10, 10]], "mode", [8, 8]),
        ([[10, 10]], "cluster", [8, 8]),
        ([[10, 10]], "nearest", [10, 12]),
        # x is 8 three times and 12 twice; y is 8 and 12 three times each.
        ([[10, 10], [8, 8]], "mode", [8, 12]),
    ],
)
def test_a_centroid_is_rounded_to_a_config_and_replaced_if_visited(visited, synthesis, config):
    assert pick(AdaptiveSampler(**ONE, synthesis=synthesis), history_of(grid_space(), visited), SQUARE) == [config]


def test_an_invalid_centroid_becomes_the_nearest_candidate():
    space = grid_space([Constraint("not there", lambda c: (c["k0"] != 10) | (c["k1"] != 10))])
    assert pick(AdaptiveSampler(**ONE), history_of(space), SQUARE) == [[10, 12]]


def test_synthesis_can_use_the_clusters_own_values():
    far = [[x - 8, y - 8] for x, y in SQUARE] + [[0, 3]]
    history, scores = history_of(grid_space(), [[10, 10], [2, 2]]), [1.0] * len(SQUARE) + [0.5] * len(far)
    clusters, modes = (
        pick(AdaptiveSampler(k_min=2, k_max=3, synthesis=synthesis), history, SQUARE + far, scores)
        for synthesis in ("cluster", "mode")
    )
    assert clusters == [[8, 8], [0, 0]]
    assert modes != clusters and {x for x, _ in modes} == {0}


def test_clusters_with_the_same_rounded_centroid_get_two_configs():
    # Both centroids are rounded to (0, 0).
    space = space_of([2, 2, 2])
    first, second = pick(AdaptiveSampler(k_min=2, k_max=3), history_of(space), space.vectors(range(8)))
    assert first != second


def test_the_representative_of_a_cluster():
    scores = [0.1, 0.2, 0.3, 0.4, 0.9, 0.5, 0.6]
    ranking = np.argsort(scores)[::-1]
    vectors, scores = np.array(SQUARE)[ranking], np.array(scores)[ranking]
    found = {
        name: pick(AdaptiveSampler(**ONE, representative=name), history_of(grid_space()), vectors, scores)
        for name in REPRESENTATIVES
    }
    assert found == {"centroid": [[10, 10]], "nearest": [[10, 12]], "best": [[12, 12]]}


@pytest.mark.parametrize("representative", REPRESENTATIVES)
def test_the_most_promising_cluster_comes_first(representative):
    centers = [(3, 3), (3, 17), (17, 3), (17, 17)]
    vectors = [[x + dx, y + dy] for x, y in centers for dx, dy in itertools.product((-1, 0, 1), repeat=2)]
    sampler = AdaptiveSampler(k_min=4, k_max=5, representative=representative)
    for order in itertools.permutations(range(4)):
        ranking = [9 * blob + row for blob in order for row in range(9)]
        found = pick(sampler, history_of(grid_space()), np.array(vectors)[ranking], np.linspace(1, 0, 36))
        nearest = np.abs(np.array(found)[:, None] - np.array(centers)[None]).sum(axis=2).argmin(axis=1)
        assert nearest.tolist() == list(order)


def test_n_best_limits_the_candidates():
    vectors = SQUARE + [[0, y] for y in range(20)]
    assert pick(AdaptiveSampler(**ONE, n_best=len(SQUARE)), history_of(grid_space()), vectors) == [[10, 10]]
    assert pick(AdaptiveSampler(**ONE), history_of(grid_space()), vectors) != [[10, 10]]


def test_max_points_limits_the_clustered_points(bowl, monkeypatch):
    history = bowl.history(50)
    vectors = history.space.sample(2000, np.random.default_rng(0), exclude=history.visited)
    clustered_points = []

    def spy(points, *rest):
        clustered_points.append(points)
        return cluster_at_knee(points, *rest)

    monkeypatch.setattr(adaptive_sampler, "cluster_at_knee", spy)
    for seed in (0, 0, 1):
        pick(AdaptiveSampler(max_points=300), history, vectors, seed=seed)
    everything = history.space.normalize(vectors).tolist()
    assert [len(points) for points in clustered_points] == [300] * 3
    assert all(row in everything for row in clustered_points[0].tolist())
    np.testing.assert_array_equal(clustered_points[0], clustered_points[1])
    assert not np.array_equal(clustered_points[0], clustered_points[2])


@pytest.mark.parametrize(
    ("k_min", "k_max", "n", "k"), [(8, 64, 64, 16), (8, 9, 64, 8), (20, 9, 64, 20), (30, 64, 64, 38), (8, 64, 3, 3)]
)
def test_the_number_of_clusters_respects_its_bounds(bowl, k_min, k_max, n, k):
    """Before the first fit, configs are spread over the space."""
    vectors = bowl.space.sample(200, np.random.default_rng(0))
    sampler, history = AdaptiveSampler(k_min=k_min, k_max=k_max), history_of(bowl.space)
    found = np.array(pick(sampler, history, vectors, np.zeros(200), n))
    assert len(found) == k and len(np.unique(found[:, 0])) > k / 2


@pytest.mark.parametrize(("k", "random", "n_corner"), [(16, {"n_random": 3}, 13), (8, {"random_share": 0.25}, 6)])
def test_the_last_configs_may_be_random(bowl, k, random, n_corner):
    """The other configs are candidates, which are in one corner of the space."""
    history = bowl.history(0)
    space = history.space
    corner = space.vectors(np.arange(200))
    sampler = AdaptiveSampler(k_min=k, k_max=k + 1, representative="best", synthesis="nearest", **random)
    found = choose(sampler, Candidates(corner, np.linspace(1, 0, 200)), history, 64, 0)
    assert len(found) == k and np.isin(space.indices(found), space.indices(corner)).sum() == n_corner
    assert len(np.unique(space.indices(found))) == k


def test_clustering_may_use_only_the_two_widest_knobs():
    """The wide knobs have two clusters. A third knob makes no difference, although its values are farther apart."""
    space = space_of([40, 2, 30])
    vectors = np.array([[x + dx, odd, y] for x, y in ((3, 4), (33, 24)) for dx in (0, 2) for odd in (0, 1)])
    sampler = AdaptiveSampler(k_min=2, k_max=3, clustered="widest")
    found = choose(sampler, Candidates(vectors, np.linspace(1, 0, 8)), history_of(space), 2, 0)
    assert sorted(found[:, [0, 2]].tolist()) == [[4, 4], [34, 24]]
    both = {
        tuple(choose(sampler, Candidates(vectors, np.ones(8)), history_of(space), 2, seed)[:, 1]) for seed in range(9)
    }
    assert len(both) > 1, "the third knob comes from a random candidate"
