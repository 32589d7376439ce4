"""Section: the fronts of cycles and area over one network and over several."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from math import inf
from operator import mul
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from anole.errors import AnoleError
from anole.report.cookbook import read_chart
from anole.report.pages.figure import Figure, Lacking, ReportSource, Section, Shown, Table, with_rows
from anole.targets.vta.area import relative_area
from anole.targets.vta.geometry import Geometry
from anole.targets.vta.templates.design import HARDWARE, geometry_of
from anole.words import counted, milliseconds, times

_CANDIDATES = """
select
    build.name as build,
    candidate.value -> '$.block' as block,
    candidate.value ->> '$.area' as area,
    candidate.value ->> '$.memory' as memory,
    candidate.value ->> '$.latency_s' as latency_s,
    build.manifest ->> '$.accelerator.frequency_mhz' as frequency_mhz
from build, json_each(build.manifest, '$.accelerator.candidates') as candidate
where candidate.type = 'object'
order by build.name, area, latency_s
"""

_TRIED = f"""
select
    trial.task_key,
    task.target -> '$.geometry' as geometry,
    {", ".join(f"trial.config ->> '$.{knob}' as {knob}" for knob in HARDWARE)},
    min(trial.latency_s) * (task.target ->> '$.frequency_mhz') * 1e6 as cycles,
    count(*) as trials
