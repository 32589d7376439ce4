"""A surrogate and a policy that were trained on other tasks, and go on learning on the one that is searched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from anole.search.explore.ppo import PPO
from anole.search.roles import Candidates, Explorer, History, Surrogate
from anole.search.surrogate.boosted_trees import BoostedTrees
from anole.space.space import Space, Vectors

if TYPE_CHECKING:
    import torch
    import xgboost

    from anole.search.explore.ppo.networks import Networks

Predict = Callable[[Vectors], NDArray[np.float64]]
"""Predicts the speeds of index vectors in GFLOP/s, discounts included, shape (n,)."""

_TREES: dict[str, Any] = {"tree_method": "hist", "nthread": 1, "seed": 0, "verbosity": 0}


@dataclass(frozen=True)
class SpeedModel:
    """Trees that predict speeds: how likely a config runs, times how fast it then is.

    Args:
        features: of all trials, shape (n, n_features).
        logs: binary logarithms of the trials' speeds on a scale that all tasks share, shape (n,); NaN is a failure.
    """

    features: NDArray[np.float32]
    logs: NDArray[np.float64]

    def __call__(self, features: NDArray[np.float32]) -> NDArray[np.float64]:
        """Returns the expected speeds, shape (n,)."""
        speeds = 2.0 ** self._speed.inplace_predict(features).astype(np.float64)
        return speeds if self._works is None else speeds * self._works.inplace_predict(features)

    @cached_property
    def _speed(self) -> xgboost.Booster:
        works = ~np.isnan(self.logs)
        return self._trained("reg:squarederror", self.features[works], self.logs[works])

    @cached_property
    def _works(self) -> xgboost.Booster | None:
        works = ~np.isnan(self.logs)
        return None if works.all() else self._trained("binary:logistic", self.features, works)

    def _trained(self, objective: str, features: NDArray[np.float32], labels: NDArray[Any]) -> xgboost.Booster:
        import xgboost

        params = {"objective": objective, "max_depth": 6, "eta": 0.1, "subsample": 0.8, "colsample_bytree": 0.5}
        return xgboost.train(params | _TREES, xgboost.DMatrix(features, label=labels, nthread=1), 200)


@dataclass(frozen=True)
class PretrainedTrees(BoostedTrees):
    """Boosting that begins with the predictions of a model of other tasks.

    Before the first trial, the model's word counts alone. Then its predictions, scaled by the task's own trials, are
    the margin on which new trees are boosted.

    Attributes:
        predict: the model's predictions.
        features: features of index vectors for the task's own trees, shape (n, n_features).
        learns: whether the task's own trials correct the model.
    """

    name: ClassVar[str] = "pretrained_trees"

    predict: Predict = field(default=lambda vectors: np.ones(len(vectors)))
    features: Callable[[Vectors], NDArray[np.float32]] = field(default=lambda vectors: vectors.astype(np.float32))
    learns: bool = True

    def start(self, space: Space) -> Surrogate:
        """Returns the surrogate, ready to tune one task."""
        return _PretrainedSurrogate(self, space)


class _PretrainedSurrogate:
    fitted = True

    def __init__(self, settings: PretrainedTrees, space: Space) -> None:
        self.settings = settings
        self._best = float(settings.predict(space.sample(1024, np.random.default_rng(0))).max())
        self._scale, self._booster = 1.0, None

    def fit(self, history: History) -> None:
        works = history.gflops > 0
        if not self.settings.learns or not works.any():
            return
        predicted = self.settings.predict(history.vectors)
        # Geometric, because what the model misses is a factor.
        self._scale = float(np.exp(np.median(np.log(history.gflops[works] / np.maximum(predicted[works], 1e-9)))))
        self._best = history.best_gflops
        self._booster = self._boost(self.settings.features(history.vectors), history.scores, self._margins(predicted))

    def score(self, vectors: Vectors) -> NDArray[np.float64]:
        margins = self._margins(self.settings.predict(vectors))
        if self._booster is None or not len(vectors):
            return margins
        features = self.settings.features(vectors)
        return np.asarray(margins + self._booster.inplace_predict(features))

    def spread(self, vectors: Vectors) -> NDArray[np.float64]:
        return np.zeros(len(vectors))

    def _margins(self, predicted: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(predicted * self._scale / self._best)

    def _boost(
        self, features: NDArray[np.float32], scores: NDArray[np.float64], margins: NDArray[np.float64]
    ) -> xgboost.Booster:
        import xgboost

        settings = self.settings
        data = xgboost.DMatrix(features, label=scores, base_margin=margins, nthread=1)
        params = {"max_depth": settings.max_depth, "eta": settings.learning_rate, "base_score": 0.0}
        return xgboost.train(params | _TREES, data, 60)


@dataclass(frozen=True)
class Context:
    """What a policy knows of a task besides the config, and the weights with which it begins.

    Attributes:
        numbers: of the task, about -1 to 1, shape (n_numbers,).
        weights: of the networks; None for new ones.
    """

    numbers: Sequence[float] = ()
    weights: dict[str, Any] | None = None


@dataclass(frozen=True)
class PretrainedPPO(PPO):
    """PPO whose networks also see the task's extents, and begin with given weights.

    Before anything is measured, the configs at which the policy's walks end are proposed, the one of most value by its
    critic first.
    """

    name: ClassVar[str] = "pretrained_ppo"

    context: Context = field(default_factory=Context)

    def start(self, space: Space) -> Explorer:
        """Returns the explorer, ready to tune one task."""
        return _PretrainedExplorer(self, space, super().start(space))

    def networks(self, space: Space, generator: torch.Generator) -> Networks:
        """Returns the networks with the context's weights."""
        return _context_networks(self, space, generator)


