"""Confidence sampling: draws candidates by the critic's values and replaces those of low value."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, islice
from typing import Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from anole.search.roles import Candidates, History
from anole.search.sample.synthesis import fresh, synthesize
from anole.search.settings import Range, Stateless
from anole.space.space import Vectors


@dataclass(frozen=True)
class Confidence(Stateless):
    """Draws a batch by the softmax of the critic's values and replaces configs that are not above the median of all.

    "DCOC" (ASP-DAC 2025), section 3.3 and algorithm 2. Replacements are the most probable configs under the
    drawn configs' frequencies of each knob's values, in order of probability; when these run out, the drawn config
    stays. Without a critic, the surrogate's scores take the place of its values. If all values are equal, as before the
    surrogate's first fit, they say nothing, and every drawn config stays.

    Attributes:
        temperature: divides the values before the softmax.
        units: of the values: the surrogate's ``score``, of which a softmax is close to uniform, or their own
            ``deviation`` among the candidates. The paper's are in inverse seconds, whose size depends on the layer.
        version: what the same settings choose; version 1 replaced every config of a batch whose values were equal,
            and version 2 had scores as units.
    """

    name: ClassVar[str] = "confidence"

    temperature: Annotated[float, Range(1e-6)] = 1.0
    units: Literal["score", "deviation"] = "deviation"
    version: Literal[3] = 3

    def choose(self, candidates: Candidates, history: History, n: int, rng: np.random.Generator) -> Vectors:
        """Return the confident among the drawn candidates, and then what replaces the others.

        Between how many equally likely candidates the draw is in effect, the inverse of the chances' sum of squares,
        is logged beside the explorer's figures.
        """
        if not len(candidates.vectors):
            return candidates.vectors
        space = history.space
        values = candidates.scores if candidates.values is None else candidates.values
        unit = float(values.std()) or 1.0 if self.units == "deviation" else 1.0
        chances = softmax(values / (unit * self.temperature))
        candidates.log["drawn_between"] = float(1 / np.square(chances).sum())
        drawn = rng.choice(len(values), size=min(n, len(values)), replace=False, p=chances)
        confident = above_median(values)[drawn]
        selected = candidates.vectors[drawn]
        chosen = selected[confident]
        taken = set(chain(history.visited.tolist(), space.identities(chosen).tolist()))
        instead = fresh(chain(synthesize(selected, space), selected[~confident]), taken, space)
        # The replaced configs themselves come last, so that the replacements never run out.
        return np.array([*chosen, *islice(instead, len(selected) - len(chosen))])


def above_median(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which values, shape (n,), are above their median; all, if they are equal and thus tell nothing apart."""
    return np.asarray((values > np.median(values)) | (values.min() == values.max()))


def softmax(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return probabilities, shape (n,), none of them 0, that grow exponentially with values of shape (n,)."""
    grown = np.maximum(np.exp(values - values.max()), np.finfo(np.float64).tiny)
    return np.asarray(grown / grown.sum())
