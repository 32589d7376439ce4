"""Tables for a terminal: their common style, the plan of a project, and the loss from quantization."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from anole.text_format import format_names, pluralize, significant

if TYPE_CHECKING:
    from anole.project.plan import Plan, PlannedTask
    from anole.quantize.stage import Quantized


def plain_table(texts: Sequence[str], numbers: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> Table:
    """Return a table with a header; columns without content are omitted.

    Args:
        texts: the titles of the text columns; the last of them is truncated on a narrow terminal.
        numbers: the titles of the numeric columns, which follow.
        rows: the cells of each row. The style of the first cell applies to the entire row.
    """
    cells = [[cell if isinstance(cell, Text) else Text(cell) for cell in row] for row in rows]
    titles = (*texts, *numbers)
    columns = [index for index in range(len(titles)) if any(row[index].plain for row in cells)]
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 1))
    for index in columns:
        is_numeric, is_truncated = index >= len(texts), index == len(texts) - 1
        table.add_column(titles[index], justify="right" if is_numeric else "left", no_wrap=not is_truncated)
        for row in cells:
            row[index].no_wrap, row[index].overflow = True, "ellipsis"
    for row in cells:
        table.add_row(*(row[index] for index in columns), style=row[0].style)
    return table


def facts_grid(facts: Iterable[tuple[str, ...]]) -> Table:
    """Return a grid of names and texts; the texts wrap at the width of the terminal."""
    table = Table.grid(padding=(0, 2), pad_edge=False)
    for name, *texts in facts:
        table.add_row(Text(f"  {name}", no_wrap=True), *map(Text, texts))
    return table


_TITLES = ("MFLOP", "trials", "failed", "GFLOP/s")


def render_plan(plan: Plan) -> RenderableType:
    """Render the plan for a terminal: tasks, their counts by state, skipped builds, outdated locks and next jobs."""
    parts: list[RenderableType] = []
    if plan.tasks:
        presets = {task.preset for task in plan.tasks}
        rows = [_row(task, len(presets) > 1) for task in plan.tasks]
        parts += [plain_table(("task", "preset", "layers"), _TITLES, rows), Text(), Text(_totals(plan))]
    parts += [Text(f"skipped: {build}: {reason}", style="dim") for build, reason in plan.skipped.items()]
    if plan.behind:
        drifts = ((lag.build, "" if lag.subject == lag.build else lag.subject, lag.problem) for lag in plan.behind)
        advice = "To update a lock, run `anole lock --remove BUILD`, `snakemake` and `anole lock BUILD`."
        parts += [Text("The lock file is outdated:", style="bold"), facts_grid(drifts), Text(advice, style="dim")]
    if not plan.steps:
        return Group(*parts, Text("Nothing to do."))
    return Group(*parts, Text("Next, by `snakemake --cores all`:", style="bold"), facts_grid(_steps(plan)))


def _row(task: PlannedTask, shows_preset: bool) -> tuple[str | Text, ...]:
    return (
        Text(task.label, style="" if task.tuned or task.locked else "yellow"),
        task.preset if shows_preset else "",
        "; ".join(f"{format_names(layers)} of {model}" for model, layers in task.layers.items()),
        significant(task.flop / 1e6),
        task.spent,
        str(task.failures or ""),
        "" if task.best_gflops is None else significant(task.best_gflops),
    )


def _totals(plan: Plan) -> str:
    """Return the number of tasks in total and by state."""
    states = Counter(_state(task) for task in plan.tasks)
    return f"{pluralize(len(plan.tasks), 'task')}: {', '.join(f'{count} {state}' for state, count in states.items())}."


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
        yield stage, format_names(names, 1 if stage == "tune" else 3), reason


def render_quantized(model: str, quantized: Quantized) -> RenderableType:
    """Render the network's signal-to-noise ratio, the layers in float32, and the other layers in execution order."""
    rows = [(loss.name, loss.operator, f"{loss.sqnr_db:.1f}", f"{loss.lost_db:.1f}") for loss in quantized.loss.layers]
    lines = [Text(f"{model}: {quantized.loss.sqnr_db:.1f} dB with {quantized.method}", style="bold")]
    for layer in quantized.floats:
        gain = "" if layer.before_db is None else f" ({layer.before_db:.1f} dB before)"
        lines.append(Text(f"in float32: {layer.name}{gain}"))
    return Group(*lines, plain_table(("layer", "operator"), ("signal/noise dB", "lost dB"), rows))
