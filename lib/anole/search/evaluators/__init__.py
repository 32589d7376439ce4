"""Evaluators, which decide how often a kernel is executed to determine its latency."""

from anole.search.evaluators.adaptive_evaluator import AdaptiveEvaluator
from anole.search.evaluators.fixed import Fixed
from anole.search.settings import EvaluatorSettings

EVALUATORS: dict[str, type[EvaluatorSettings]] = {evaluator.name: evaluator for evaluator in (Fixed, AdaptiveEvaluator)}
"""Every evaluator by its name in models.yaml."""