class _PretrainedExplorer:
    def __init__(self, settings: PretrainedPPO, space: Space, ppo: Explorer) -> None:
        self.settings, self.space, self._ppo = settings, space, ppo

    def propose(self, surrogate: Surrogate, history: History, rng: np.random.Generator) -> Candidates:
        if surrogate.fitted:
            return self._ppo.propose(surrogate, history, rng)
        from anole.search.explore.ppo.rollout import roll_out
        from anole.search.explore.ppo.steps import Steps
        from anole.search.explore.ppo.update import Learner

        learner, begin = Learner(self.settings, self.space, rng), self.space.sample(self.settings.n_episodes, rng)
        live = np.ones(len(begin), dtype=bool)
        rollout = roll_out(Steps(self.space), learner.policy, begin, live, 40, None, rng)
        reached = self.space.indices(rollout.vectors[-10:].reshape(-1, begin.shape[1]))
        vectors = self.space.vectors(np.setdiff1d(reached, history.visited))
        order = np.argsort(-learner.values(self.space.normalized(vectors)), kind="stable")
        vectors = vectors[order[: self.settings.n_candidates or len(order)]]
        return Candidates(vectors, np.zeros(len(vectors)))


def _context_networks(settings: PretrainedPPO, space: Space, generator: torch.Generator) -> Networks:
    import torch
    from torch import Tensor

    from anole.search.explore.ppo.networks import ActorCritic

    numbers = torch.tensor(settings.context.numbers, dtype=torch.float32)

    class ContextNetworks(ActorCritic):
        """Networks that see the task's numbers beside the config."""

        def logits(self, states: Tensor) -> Tensor:
            return super().logits(self._seen(states))[:, :, : len(space.knobs)]

        def values(self, states: Tensor, moves: Tensor) -> Tensor:
            return super().values(self._seen(states), moves)

        def _seen(self, states: Tensor) -> Tensor:
            return torch.cat([states, numbers.expand(*states.shape[:-1], -1)], dim=-1)

    n_inputs = len(space.knobs) + len(numbers)
    networks = ContextNetworks(n_inputs, settings.n_hidden, settings.shared_layer, generator)
    networks.agents = [torch.arange(len(space.knobs))]
    if settings.context.weights is not None:
        networks.load_state_dict(settings.context.weights)
    return networks


def train_policy(
    settings: PretrainedPPO,
    tasks: Sequence[tuple[Space, Sequence[float], Predict]],
    n_rounds: int,
    rng: np.random.Generator,
) -> dict[str, Any]:
    """Trains one policy on several tasks in turns, and returns its weights.

    Args:
        settings: of the training.
        tasks: the space of each task, its numbers (see `Context`) and what predicts its speeds.
        n_rounds: turns of each task; a turn is a rollout of `horizon` steps, half of them from where the last ended.
        rng: source of randomness.
    """
    import torch

    from anole.search.explore.ppo.rollout import roll_out
    from anole.search.explore.ppo.steps import Steps
    from anole.search.explore.ppo.update import Learner

    torch.set_num_threads(1)
    weights: dict[str, Any] | None = None
    learners, steps, bests, ends = {}, {}, {}, {}
    for turn in range(n_rounds):
        for at in rng.permutation(len(tasks)).tolist():
            space, numbers, predict = tasks[at]
            if at not in learners:
                learners[at] = Learner(replace(settings, context=Context(numbers)), space, rng)
                steps[at], bests[at] = Steps(space), float(predict(space.sample(1024, rng)).max())
            learner = learners[at]
            if weights is not None:
                learner.networks.load_state_dict(weights)
            vectors = space.sample(settings.n_episodes, rng)
            if at in ends and turn % 2:
                vectors = ends[at]
            live = np.ones(len(vectors), dtype=bool)
            rollout = roll_out(steps[at], learner.policy, vectors, live, settings.horizon, None, rng)
            reached = rollout.vectors[1:]
            distinct, of_each = np.unique(space.indices(reached.reshape(-1, reached.shape[-1])), return_inverse=True)
            rewards = (predict(space.vectors(distinct)) / bests[at])[of_each].reshape(reached.shape[:2])
            learner.learn(learner.batch(rollout, rewards))
            weights, ends[at] = learner.networks.state_dict(), rollout.vectors[-1]
    assert weights is not None
    return weights
