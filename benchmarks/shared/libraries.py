"""Compare exported libraries with their builds, as CSV: start time, latency, sizes.

    python -m benchmarks.shared.libraries builds/resnet18-cpu-anole builds/lstm-cpu-anole --rounds 10

Run it in the project folder of the builds. Each build is exported for all instruction set levels, with its weights in
a file. A C program measures the creation of an instance and the first run, with files in the page cache. The library,
the build in TVM's virtual machine and ONNX Runtime are then timed interleaved, in one process, at the highest level of
the CPU. Each round gives a ratio of medians; a speedup is the median of these ratios, with their quartiles.
"""

from __future__ import annotations

import importlib.util
import os
import re
import statistics
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anole.documents.build import read_build
from anole.evaluate.comparison import check_inputs
from anole.evaluate.engines import Engine, build_engine, reference_engines
from anole.evaluate.timing.turns import Times, TurnSchedule, time_interleaved
from anole.export.stage import export_build
from anole.measure.device_access import device_access
from anole.targets import get_target
from anole.targets.shared.kernel import find_compiler
from benchmarks.common.arguments import parser_for_builds
from benchmarks.common.builds import rows_of_builds
from benchmarks.common.rows import print_rows

COLUMNS = (
    *("network", "threads", "level", "create_ms", "create_checked_ms", "first_run_ms", "library_ms", "build_ms"),
    *("onnxruntime_ms", "speedup_over_build", "speedup_over_onnxruntime", "speedup_over_onnxruntime_q1"),
    *("speedup_over_onnxruntime_q3", "build_speedup_over_onnxruntime", "rounds", "bit_equal", "library_bytes"),
    *("weights_bytes", "arena_bytes", "build_bytes"),
)
N_STARTS = 9


def main() -> None:
    """Print a row for each build."""
    args = parser_for_builds(__doc__, rounds=30).parse_args()
    print_rows(COLUMNS, rows_of_builds(args.builds, partial(_row, schedule=TurnSchedule(max_rounds=args.rounds))))


def _row(folder: Path, schedule: TurnSchedule) -> Iterator[Mapping[str, object]]:
    build = read_build(folder)
    target = get_target(build.target_description)
    with tempfile.TemporaryDirectory() as scratch, device_access(target) as access:
        os.environ.update({**target.environment(), **access.environment()})  # type: ignore[attr-defined]
        exported = Path(scratch, "exported")
        network = export_build(folder, exported, weights_inside=False)
        inputs = check_inputs(build)[0]
        library_bytes = (exported / "libnetwork.so").stat().st_size
        library, level = _library_engine(exported, inputs)
        compiled = build_engine(folder, inputs, "cpu", network.threads)
        with reference_engines(build.model_spec, inputs, network.threads) as references:
            engines = [library, compiled, *(engine for engine in references if engine.name == "onnxruntime")]
            equal = all(
                output.tobytes() == expected.tobytes()
                for output, expected in zip(library.compute(), compiled.compute(), strict=True)
            )
            with access.timing():
                times = time_interleaved({engine.name: engine.run for engine in engines}, schedule)
                start_times = _time_starts(exported)
    latencies = {f"{name}_ms": f"{1e3 * np.median(np.concatenate(turns)):.4f}" for name, turns in times.items()}
    speedups = {f"speedup_over_{name}": _speedup(times, name) for name in times if name != "library"}
    if "onnxruntime" in times:
        speedups |= {
            "speedup_over_onnxruntime_q1": _speedup(times, "onnxruntime", quantile=0.25),
            "speedup_over_onnxruntime_q3": _speedup(times, "onnxruntime", quantile=0.75),
            "build_speedup_over_onnxruntime": _speedup(times, "onnxruntime", name=compiled.name),
        }
    yield {
        "network": build.model, "threads": network.threads, "level": level, **start_times, **latencies, **speedups,
        "rounds": len(times["library"]), "bit_equal": equal, "library_bytes": library_bytes,
        "weights_bytes": len(network.weights.content), "arena_bytes": network.layout.size_bytes,
        "build_bytes": build.size_bytes,
    }  # fmt: skip


def _library_engine(folder: Path, inputs: Sequence[NDArray[Any]]) -> tuple[Engine, str]:
    """Return an engine for an exported library, on aligned memory, and its instruction set level."""
    spec = importlib.util.spec_from_file_location("network", folder / "network.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    network = module.Network()
    aligned_inputs = [_allocate_aligned(array.shape, array.dtype) for array in inputs]
    for aligned, array in zip(aligned_inputs, inputs, strict=True):
        aligned[...] = array
    outputs = [_allocate_aligned(shape, np.dtype(dtype)) for _, shape, dtype in module.OUTPUTS]
    call, instance = network._library.network_run, network._instance
    input_tensors, output_tensors = module._tensors(aligned_inputs), module._tensors(outputs)
    input_tensors.owners = aligned_inputs  # keep the arrays alive; C has only their addresses
    return Engine("library", lambda: call(instance, input_tensors, output_tensors), lambda _: outputs), network.level


def _allocate_aligned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    size = int(np.prod(shape)) * dtype.itemsize
    memory = np.zeros(size + 64, np.uint8)
    begin = -memory.ctypes.data % 64
    return memory[begin : begin + size].view(dtype).reshape(shape)


def _time_starts(folder: Path) -> dict[str, str]:
    """Run the library's example in separate processes, with and without a check of all weights; return its times."""
    text = (folder / "example.c").read_text()
    checked = text.replace("settings.weights =", "settings.check_weights = 1;\n  settings.weights =")
    medians_ms = {}
    for name, source in {"plain": text, "checked": checked}.items():
        (folder / f"{name}.c").write_text(source)
        files = [f"{name}.c", "-o", name, "libnetwork.a", "-lm", "-lpthread"]
        subprocess.run([find_compiler(), "-O2", *files], cwd=folder, check=True)
        command = [str(folder / name), str(folder / "network.weights")]
        texts = [subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(N_STARTS)]
        times_ms = [tuple(map(float, re.findall(r"([\d.]+) ms", text))) for text in texts]
        medians_ms[name] = [f"{statistics.median(column):.3f}" for column in zip(*times_ms, strict=True)]
    (create_ms, first_run_ms, *_), (checked_ms, *_) = medians_ms["plain"], medians_ms["checked"]
    return {"create_ms": create_ms, "create_checked_ms": checked_ms, "first_run_ms": first_run_ms}


def _speedup(times: Mapping[str, Sequence[Times]], baseline: str, quantile: float = 0.5, name: str = "library") -> str:
    ratios = [np.median(slow) / np.median(fast) for fast, slow in zip(times[name], times[baseline], strict=True)]
    return f"{np.quantile(ratios, quantile):.3f}"


if __name__ == "__main__":
    main()
