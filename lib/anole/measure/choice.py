"""Chooses how the candidates of a task are measured, by the kind of its target."""

from __future__ import annotations

from anole.measure.measurer import Measurer
from anole.measure.simulation import Simulated
from anole.measure.site import Site
from anole.measure.verified import Verified
from anole.record import Config
from anole.search.roles import Evaluator
from anole.targets import get_target
from anole.targets.base import Place
from anole.task import Task


def measurer_of(
    task: Task,
    evaluator: Evaluator,
    best_s: float | None = None,
    known: Config | None = None,
    site: Site | None = None,
    n_builders: int | None = None,
) -> Verified | Simulated:
    """Returns the measurer of a task's candidates.

    Args:
        task: the task.
        evaluator: decides how often a kernel is run; not used by simulators.
        best_s: the least latency measured before, in seconds; None if there is none.
        known: a config that worked before; None if there is none.
        site: where candidates run; a site on this machine when None.
        n_builders: how many candidates are built at once; a suitable number when None.
    """
    target = get_target(task.target)
    if target.place is Place.SIMULATOR:
        return Simulated(task, target)
    measurer = Measurer(task, evaluator, site=site, n_builders=n_builders, best_s=best_s)
    return Verified(measurer, task, target, known)
