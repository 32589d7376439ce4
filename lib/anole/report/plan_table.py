"""The plan as a table of tasks and a list of steps, for a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from anole.project.plan import Plan, PlannedTask
from anole.report.tables import facts_grid, plain_table
from anole.text_format import counted, named_few, significant

_TITLES = ("MFLOP", "trials", "failed", "GFLOP/s")


def render_plan(plan: Plan) -> RenderableType:
    """Render the plan for a terminal: the tasks, their counts by state, and the next jobs."""
    parts: list[RenderableType] = []
    if plan.tasks:
        presets = {task.preset for task in plan.tasks}
        rows = [_row(task, len(presets) > 1) for task in plan.tasks]
        parts += [plain_table(("task", "preset", "layers"), _TITLES, rows), Text(), Text(_totals(plan))]
    parts += [Text(f"skipped: {build}: {reason}", style="dim") for build, reason in plan.skipped.items()]
    if plan.behind:
        drifts = ((at.build, "" if at.subject == at.build else at.subject, at.problem) for at in plan.behind)
        advice = "To update a lock, run `anole lock --remove BUILD`, `snakemake` and `anole lock BUILD`."
        parts += [Text("The lock file is outdated:", style="bold"), facts_grid(drifts), Text(advice, style="dim")]
    if not plan.steps:
        return Group(*parts, Text("Nothing to do."))
    return Group(*parts, Text("Next, by `snakemake --cores all`:", style="bold"), facts_grid(_steps(plan)))


def _row(task: PlannedTask, has_preset: bool) -> tuple[str | Text, ...]:
    return (
        Text(task.label, style="" if task.tuned or task.locked else "yellow"),
        task.preset if has_preset else "",
        "; ".join(f"{named_few(layers)} of {model}" for model, layers in task.layers.items()),
        significant(task.flop / 1e6),
        task.spent,
        str(task.failures or ""),
        "" if task.best_gflops is None else significant(task.best_gflops),
    )


def _totals(plan: Plan) -> str:
    """Return the number of tasks in total and by state."""
    states = Counter(_state(task) for task in plan.tasks)
    return f"{counted(len(plan.tasks), 'task')}: {', '.join(f'{count} {state}' for state, count in states.items())}."


def _state(task: PlannedTask) -> str:
    if not task.budget.max_trials:
        return "with the default config (no trials)"
    return "locked" if task.locked else f"tuned with {task.preset}" if task.tuned else "to tune"


def _steps(plan: Plan) -> Iterator[tuple[str, str, str]]:
    """Yield one line per stage and reason, in order of first occurrence."""
    subjects: dict[tuple[str, str], list[str]] = {}
    for step in plan.steps:
        subjects.setdefault((step.stage, step.reason), []).append(step.subject)
    for (stage, reason), names in subjects.items():
        yield stage, named_few(names, 1 if stage == "tune" else 3), reason
