"""Fuzzing of import and compilation by random ONNX graphs, compared with ONNX Runtime: ``python -m tests.fuzz.graphs``.

    python -m tests.fuzz.graphs --seed 0 --graphs 2000    # or: make fuzz-graphs SEED=0 GRAPHS=2000
    python -m tests.fuzz.graphs --repeat 17               # reduce a failing graph

Outcomes are appended to ``.fuzz/graphs.jsonl``, and later runs skip its seeds; ``--csv`` writes the counts of outcomes,
and a row for each failing graph. A crash affects only its own graph. One graph in twenty runs through the entire
workflow: models.yaml, snakemake, evaluation, and the build's own loader.
"""

from __future__ import annotations

import csv
import json
import multiprocessing
import os
import shutil
import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from anole.errors import AnoleError
from kit.cases import Outcome, run_cases, run_model

from ..terminal import run_command
from .graph_generator import RandomGraph, random_graph
from .graph_judge import judge
from .graph_parts import smallest_part

HOME = Path(__file__).parents[2]
KEPT = Path(".fuzz/graphs.jsonl")
WORKFLOW_EVERY = 20
LIMIT_S = 300.0
SPEC = """
models: {net: {source: "onnx:net.onnx"}}
targets: {cpu: {kind: cpu, threads: 1}}
tuning: {preset: random, trials: 0, seed: 0}
builds: [{model: net, target: cpu}]
"""


def main() -> None:
    """Run a range of seeds, or reproduce one."""
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", type=int, default=200, help="number of graphs")
    parser.add_argument("--seed", type=int, default=0, help="first seed")
    parser.add_argument("--jobs", type=int, default=2, help="number of processes")
    parser.add_argument("--csv", type=Path, help="write the summary to this file")
    parser.add_argument("--repeat", type=int, help="run only this seed, and reduce a failing graph")
    given = parser.parse_args()
    if given.repeat is not None:
        repeat(given.repeat)
        return
    seeds = range(given.seed, given.seed + given.graphs)
    missing = [seed for seed in seeds if str(seed) not in read_outcomes()]
    KEPT.parent.mkdir(exist_ok=True)
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=run_seeds, args=(missing[n :: given.jobs],)) for n in range(given.jobs)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    found = {seed: row for seed, row in read_outcomes().items() if int(seed) in seeds}
    rows = summary(found, f"{seeds.start} to {seeds.stop - 1}")
    with given.csv.open("w", newline="") if given.csv else sys.stdout as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def read_outcomes() -> Mapping[str, Mapping[str, str]]:
    """Return the recorded outcomes by seed."""
    lines = KEPT.read_text().splitlines() if KEPT.exists() else []
    return {row["seed"]: row for row in map(json.loads, lines)}


def run_seeds(seeds: Sequence[int]) -> None:
    """Run graphs in a process that is restarted after a crash, and record each outcome."""
    for seed, outcome in run_cases(map(str, seeds), run_seed, LIMIT_S):
        line = json.dumps({"seed": seed, "through": how_to_build(int(seed)), **outcome._asdict()})
        with KEPT.open("a") as file:
            file.write(line + "\n")
        print(f"{seed}: {outcome.outcome} {outcome.reason}", file=sys.stderr, flush=True)


def how_to_build(seed: int) -> str:
    """Return how to build the graph of a seed."""
    return "compile" if seed % WORKFLOW_EVERY else "workflow"


def run_seed(seed: str, folder: Path) -> Outcome:
    """Build and judge the graph of a seed."""
    graph = random_graph(int(seed))
    build = run_workflow if how_to_build(int(seed)) == "workflow" else run_compiled
    return Outcome(*judge(graph, build(graph, folder)))  # type: ignore[arg-type]


def run_compiled(graph: RandomGraph, folder: Path) -> list[Any]:
    """Import, compile and run a graph in this process."""
    return run_model(graph.model, graph.inputs, folder / "case.onnx")


def run_workflow(graph: RandomGraph, folder: Path) -> list[Any]:
    """Build and evaluate a graph with Snakemake, and run the build.

    Raises:
        AnoleError: the workflow fails, for instance because the evaluation rejects the build.
    """
    project = folder / "project"
    shutil.rmtree(project, ignore_errors=True)
    project.mkdir()
    onnx.save(graph.model, project / "net.onnx")
    (project / "models.yaml").write_text(SPEC)
    np.savez(project / "inputs.npz", **graph.inputs)
    python = [sys.executable, "-m"]
    _call(project, *python, "snakemake", "-s", str(HOME / "Snakefile"), "--cores", "1")
    (build,) = (project / "builds").iterdir()
    _call(project, *python, "anole", "run", str(build), "--input", "inputs.npz", "--output", "outputs.npz")
    with np.load(project / "outputs.npz") as found:
        return [found[name] for name in found.files]


def _call(folder: Path, *command: str) -> None:
    path = os.pathsep.join([str(HOME / "lib"), os.environ.get("PYTHONPATH", "")])
    run = run_command(command, cwd=folder, env={**os.environ, "PYTHONPATH": path})
    if run.returncode:
        logs = [line for path in sorted((folder / "logs").rglob("*.log")) for line in path.read_text().splitlines()]
        lines = [*logs, *run.stderr.splitlines()]
        found = [line for line in lines if line.startswith("anole: ")] or [line for line in lines if "Error" in line]
        raise AnoleError(" ".join(found[:2]) or run.stderr[-200:])


def repeat(seed: int) -> None:
    """Print the smallest part of a graph that fails in the same way, and save it in ``.fuzz/graph-SEED``."""
    graph, folder = random_graph(seed), Path(".fuzz", f"graph-{seed}")
    folder.mkdir(parents=True, exist_ok=True)

    def outcome(part: RandomGraph) -> tuple[str, str]:
        try:
            return judge(part, run_compiled(part, folder))
        except Exception as error:
            return type(error).__name__, str(error)

    full = outcome(graph)
    print(*full)
    if full[0] not in ("right", "rounding"):
        part = smallest_part(graph, lambda part: outcome(part)[0] == full[0])
        print(*outcome(part))
        print(onnx.printer.to_text(part.model.graph))
        onnx.save(part.model, folder / "part.onnx")


def summary(rows: Mapping[str, Mapping[str, str]], seeds: str) -> list[dict[str, str]]:
    """Return a row for each outcome with its count, and one for each failing graph."""
    counts = Counter((row["through"], row["outcome"]) for row in rows.values())
    lines = [(seeds, way, outcome, str(n), "") for (way, outcome), n in sorted(counts.items())]
    for seed, row in sorted(rows.items(), key=lambda item: int(item[0])):
        if not row["outcome"].endswith(("right", "rounding")):
            lines.append((seed, row["through"], row["outcome"], "1", row["reason"]))
    return [dict(zip(("seeds", "through", "outcome", "graphs", "reason"), line, strict=True)) for line in lines]


if __name__ == "__main__":
    main()
