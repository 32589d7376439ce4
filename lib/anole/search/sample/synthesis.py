"""Sample synthesis (Chameleon): new configs from each knob's most frequent values among the candidates."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from anole.space.space import Space, Vectors

_N_CONSIDERED = 1024
"""Max number of configs to try, which bounds the time of synthesis if nearly all are invalid."""

_BATCH_SIZE = 64


def synthesize(vectors: Vectors, space: Space) -> Iterator[NDArray[np.int64]]:
    """Yield valid configs, most probable first, as if each knob's value were sampled independently by its frequency.

    The first config is Chameleon's ``mode`` (Ahn et al., ICLR 2020, section 3.3): every knob has its most frequent
    value. The mode is a single config and is soon visited; the next most probable configs follow.

    Yielded index vectors have shape (n_knobs,). `vectors` must not be empty.
    """
    considered = islice(_most_probable(vectors), _N_CONSIDERED)
    while batch := list(islice(considered, _BATCH_SIZE)):
        configs = np.array(batch, dtype=np.int64)
        yield from configs[space.valid(configs)]


def take_unvisited(vectors: Iterable[NDArray[np.int64]], taken: set[int], space: Space) -> Iterator[NDArray[np.int64]]:
    """Yield the index vectors, shape (n_knobs,), whose identities are not in `taken`, and add these to it."""
    for vector in vectors:
        identity = int(space.identities(vector[None])[0])
        if identity not in taken:
            taken.add(identity)
            yield vector


def _most_probable(vectors: Vectors) -> Iterator[list[int]]:
    """Yield all combinations of the knobs' values, valid or not, the most probable first.

    Best-first search over ranks: a knob's rank 0 is its most frequent value. A combination's successors have
    one knob's rank raised by 1: the last raised knob's or a later one's, which yields each combination once.
    """
    values, log_frequencies = zip(*(_rank_values(column) for column in vectors.T), strict=True)
    n_knobs = len(values)
    start = (0,) * n_knobs
    queue = [(-sum(frequencies[0] for frequencies in log_frequencies), start, 0)]
    while queue:
        improbability, ranks, last_raised = heapq.heappop(queue)
        yield [int(values[knob][rank]) for knob, rank in enumerate(ranks)]
        for knob in range(last_raised, n_knobs):
            rank = ranks[knob]
            if rank + 1 < len(values[knob]):
                loss = log_frequencies[knob][rank] - log_frequencies[knob][rank + 1]
                raised = (*ranks[:knob], rank + 1, *ranks[knob + 1 :])
                heapq.heappush(queue, (improbability + loss, raised, knob))


def _rank_values(column: NDArray[np.int64]) -> tuple[list[int], list[float]]:
    """Return a knob's values by decreasing frequency, then increasing value, and their log frequencies."""
    values, counts = np.unique(column, return_counts=True)
    ranking = np.argsort(-counts, kind="stable")
    return values[ranking].tolist(), np.log(counts[ranking] / len(column)).tolist()
