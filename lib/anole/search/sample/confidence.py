"""DCOC's confidence sampling: sample candidates by the critic's values, and replace low-value ones."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, islice
from typing import Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from anole.search.roles import Candidates, History
from anole.search.sample.synthesis import synthesize, take_unvisited
from anole.search.settings import Range, Stateless
from anole.space.space import Vectors


@dataclass(frozen=True)
class Confidence(Stateless):
    """A sampler that draws by the softmax of the critic's values and replaces configs not above the overall median.

    "DCOC" (ASP-DAC 2025), section 3.3 and algorithm 2. Replacements are the most probable configs, most probable first,
    if each knob's value has its frequency among the sampled configs; when these run out, the sampled config
    stays. Without a critic, the surrogate's scores are used as values. If all values are equal, as before the
    surrogate's first fit, every sampled config stays.

    Attributes:
        temperature: divides the values before the softmax.
        replaces: whether configs not above the median are replaced, as in the paper's text; otherwise they are dropped,
            as in algorithm 2, and a batch has about half of the sampled configs.
        units: unit of the values: the surrogate's ``score``, whose softmax is close to uniform, or their own
            ``deviation`` among the candidates. The paper's values are in inverse seconds and depend on the layer.
        version: incremented when the same settings choose different configs; version 1 replaced every config of a
            batch with equal values, and version 2 had scores as units.
    """

    name: ClassVar[str] = "confidence"
    later_settings: ClassVar[frozenset[str]] = frozenset({"replaces"})

    temperature: Annotated[float, Range(1e-6)] = 1.0
    units: Literal["score", "deviation"] = "deviation"
    version: Literal[3] = 3
    replaces: bool = True

    def choose(self, candidates: Candidates, history: History, n: int, rng: np.random.Generator) -> Vectors:
        """Return the sampled candidates with values above the median, then replacements for the others.

        The inverse of the sum of squared probabilities, the effective number of equally likely candidates, is added to
        the explorer's log.
        """
        if not len(candidates.vectors):
            return candidates.vectors
        space = history.space
        values = candidates.scores if candidates.values is None else candidates.values
        unit = float(values.std()) or 1.0 if self.units == "deviation" else 1.0
        probabilities = softmax(values / (unit * self.temperature))
        candidates.log["drawn_between"] = float(1 / np.square(probabilities).sum())
        rows = rng.choice(len(values), size=min(n, len(values)), replace=False, p=probabilities)
        confident = above_median(values)[rows]
        selected = candidates.vectors[rows]
        chosen = selected[confident]
        if not self.replaces and len(chosen):
            return np.asarray(chosen)
        visited = set(chain(history.visited.tolist(), space.identities(chosen).tolist()))
        replacements = take_unvisited(chain(synthesize(selected, space), selected[~confident]), visited, space)
        # The replaced configs themselves come last, so the replacements never run out.
        return np.array([*chosen, *islice(replacements, len(selected) - len(chosen))])


def above_median(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return a mask of the values, shape (n,), that are above their median; all True if the values are equal."""
    return np.asarray((values > np.median(values)) | (values.min() == values.max()))


def softmax(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the softmax of values, shape (n,), with no probability below the smallest normal float."""
    powers = np.maximum(np.exp(values - values.max()), np.finfo(np.float64).tiny)
    return np.asarray(powers / powers.sum())
