"""AutoTVM's cost model: gradient-boosted trees (XGBoost)."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from anole.search.roles import Examples, History, Surrogate
from anole.search.settings import Range
from anole.search.surrogate.guarded import GuardedSurrogate, Model, Prediction
from anole.space.space import Space, Vectors

if TYPE_CHECKING:
    import xgboost


@dataclass(frozen=True)
class BoostedTrees:
    """XGBoost on the space's features, refitted in every iteration.

    The defaults come from AutoTVM's ``XGBoostCostModel``, except `max_rounds`. Boosting stops when the
    average recall of the fastest measured configs (`average_recall`) has not grown for `patience` rounds. As in
    AutoTVM, it is computed on the training data, since the trees only have to rank the right configs first.
    XGBoost runs on one thread: the trees then do not depend on the number of cores, and small batches do not
    wait for a second thread on a busy machine.

    Attributes:
        objective: ``regression`` on the speed relative to the best, or pairwise ``ranking``.
        max_rounds: max number of boosting rounds, which bounds the time of a fit; AutoTVM allows 8000.
        patience: rounds without progress after which boosting stops.
        recall_at: number of the fastest configs that the recall considers; AutoTVM's batch.
    """

    name: ClassVar[str] = "boosted_trees"

    objective: Literal["regression", "ranking"] = "regression"
    max_depth: Annotated[int, Range(1, 16)] = 3
    learning_rate: Annotated[float, Range(0, 1)] = 0.3
    gamma: Annotated[float, Range(0)] = 1e-4
    min_child_weight: Annotated[float, Range(0)] = 1.0
    reg_lambda: Annotated[float, Range(0)] = 1.0
    reg_alpha: Annotated[float, Range(0)] = 0.0
    max_rounds: Annotated[int, Range(1, 8000)] = 300
    patience: Annotated[int, Range(1)] = 20
    recall_at: Annotated[int, Range(1)] = 64

    def start(self, space: Space) -> Surrogate:
        """Return the surrogate, ready to tune one task."""
        return BoostedTreesSurrogate(self, space)


class BoostedTreesSurrogate(GuardedSurrogate):
    """The surrogate of `BoostedTrees`; its spread is 0, since boosted trees give no uncertainty."""

    def __init__(self, settings: BoostedTrees, space: Space) -> None:
        # Imported here, while the search waits for the worker processes to start.
        _import_xgboost()
        super().__init__(space)
        self.settings = settings

    def _learn(self, history: History) -> Model | None:
        return self._boost(history.examples())

    def _boost(self, examples: Examples, margins: NDArray[np.float64] | None = None) -> Model | None:
        """Return new trees that are boosted from the examples' margins, shape (n,), or from zero if there are none."""
        import xgboost

        settings, scores = self.settings, examples.scores
        if not scores.any():
            return None
        data = xgboost.DMatrix(examples.features, label=scores, base_margin=margins, nthread=1)
        params: dict[str, Any] = {
            "objective": "reg:squarederror",
            "max_depth": settings.max_depth,
            "eta": settings.learning_rate,
            "gamma": settings.gamma,
            "min_child_weight": settings.min_child_weight,
            "lambda": settings.reg_lambda,
            "alpha": settings.reg_alpha,
            "tree_method": "hist",
            "nthread": 1,
            "seed": 0,
            "verbosity": 0,
            "disable_default_eval_metric": True,
        }
        if margins is not None:
            params["base_score"] = 0.0
        if settings.objective == "ranking":
            params |= {
                "objective": "rank:pairwise",
                "lambdarank_pair_method": "mean",
                "lambdarank_num_pair_per_sample": 8,
            }
            data.set_group([len(scores)])

        def recall(predicted: NDArray[np.float32], _: xgboost.DMatrix) -> tuple[str, float]:
            return "recall", average_recall(predicted, scores, settings.recall_at)

        stop = xgboost.callback.EarlyStopping(rounds=settings.patience, metric_name="recall", maximize=True)
        booster = xgboost.train(
            params,
            data,
            settings.max_rounds,
            evals=[(data, "train")],
            custom_metric=recall,
            callbacks=[stop],
            verbose_eval=False,
        )
        worst, width = 0.0, 1.0
        if settings.objective == "ranking":
            margins_ = booster.predict(data, output_margin=True)
            worst, width = float(margins_.min()), float(np.ptp(margins_)) or 1.0

        def predict(vectors: Vectors) -> Prediction:
            margins_ = booster.inplace_predict(self.space.features(vectors), predict_type="margin").astype(np.float64)
            return (margins_ + self._score_unfitted(vectors) - worst) / width, np.zeros(len(vectors))

        return predict


def _import_xgboost() -> None:
    """Import XGBoost without its wrappers for scikit-learn, which makes the import six times faster."""
    hides = "sklearn" not in sys.modules
    if hides:
        sys.modules["sklearn"] = None  # type: ignore[assignment]
    try:
        import_module("xgboost")
    finally:
        if hides:
            del sys.modules["sklearn"]


def average_recall(predicted: NDArray[Any], scores: NDArray[Any], n_top: int) -> float:
    """Return the mean of a prediction's recall at n over n = 1..min(n_top, m): AutoTVM's ``a-recall``.

    Recall at n is the share of the n best that are among the n predicted best. Predictions and true scores have shape
    (m,); higher is better.
    """
    n_top = min(n_top, len(scores))
    rank, predicted_rank = np.empty((2, len(scores)), dtype=np.int64)
    rank[np.argsort(-scores, kind="stable")] = np.arange(len(scores))
    predicted_rank[np.argsort(-predicted, kind="stable")] = np.arange(len(scores))
    # The top n configs contain a config at every n that exceeds both of its ranks.
    n_found = np.bincount(np.maximum(rank, predicted_rank), minlength=n_top)[:n_top].cumsum()
    return float((n_found / np.arange(1, n_top + 1)).mean())
