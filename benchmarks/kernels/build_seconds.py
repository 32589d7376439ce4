"""Measures the CPU time to build and load candidates of ResNet-18's layers, stage by stage, as CSV.

    python -m benchmarks.kernels.build_seconds > docs/results/data/build_seconds.csv

Random configs are built and loaded in two ways. `plain`: TVM's default compilation, with the weights packed for each
config. `lean`: as Anole builds candidates, with the weights already packed, as they are for every config except the
first of a layout. Each figure is the minimum of three, both ways in turns, of the CPU time of this process and the
linker, in seconds. `same_code` is the share of configs for which LLVM emits the same loop instructions in both ways.
"""

from __future__ import annotations

import resource
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import tvm
from tvm.tirx.build import codegen_build

from anole.record import Config
from anole.targets import get_device
from anole.targets.cpu.device.builder import candidate_context, llvm_target
from anole.targets.cpu.settings import describe_cpu
from anole.targets.shared.kernel import define, link
from anole.task import Workload
from benchmarks.common.arguments import described
from benchmarks.common.rows import print_rows
from benchmarks.kernels.layers import RESNET18
from kit.assembly import loop_instructions

CONTEXTS: dict[str, Callable[[], Any]] = {"plain": tvm.transform.PassContext, "lean": candidate_context}
REPEATS = 3
Seconds = dict[tuple[str, str], list[float]]
"""The seconds of every config, by way and stage."""
COLUMNS = (
    *("layer", "configs", "way", "stage", "first_quartile_s", "median_s", "third_quartile_s", "mean_s"),
    "same_code",
)


def main() -> None:
    """Prints a line for each layer, way and stage, followed by lines for all layers together."""
    parser = described(__doc__)
    parser.add_argument("--configs", type=int, default=8, help="number of configs of each layer")
    print_rows(COLUMNS, measure(parser.parse_args().configs))


def measure(n_configs: int) -> Iterator[dict[str, object]]:
    """Yields the rows of all layers."""
    everything: Seconds = defaultdict(list)
    same: list[bool] = []
    for workload in RESNET18:
        seconds, same_here = measure_layer(workload, n_configs)
        yield from rows(workload.label, seconds, same_here)
        for key, figures in seconds.items():
            everything[key] += figures
        same += same_here
    yield from rows("all", everything, same)


def measure_layer(workload: Workload, n_configs: int) -> tuple[Seconds, list[bool]]:
    """Returns the seconds of every config, and whether it has the same loops in both ways."""
    seconds, same = defaultdict(list), []
    space = get_device(describe_cpu()).space(workload)
    for vector in space.sample(n_configs, np.random.default_rng(0)):
        config = space.config(vector)
        with TemporaryDirectory(prefix="anole-") as folder:
            libraries = {way: Path(folder) / f"{way}.so" for way in CONTEXTS}
            spent, is_same = build_both(workload, config, libraries)
            for way, loads_s in load_both(workload, config, libraries).items():
                spent[way]["load"] = loads_s
        for way, stages in spent.items():
            for stage, stage_s in stages.items():
                seconds[way, stage].append(stage_s)
            seconds[way, "all"].append(sum(stages.values()))
        same.append(is_same)
    return seconds, same


def build_both(
    workload: Workload, config: Config, libraries: Mapping[str, Path]
) -> tuple[dict[str, dict[str, float]], bool]:
    """Returns the minimal CPU seconds of each way and stage, and whether the loops are the same."""
    runs: dict[str, list[dict[str, float]]] = {way: [] for way in libraries}
    codes = set()
    for way in [*libraries] * REPEATS:
        with CONTEXTS[way]():
            spent, assembly = build(workload, config, libraries[way])
        runs[way].append(spent)
        codes.add(loop_instructions(assembly))
    least = {way: {stage: min(run[stage] for run in spents) for stage in spents[0]} for way, spents in runs.items()}
    return least, len(codes) == 1


def build(workload: Workload, config: Config, library: Path) -> tuple[dict[str, float], str]:
    """Builds in the current pass context; returns the CPU seconds of each stage, and the assembly."""
    target, spent, kernel = get_device(describe_cpu()), {}, library.with_suffix(".o")
    template, compiler_target = target.template(workload), llvm_target(target.description)

    def timed(stage: str, do: Callable[[], Any]) -> Any:
        began_s = cpu_seconds()
        result = do()
        spent[stage] = cpu_seconds() - began_s
        return result

    func = timed("define", lambda: define(template, workload, config))
    func = timed("schedule", lambda: template.schedule(func, workload, config))
    lowered = timed("lower", lambda: lower(func, compiler_target))
    module = timed("optimise", lambda: codegen_build(lowered, compiler_target))
    timed("emit", lambda: module.write_to_file(str(kernel)))
    timed("link", lambda: link(str(library), [str(kernel)]))
    return spent, module.inspect_source("s")


def load_both(workload: Workload, config: Config, libraries: Mapping[str, Path]) -> dict[str, float]:
    """Returns the minimal CPU seconds of loading, by way; the runner packs the weights for the first, `plain`."""
    seconds: dict[str, list[float]] = defaultdict(list)
    for _ in range(REPEATS):
        runner = get_device(describe_cpu()).runner(workload)
        for way, library in libraries.items():
            began_s = cpu_seconds()
            runner.load(library, config)
            seconds[way].append(cpu_seconds() - began_s)
    return {way: min(loads_s) for way, loads_s in seconds.items()}


def lower(func: Any, target: tvm.target.Target) -> tvm.IRModule:
    """Returns the module that `tvm.compile` passes to LLVM for a function, in the current pass context."""
    bound = tvm.tirx.transform.BindTarget(target.with_host(target))(tvm.IRModule({"main": func}))
    passes, finalize, _ = tvm.tirx.get_default_tir_pipeline(target)
    return finalize()(passes(bound))


def cpu_seconds() -> float:
    """Returns the CPU time of this process and of the child processes that it has waited for."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def rows(layer: str, seconds: Seconds, same: list[bool]) -> Iterator[dict[str, object]]:
    """Yields a row for each way and stage."""
    for (way, stage), figures in seconds.items():
        spread = (*np.quantile(figures, (0.25, 0.5, 0.75)), np.mean(figures))
        share = f"{np.mean(same):.3f}" if stage == "all" else ""
        values = (layer, len(figures), way, stage, *(f"{figure_s:.4f}" for figure_s in spread), share)
        yield dict(zip(COLUMNS, values, strict=True))


if __name__ == "__main__":
    main()
