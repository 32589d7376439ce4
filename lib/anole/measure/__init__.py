"""Measuring: how often a kernel is run, and where."""

from anole.measure.adaptive import Adaptive
from anole.measure.evaluator import Fixed
from anole.measure.limits import Limits
from anole.measure.measurer import Measurer
from anole.measure.patience import Patience
from anole.measure.simulated import Simulated
from anole.measure.site import Site, site_of
from anole.measure.worker import prepare
from anole.roles import Evaluator
from anole.settings import EvaluatorSettings
from anole.targets import get_target
from anole.targets.base import Simulator
from anole.task import Task

EVALUATORS: dict[str, type[EvaluatorSettings]] = {evaluator.name: evaluator for evaluator in (Fixed, Adaptive)}
"""Every evaluator by the name that models.yaml calls it."""


def measurer_of(
    task: Task,
    evaluator: Evaluator,
    best_s: float | None = None,
    site: Site | None = None,
    n_builders: int | None = None,
) -> Measurer | Simulated:
    """Returns what measures the candidates of a task, by the kind of its target.

    Args:
        task: whose candidates are measured.
        evaluator: decides how often a kernel is run, where that takes more than once.
        best_s: the least latency that was measured before, in seconds; None when nothing was.
        site: where they run; a place on this machine when None.
        n_builders: how many candidates are built at once; as many as there is use for when None.
    """
    target = get_target(task.target)
    if isinstance(target, Simulator):
        return Simulated(task, target)
    return Measurer(task, evaluator, site=site, n_builders=n_builders, best_s=best_s)


__all__ = ["EVALUATORS", "Limits", "Measurer", "Patience", "Simulated", "Site", "measurer_of", "prepare", "site_of"]
