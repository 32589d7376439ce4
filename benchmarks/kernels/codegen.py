"""Measure how kernel speed depends on the CPU model and tuning flags that LLVM gets, as CSV.

    python -m benchmarks.kernels.codegen > docs/results/data/codegen.csv

The default config of each layer is compiled as Anole does for the local CPU, and for other CPU models, restricted to
the local features; the last row has the default config of a target for x86-64-v3. All are timed interleaved in random
order, one run per turn. A time is the mean of the fastest tenth of the undisturbed runs. `ratio` is the time relative
to the first row, as the median, minimum and maximum over rounds. With the same instructions (`same_code`), ratios other
than 1 are noise.
"""

from __future__ import annotations

import os
import random
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import tvm
from tvm.target import Target, codegen

from anole.evaluate.timing.pairs import WaitMeter, latency_s, timed
from anole.export.levels import choose_levels
from anole.host.cores import caller_on_separate_core
from anole.targets.cpu.device.builder import candidate_context, llvm_target
from anole.targets.cpu.device.runner import CpuRunner
from anole.targets.cpu.runtime import compile_runtime
from anole.targets.cpu.settings import describe_cpu
from anole.targets.cpu.target import CpuTarget
from anole.targets.shared.kernel import define, link
from anole.task import Dense, Workload
from benchmarks.common.arguments import described
from benchmarks.common.rows import print_rows
from benchmarks.kernels.layers import conv2d

LAYERS: tuple[Workload, ...] = (
    *(conv2d(224, 3, 64, 7, 2), conv2d(56, 64, 64), conv2d(56, 64, 128, 3, 2), conv2d(28, 128, 128)),
    *(conv2d(14, 256, 256), conv2d(7, 512, 512), conv2d(28, 192, 192, groups=192), Dense(1, 512, 1000)),
)
NAMES = ("znver4", "znver5", "rocketlake", "sapphirerapids", "x86-64-v4", "x86-64-v3")
WIDTHS = ("-prefer-256-bit", "+prefer-256-bit")
COLUMNS = ("layer", "threads", "compiled_for", "same_code", "us", "ratio", "ratio_low", "ratio_high", "rounds", "turns")
N_ROUNDS = 5


def main() -> None:
    """Print a row for each layer and each way to compile it."""
    parser = described(__doc__)
    parser.add_argument("--threads", type=int, default=1, help="threads per kernel")
    parser.add_argument("--turns", type=int, default=100, help="runs of each kernel per round")
    args = parser.parse_args()
    target = CpuTarget(describe_cpu(threads=args.threads))
    os.environ.update(target.environment())
    print_rows(COLUMNS, (row for workload in LAYERS for row in compare(target, workload, args.turns)))


def compilations(target: CpuTarget) -> Iterator[tuple[str, CpuTarget, dict[str, Any]]]:
    """Yield a title, the target of the config, and TVM's settings; the first ones are Anole's settings."""
    local, description = target.description["mcpu"], target.description
    llvm = llvm_target(description)
    settings = {"kind": "llvm", "mattr": list(llvm.attrs.get("mattr", ())), "mcpu": local}
    yield local, target, settings
    for width in WIDTHS:
        yield f"{local} {width}", target, {**settings, "mattr": [*settings["mattr"], width]}
    features = choose_levels(description)[0].features
    for name in NAMES:
        if name != local:
            missing = choose_levels({**description, "mcpu": name, "features": ()})[0].features - features
            yield name, target, {"kind": "llvm", "mcpu": name, "mattr": sorted(f"-{flag}" for flag in missing)}
    generic = {"kind": "llvm", "mcpu": "x86-64-v4"}
    local_flags, flags = (set(map(str, codegen.llvm_get_cpu_features(t))) for t in (llvm, Target(generic)))
    changes = sorted({*(f"+{flag}" for flag in local_flags - flags), *(f"-{flag}" for flag in flags - local_flags)})
    yield f"x86-64-v4 with all flags of {local}", target, {**generic, "mattr": changes}
    v3_target = CpuTarget(describe_cpu(mcpu="x86-64-v3", threads=target.threads))
    yield "x86-64-v3 and its config", v3_target, {"kind": "llvm", "mcpu": "x86-64-v3"}


def compare(target: CpuTarget, workload: Workload, n_turns: int) -> Iterator[dict[str, object]]:
    """Yield the rows of a layer."""
    with tempfile.TemporaryDirectory() as folder:
        kernels, codes, runner = {}, {}, CpuRunner(target.template(workload), workload)
        for name, config_target, settings in compilations(target):
            artifact, config = Path(folder) / f"{len(kernels)}.so", config_target.default_config(workload)
            codes[name] = compile_to(artifact, config_target, workload, config, settings)
            kernels[name] = runner.load(artifact, config)
    with caller_on_separate_core():
        for kernel in kernels.values():
            kernel(10)
        rounds = [time_round(kernels, n_turns) for _ in range(N_ROUNDS)]
    first = next(iter(kernels))
    for name in kernels:
        ratios = sorted(times_s[name] / times_s[first] for times_s in rounds)
        figures = (("ratio", statistics.median(ratios)), ("ratio_low", ratios[0]), ("ratio_high", ratios[-1]))
        yield {
            **{"layer": workload.label, "threads": target.threads, "compiled_for": name},
            "same_code": int(codes[name] == codes[first]),
            "us": f"{1e6 * statistics.median(times_s[name] for times_s in rounds):.4g}",
            **{key: f"{value:.3f}" for key, value in figures},
            **{"rounds": N_ROUNDS, "turns": n_turns},
        }


def time_round(kernels: Mapping[str, Callable[[int], float]], n_turns: int) -> dict[str, float]:
    """Time kernels interleaved in random order; return the seconds per run of each."""
    names, runs = list(kernels), {name: [] for name in kernels}
    with WaitMeter() as meter:
        for _ in range(n_turns):
            for name in random.sample(names, len(names)):
                runs[name].append(timed(partial(kernels[name], 1), 1, meter))
    return {name: latency_s(kernel_runs) for name, kernel_runs in runs.items()}


def compile_to(
    artifact: Path, target: CpuTarget, workload: Workload, config: Mapping[str, Any], settings: Mapping[str, Any]
) -> list[str]:
    """Write a candidate as a shared library and return its instructions."""
    template = target.template(workload)
    module = tvm.IRModule({"main": template.schedule(define(template, workload, config), workload, config)})
    with candidate_context():
        library = tvm.compile(module, Target(settings), tir_pipeline=target.compiler_pipeline())
    runtime = compile_runtime(target.threads, artifact.parent)
    library.export_library(str(artifact), fcompile=link, addons=[str(runtime)])
    lines = str(library.mod.inspect_source("s")).splitlines()
    return [line for line in lines if line.startswith("\t") and not line.startswith("\t.")]


if __name__ == "__main__":
    main()
