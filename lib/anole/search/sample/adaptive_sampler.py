"""Chameleon's adaptive sampling: one config per k-means cluster of the candidates, with k at the knee of the loss."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from anole.search.roles import Candidates, History
from anole.search.sample.synthesis import synthesize, take_unvisited
from anole.search.settings import Range, Stateless
from anole.space.space import Space, Vectors


@dataclass(frozen=True)
class AdaptiveSampler(Stateless):
    """A sampler that chooses one unmeasured config per cluster of the candidates, the most promising cluster first.

    Ahn et al., "Chameleon: Adaptive Code Optimization for Expedited Deep Neural Network Compilation" (ICLR 2020),
    section 3.3 and Algorithm 1; the earlier paper RELEASE (Ahn et al., 2019) has the same algorithm. The sampler
    itself decides how many configs are measured, at most a batch.

    Attributes:
        k_min, k_max: the range of cluster counts to try, `k_max` excluded.
        threshold: the search for k stops at, and uses, the first k whose loss is at least 1/threshold of the previous.
        k_step: step between cluster counts. With 1, as in the papers, the loss almost never drops enough between
            consecutive k, so the search stops at k = 9 regardless of the candidates. With 8, as in the authors' code,
            it mostly stops at k = 16, a quarter of a batch of 64; the authors report 2 to 4 times fewer measurements.
        representative: the config that represents a cluster: its ``centroid``, rounded to a config, or the nearest
            candidate if that config is invalid (the papers); the candidate ``nearest`` to the centroid; or the
            cluster's ``best`` candidate by the surrogate's score.
        synthesis: what replaces a representative that was already measured or chosen. ``mode`` (the papers): a config
            of the most frequent values among all candidates. ``cluster``: the same within the cluster. ``nearest``:
            the candidate nearest to the centroid; nothing is synthesized.
        n_best: number of the most promising candidates to consider; None considers all, as the papers do.
        max_points: k-means sees at most this many of the candidates, a uniform sample, which bounds its time.
        clustered: the input of k-means: ``all`` knobs, each scaled to [0, 1] (the papers), or the indices of the two
            knobs with the most values (``widest``, the authors' code); a centroid then takes its other knobs from a
            uniformly sampled candidate.
        n_random: number of chosen configs to replace by uniformly random ones. In the authors' code, the last 3 configs
            are random (a twentieth of the 64 planned ones), even if only 16 are chosen.
        random_share: share of the chosen configs to replace by uniformly random ones, in addition to `n_random`.
    """

    name: ClassVar[str] = "adaptive"
    later_settings: ClassVar[frozenset[str]] = frozenset({"clustered", "n_random", "random_share"})

    k_min: Annotated[int, Range(1, 256)] = 8
    k_max: Annotated[int, Range(2, 257)] = 64
    k_step: Annotated[int, Range(1, 256)] = 8
    threshold: Annotated[float, Range(0)] = 2.5
    representative: Literal["centroid", "nearest", "best"] = "centroid"
    synthesis: Literal["mode", "cluster", "nearest"] = "mode"
    n_best: Annotated[int, Range(1)] | None = None
    max_points: Annotated[int, Range(1)] = 4096
    clustered: Literal["all", "widest"] = "all"
    n_random: Annotated[int, Range(0, 256)] = 0
    random_share: Annotated[float, Range(0, 1)] = 0.0

    def choose(self, candidates: Candidates, history: History, n: int, rng: np.random.Generator) -> Vectors:
        """Return one config per cluster; random configs replace up to all but the first."""
        space, considered = history.space, candidates.vectors[: self.n_best]
        if not len(considered):
            return considered
        size = min(len(considered), self.max_points)
        rows = np.sort(rng.choice(len(considered), size, replace=False))
        vectors, scores = considered[rows], candidates.scores[rows]
        knobs = self._clustered_knobs(space)
        points = vectors[:, knobs].astype(np.float32) if self.clustered == "widest" else space.normalize(vectors)
        n_distinct = len(np.unique(points, axis=0))
        clusters = cluster_at_knee(points, self._ks(min(n, n_distinct)), self.threshold, rng)
        modes = synthesize(considered, space)
        taken = set(history.visited.tolist())
        chosen = []
        for cluster in clusters.most_promising(scores):
            members = vectors[clusters.labels == cluster]
            distances = np.square(points - clusters.centroids[cluster]).sum(axis=1)
            nearest = vectors[np.argsort(distances, kind="stable")]
            rounded = self._to_indices(clusters.centroids[cluster], knobs, considered, space, rng)
            representative = self._representative(space, rounded, members, nearest)
            synthesized = {"mode": modes, "cluster": synthesize(members, space), "nearest": ()}[self.synthesis]
            # `nearest` has every candidate, and there are at least as many as clusters: `next` always finds one.
            chosen.append(next(take_unvisited(chain(representative, synthesized, nearest), taken, space)))
        n_random = self.n_random + round(self.random_share * len(chosen))
        retained = np.array(chosen[: max(1, len(chosen) - n_random)])
        excluded = np.concatenate([history.visited, space.identities(retained)])
        return np.concatenate([retained, space.sample(len(chosen) - len(retained), rng, exclude=excluded)])

    def _clustered_knobs(self, space: Space) -> NDArray[np.int64]:
        """Return the indices of the knobs that k-means sees."""
        if self.clustered == "all":
            return np.arange(len(space.knobs))
        return np.sort(np.argsort(-space.cardinalities, kind="stable")[:2])

    def _to_indices(
        self,
        centroid: NDArray[np.float32],
        knobs: NDArray[np.int64],
        considered: Vectors,
        space: Space,
        rng: np.random.Generator,
    ) -> Vectors:
        """Return a centroid's index vector, shape (n_knobs,), maybe invalid: rounded, or with ``widest`` truncated."""
        if self.clustered == "all":
            return np.asarray(space.denormalize(centroid[None])[0])
        vector = np.array(considered[rng.integers(len(considered))])
        vector[knobs] = centroid.astype(np.int64)
        return vector

    def _ks(self, limit: int) -> range:
        """Return the cluster counts to try, ascending, never empty, none above `limit`."""
        k_min = min(self.k_min, limit)
        return range(k_min, max(k_min, min(self.k_max - 1, limit)) + 1, self.k_step)

    def _representative(self, space: Space, rounded: Vectors, members: Vectors, nearest: Vectors) -> Vectors:
        """Return a cluster's representative, shape (1, n_knobs), given its rounded centroid, shape (n_knobs,).

        `members` are the cluster's candidates, most promising first; `nearest` are all candidates, nearest first.
        """
        if self.representative == "best":
            return members[:1]
        if self.representative == "nearest" or not space.valid(rounded[None])[0]:
            return nearest[:1]
        return rounded[None]


@dataclass(frozen=True)
class Clusters:
    """The result of k-means on n points.

    Attributes:
        centroids: shape (k, n_dimensions).
        labels: the cluster of each point, shape (n,).
        loss: sum of the squared distances of the points from their centroids.
    """

    centroids: NDArray[np.float32]
    labels: NDArray[np.int64]
    loss: float

    def most_promising(self, scores: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the non-empty clusters by decreasing mean of the scores, shape (at most k,)."""
        clusters, sizes = np.unique(self.labels, return_counts=True)
        means = np.bincount(self.labels, weights=scores)[clusters] / sizes
        return clusters[np.argsort(-means, kind="stable")]


def cluster_at_knee(
    points: NDArray[np.float32], ks: Iterable[int], threshold: float, rng: np.random.Generator
) -> Clusters:
    """Return the clusters at the knee of the loss, or for the last k: Chameleon's threshold-based swift meta-search.

    As in Algorithm 1, the knee is the first k whose loss is at least 1/threshold of the previous; `ks` ascends to n.
    """
    previous_loss = math.inf
    for k in ks:
        clusters = k_means(points, k, rng)
        if threshold * clusters.loss >= previous_loss:
            break
        previous_loss = clusters.loss
    return clusters


def k_means(points: NDArray[np.float32], k: int, rng: np.random.Generator) -> Clusters:
    """Cluster points, shape (n, n_dimensions), n >= k; the result does not depend on the number of cores."""
    from sklearn.cluster import KMeans
    from threadpoolctl import threadpool_limits

    # With several threads, the order of a centroid's partial sums would vary.
    with threadpool_limits(1):
        model = KMeans(k, n_init=1, random_state=int(rng.integers(1 << 31))).fit(points)
    return Clusters(model.cluster_centers_, model.labels_.astype(np.int64), float(model.inertia_))
