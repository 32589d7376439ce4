"""Times one build for a range of sizes beside builds of fixed sizes, and beside other engines with dynamic dimensions.

    python -m benchmarks.networks.sizes > docs/results/data/sizes.csv

All have the same ONNX file, whose batch or number of tokens is dynamic, and run untuned in float32, each in a process
of its own, in turns. A ratio is an engine's latency over that of the build for the range, by rounds.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anole.declared.entries import ModelSpec
from anole.documents.build import read_build
from anole.evaluate.comparison import draw_inputs, relative_error
from anole.evaluate.engines import Engine, build_engine, onnxruntime_engine
from anole.evaluate.timing.turns import Pace, ratios
from anole.extract.tasks import extract_tasks
from anole.targets import get_target
from anole.targets.cpu.settings import describe_cpu
from benchmarks.common.arguments import chosen, described
from benchmarks.common.builds import device_of, time_in_turns
from benchmarks.common.rows import print_rows, quartiles, rounded
from benchmarks.networks.engines import compile_untuned, openvino_engine
from benchmarks.networks.precision import export
from benchmarks.networks.trained import sentence_encoder

_BATCHES, _TOKENS = (1, 2, 3, 4, 7, 8, 13, 16), (16, 31, 64, 100, 128, 200, 256, 384, 511, 512)
_VARYING = {
    "resnet18": ("batch", 0, _BATCHES),
    "mobilenet_v2": ("batch", 0, _BATCHES),
    "encoder": ("tokens", 1, _TOKENS),
    "sentence_encoder": ("tokens", 1, _TOKENS),
}
"""What varies, the axis of the inputs that it is, and the sizes that are timed, of which the ends are the range."""

_RANGE, _FIXED, _RIVALS = "range", "fixed", ("onnxruntime", "openvino")
_COLUMNS = (
    *("network", "varies", "size", "engine", "latency_ms", "latency_q1_ms", "latency_q3_ms"),
    *("ratio", "ratio_q1", "ratio_q3", "relative_error", "rounds", "compile_s", "size_bytes", "processor"),
)


def main() -> None:
    """Prints a line for each network, size and engine."""
    parser = described(__doc__)
    parser.add_argument("--networks", default=",".join(_VARYING), help="comma-separated")
    parser.add_argument("--rounds", type=int, default=9, help="turns of each engine")
    given = parser.parse_args()
    networks = chosen(given.networks, _VARYING)
    print_rows(_COLUMNS, (row for name in networks for row in _rows(name, Pace(rounds=given.rounds))))


def _rows(name: str, pace: Pace) -> Iterator[dict[str, Any]]:
    varies, axis, sizes = _VARYING[name]
    with TemporaryDirectory() as scratch:
        file = _file(name, {axis: varies}, Path(scratch))
        compile_s = {_RANGE: _compiled(name, file, {varies: f"{sizes[0]}..{sizes[-1]}"}, Path(scratch, _RANGE))}
        for size in sizes:
            compile_s[_FIXED] = _compiled(name, file, {varies: size}, Path(scratch, _FIXED))
            for row in _timed(Path(scratch), file, {varies: size}, pace):
                taken = compile_s.get(row["engine"])
                yield rounded({"network": name, "varies": varies, "size": size, "compile_s": taken, **row})


def _file(name: str, axes: Mapping[int, str], folder: Path) -> Path:
    if name == "sentence_encoder":
        return Path(sentence_encoder(folder, axes=axes).location)
    return export(name, 1, folder, axes)


def _compiled(name: str, file: Path, dims: Mapping[str, int | str], folder: Path) -> float:
    """Compiles a file for sizes, or ranges of them, untuned, and returns the seconds that this took."""
    began_s = time.perf_counter()
    model = ModelSpec.from_json(name, {"source": f"onnx:{file}", "inputs": {}, "dims": dict(dims)})
    manifest, _ = extract_tasks(model, "cpu", get_target(describe_cpu()))
    compile_untuned(model, manifest, name, folder)
    return time.perf_counter() - began_s


def _timed(folder: Path, file: Path, sizes: Mapping[str, int], pace: Pace) -> Iterator[dict[str, Any]]:
    """Yields what the builds in a folder and the other engines take at some sizes."""
    builds = {name: read_build(folder / name) for name in (_RANGE, _FIXED)}
    device, inputs = device_of(builds[_RANGE]), draw_inputs(builds[_RANGE].at(sizes))

    def starts(_: Path) -> dict[str, Any]:
        own = {name: partial(build_engine, folder / name, inputs, device.runs_on, device.threads) for name in builds}
        return own | {name: partial(_rival, name, file, inputs, device.threads) for name in _RIVALS}

    started, times = time_in_turns(folder / _RANGE, device, starts, pace)
    for name, engine in started.items():
        yield {
            **{"engine": name, "rounds": len(times[name]), "processor": device.description["model"]},
            **{"relative_error": relative_error(engine.outputs, started[_FIXED].outputs)},
            **{"size_bytes": builds[name].size_bytes if name in builds else None},
            **quartiles("latency", 1e3 * np.concatenate(times[name]), "_ms"),
            **quartiles("ratio", ratios(times[name], times[_RANGE])),
        }


def _rival(name: str, file: Path, inputs: Sequence[NDArray[Any]], threads: int) -> Engine:
    if name == "onnxruntime":
        return onnxruntime_engine(file, inputs, threads)
    return openvino_engine(file, list(inputs), threads, {"INFERENCE_PRECISION_HINT": "f32"})


if __name__ == "__main__":
    main()
