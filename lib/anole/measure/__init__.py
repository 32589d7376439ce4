"""Measuring: how often a kernel is run, and where."""

from anole.measure.adaptive import Adaptive
from anole.measure.evaluator import Fixed
from anole.measure.measurer import Limits, Measurer
from anole.settings import EvaluatorSettings

EVALUATORS: dict[str, type[EvaluatorSettings]] = {evaluator.name: evaluator for evaluator in (Fixed, Adaptive)}
"""Every evaluator by the name that models.yaml calls it."""

__all__ = ["EVALUATORS", "Limits", "Measurer"]