from trial
join task on task.key = trial.task_key
where task.target ->> '$.kind' = 'vta' and trial.status = 'ok'
group by trial.task_key, {", ".join(str(3 + number) for number in range(len(HARDWARE)))}
"""

_NETWORKS = """
select model_task.model || ' on ' || model_task.target as network, model_task.task_key, model_task.weight
from model_task
join task on task.key = model_task.task_key
where task.target ->> '$.kind' = 'vta'
order by 1, model_task.position
"""

_ALL = "all networks"
_SEARCH = "builds for a target with `hardware: search` in models.yaml, with enough trials."

Point = tuple[float, float]
"""An area and cycles."""


def make(source: ReportSource) -> list[Shown]:
    """Returns the front of the geometries that were simulated for whole networks, and that of all trials."""
    return [_of_builds(source), _of_trials(source)]


def front(points: Iterable[Point]) -> list[Point]:
    """Returns the points that no other point is at most as large as in both, from the smallest area on."""
    kept: list[Point] = []
    for area, cycles in sorted(points):
        if not kept or cycles < kept[-1][1]:
            kept.append((area, cycles))
    return kept


def _of_builds(source: ReportSource) -> Shown:
    title = "Geometries that a whole network was simulated on"
    query = source.database.query(_CANDIDATES)
    if not query.rows:
        return Lacking(title, _SEARCH)
    points = [
        {
            "area": row["area"],
            "cycles": row["latency_s"] * row["frequency_mhz"] * 1e6,
            "build": row["build"],
            "block": "x".join(map(str, json.loads(row["block"]))),
            "memory": row["memory"],
            "latency_s": row["latency_s"],
        }
        for row in query.records()
    ]
    edges: dict[str, list[Point]] = {}
    for build in dict.fromkeys(point["build"] for point in points):
        edges[build] = front((point["area"], point["cycles"]) for point in points if point["build"] == build)
    for point in points:
        point["on_front"] = (point["area"], point["cycles"]) in edges[point["build"]]
    best = [point for point in points if point["on_front"]]
    rows = (
        (
            *(point["build"], point["block"], times(point["area"]), times(point["memory"])),
            f"{point['cycles']:,.0f}",
            milliseconds(point["latency_s"]),
        )
        for point in best
    )
    return Figure(
        title,
        "cycles of all accelerator steps of one run, and area in units of VTA's own; less of both is better.",
        f"{len(points)} geometries of {counted(len(edges), 'build')}; the table has the {len(best)} on the fronts.",
        "all layers simulated on one accelerator, each with its fastest config there; the line is the front. Area is "
        "an estimate in gates (docs/vta.md).",
        (query,),
        Table.of(("build", "block", "area", "memory", "cycles", "ms"), rows),
        with_rows(read_chart(Path(__file__).with_name("geometries.json")), points),
    )


def _of_trials(source: ReportSource) -> Shown:
    title = "Front of cycles and area, over one and several networks"
    tried, networks = source.database.query(_TRIED), source.database.query(_NETWORKS)
    found = _fastest(tried.records())
    weights: dict[str, dict[str, int]] = {}
    for network, task, weight in networks.rows:
        weights.setdefault(network, {})[task] = weight
    totals = {name: own for name, tasks in weights.items() if (own := _totals(tasks, found))}
    if not totals or max(len({area for _, area in own}) for own in totals.values()) < 2:
        why = "all layers of a network with trials on a common block and in several areas; "
        return Lacking(title, f"{why}for that, {_SEARCH}")
    fronts = {name: front((area, cycles) for (_, area), cycles in own.items()) for name, own in totals.items()}
    relative = {name: [(area, cycles / edge[-1][1]) for area, cycles in edge] for name, edge in fronts.items()}
    if len(totals) > 1 and (common := _common(totals)):
        relative[_ALL] = front(common)
    values = [
        {"area": area, "cycles": cycles, "network": name} for name, edge in relative.items() for area, cycles in edge
    ]
    rows = (
        (name, times(area), "" if name == _ALL else f"{fronts[name][number][1]:,.0f}", times(cycles))
        for name, edge in relative.items()
        for number, (area, cycles) in enumerate(edge)
    )
    return Figure(
        title,
        "cycles of all layers of one run, relative to the fewest that were found; area in units of VTA's own; less of "
        "both is better.",
        f"{counted(sum(row['trials'] for row in tried.records()), 'trial')} with "
        f"{counted(len(tried.rows), 'pair')} of a task and a geometry; {counted(len(totals), 'network')}.",
        "each layer has the fastest trial with one block for all layers, in any buffers that keep the accelerator "
        "within the area: a lower bound, since layers may have different buffers. Over several networks, the geometric "
        "mean of their relative cycles with one block. Area is an estimate in gates (docs/vta.md).",
        (tried, networks),
        Table.of(("network", "area", "cycles", "relative"), rows),
        with_rows(read_chart(Path(__file__).with_name("fronts.json")), values),
    )


Block = tuple[int, ...]
Fastest = Mapping[str, Mapping[Block, Sequence[Point]]]
"""By task and block of the matrix unit, the front of the trials."""


def _fastest(rows: Iterable[Mapping[str, Any]]) -> Fastest:
    points: dict[str, dict[Block, list[Point]]] = {}
    for row in rows:
        knobs = tuple((name, row[name]) for name in HARDWARE if row[name] is not None)
        found = _geometry(row["geometry"], knobs)
        if found is not None:
            block, area = found
            points.setdefault(row["task_key"], {}).setdefault(block, []).append((area, row["cycles"]))
    return {task: {block: front(each) for block, each in own.items()} for task, own in points.items()}


@cache
def _geometry(base: str, knobs: tuple[tuple[str, int], ...]) -> tuple[Block, float] | None:
    """Returns the block and the area of the accelerator that a config asks for; None if there is none."""
    try:
        geometry = geometry_of(Geometry.from_json(json.loads(base)), dict(knobs))
    except (AnoleError, TypeError, ValueError):
        return None
    return geometry.block, round(relative_area(geometry), 4)


def _totals(weights: Mapping[str, int], found: Fastest) -> dict[tuple[Block, float], float]:
    """Returns a network's cycles within each area, for each block with which all of its layers were tried."""
    if not all(task in found for task in weights):
        return {}
    return _joined([found[task] for task in weights], lambda cycles: sum(map(mul, weights.values(), cycles)))


def _joined(
    fronts: Sequence[Mapping[Block, Sequence[Point]]], join: Callable[[list[float]], float]
) -> dict[tuple[Block, float], float]:
    """Returns what the fewest cycles of all fronts come to together, for each block and area that all have."""
    found: dict[tuple[Block, float], float] = {}
    for block in set.intersection(*(set(own) for own in fronts)):
        edges = [own[block] for own in fronts]
        for area in sorted({area for edge in edges for area, _ in edge}):
            within = [next((cycles for own, cycles in reversed(edge) if own <= area), inf) for edge in edges]
            if max(within) < inf:
                found[block, area] = join(within)
    return found


def _common(totals: Mapping[str, Mapping[tuple[Block, float], float]]) -> list[Point]:
    """Returns the geometric means of all networks' relative cycles, for each block and area that all have."""
    fronts = []
    for own in totals.values():
        fewest = min(own.values())
        points: dict[Block, list[Point]] = {}
        for (block, area), cycles in own.items():
            points.setdefault(block, []).append((area, cycles / fewest))
        fronts.append({block: front(each) for block, each in points.items()})
    return [(area, mean) for (_, area), mean in _joined(fronts, geometric_mean).items()]


SECTION = Section("fronts", "Which accelerator takes how many cycles?", "hardware", make)
