"""The plan as a table of tasks and a list of steps, for a terminal."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from anole.project.plan import Plan


def render_plan(plan: Plan) -> RenderableType:
    """Returns the plan as a table and a list of steps for a terminal."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("task", "GFLOP", "used by", "preset", "trials", "failed", "best GFLOP/s"):
        text = name in ("task", "used by", "preset")
        table.add_column(name, justify="left" if text else "right", no_wrap=name != "used by")
    for task in plan.tasks:
        table.add_row(
            Text(task.label, style="" if task.tuned or task.locked else "yellow"),
            f"{task.flop / 1e9:.3f}",
            ", ".join(f"{model} x{times}" for model, times in task.used_by.items()),
            task.preset,
            task.spent,
            str(task.failures) if task.failures else "",
            "" if task.best_gflops is None else f"{task.best_gflops:.1f}",
        )
    skipped = [Text(f"skips {build}: {reason}", style="dim") for build, reason in plan.skipped.items()]
    behind = _behind(plan)
    if not plan.steps:
        return Group(table, *skipped, *behind, Text("\nNothing to do."))
    steps = Table(box=None, show_header=False, pad_edge=False)
    for step in plan.steps:
        steps.add_row(Text(step.stage, style="bold"), step.subject, Text(step.reason, style="dim"))
    shown: list[RenderableType] = [table, Text()] if plan.tasks else []
    return Group(*shown, *skipped, *behind, Text("Next:", style="bold"), steps)


def _behind(plan: Plan) -> list[RenderableType]:
    """Returns where the lock file is behind, and how to bring it up to date."""
    if not plan.behind:
        return []
    table = Table(box=None, show_header=False, pad_edge=False)
    for each in plan.behind:
        subject = "" if each.subject == each.build else each.subject
        table.add_row(Text(each.build, style="bold"), subject, Text(each.problem, style="dim"))
    how = "`anole lock --remove BUILD`, `snakemake` and `anole lock BUILD` bring a lock up to date."
    return [Text("The lock file is behind:", style="bold"), table, Text(how, style="dim"), Text()]
