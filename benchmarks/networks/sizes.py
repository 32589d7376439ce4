"""Compare one build for a range of sizes with builds for fixed sizes, and with other engines, as CSV.

    python -m benchmarks.networks.sizes > docs/results/data/sizes.csv

All use the same ONNX file, whose batch, number of tokens or both are dynamic, and run untuned in float32, timed
interleaved in separate processes. A ratio is an engine's latency over the latency of the build for the range, by round.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anole.config.entries import ModelSpec
from anole.documents.build import read_build
from anole.evaluate.comparison import relative_error, timing_inputs
from anole.evaluate.engines import Engine, build_engine, onnxruntime_engine
from anole.evaluate.timing.turns import TurnSchedule, ratios
from anole.extract.stage import extract_tasks
from anole.targets import get_target
from anole.targets.cpu.settings import describe_cpu
from benchmarks.common.arguments import choose_names, make_parser
from benchmarks.common.builds import device_of, time_in_turns
from benchmarks.common.rows import print_rows, quartiles, round_row
from benchmarks.networks.engines import compile_untuned, openvino_engine
from benchmarks.networks.precision import export
from benchmarks.networks.trained import sentence_encoder

_BATCHES, _TOKENS = (1, 2, 3, 4, 7, 8, 13, 16), (16, 31, 64, 100, 128, 200, 256, 384, 511, 512)
_LSTM = "lstm_100_512"
_BATCHES_AND_TOKENS = ((1, 16), (1, 100), (2, 31), (3, 64), (7, 100), (8, 256))


@dataclass(frozen=True)
class _Case:
    """A network with inputs of varying size.

    Attributes:
        network: its name, if several cases share one network.
        axes: the names of the varying axes of the input.
        sizes: the timed sizes, an integer for each axis; the smallest and the largest bound the range of an axis.
    """

    network: str
    axes: Mapping[int, str]
    sizes: Sequence[tuple[int, ...]]

    @property
    def ranges(self) -> dict[str, str]:
        """The range of each named axis."""
        columns = zip(self.axes.values(), zip(*self.sizes, strict=True), strict=True)
        return {name: f"{min(column)}..{max(column)}" for name, column in columns}


_IMAGES, _TEXTS = [(size,) for size in _BATCHES], [(size,) for size in _TOKENS]
_CASES = {
    "resnet18": _Case("resnet18", {0: "batch"}, _IMAGES),
    "mobilenet_v2": _Case("mobilenet_v2", {0: "batch"}, _IMAGES),
    "encoder": _Case("encoder", {1: "tokens"}, _TEXTS),
    "sentence_encoder": _Case("sentence_encoder", {1: "tokens"}, _TEXTS),
    "encoder_batches": _Case("encoder", {0: "batch", 1: "tokens"}, _BATCHES_AND_TOKENS),
    "lstm": _Case(_LSTM, {0: "batch", 1: "steps"}, _BATCHES_AND_TOKENS),
}

_RANGE, _FIXED, _BASELINES = "range", "fixed", ("onnxruntime", "openvino")
_COLUMNS = (
    *("network", "varies", "size", "engine", "latency_ms", "latency_q1_ms", "latency_q3_ms"),
    *("ratio", "ratio_q1", "ratio_q3", "relative_error", "rounds", "compile_s", "size_bytes", "processor"),
)


def main() -> None:
    """Print a row for each network, size and engine."""
    parser = make_parser(__doc__)
    parser.add_argument("--networks", default=",".join(_CASES), help="comma-separated")
    parser.add_argument("--rounds", type=int, default=9, help="turns per engine")
    args = parser.parse_args()
    networks = choose_names(args.networks, _CASES)
    print_rows(_COLUMNS, (row for name in networks for row in _rows(name, TurnSchedule(max_rounds=args.rounds))))


def _rows(name: str, schedule: TurnSchedule) -> Iterator[dict[str, Any]]:
    case = _CASES[name]
    with TemporaryDirectory() as scratch:
        file = _export(case, Path(scratch))
        # The first compilation in a process also imports modules.
        _compile(name, file, dict(zip(case.ranges, case.sizes[0], strict=True)), Path(scratch, _FIXED))
        compile_s = {_RANGE: _compile(name, file, case.ranges, Path(scratch, _RANGE))}
        for values in case.sizes:
            sizes = dict(zip(case.ranges, values, strict=True))
            compile_s[_FIXED] = _compile(name, file, sizes, Path(scratch, _FIXED))
            columns = {"varies": " x ".join(sizes), "size": " x ".join(map(str, values))}
            for row in _time_engines(Path(scratch), file, sizes, schedule):
                yield round_row({"network": name, **columns, "compile_s": compile_s.get(row["engine"]), **row})


def _export(case: _Case, folder: Path) -> Path:
    if case.network == "sentence_encoder":
        return Path(sentence_encoder(folder, axes=case.axes).location)
    return _export_lstm(case.axes, folder) if case.network == _LSTM else export(case.network, 1, folder, case.axes)


def _export_lstm(axes: Mapping[int, str], folder: Path) -> Path:
    """Export the recurrent network with torch's older exporter; the newer one does not support dynamic lengths."""
    import torch

    from benchmarks.networks.small import networks

    (make, shape), path = networks()[_LSTM], folder / "net.onnx"
    names: dict[str, Any] = {"input_names": ["x"], "output_names": ["y"]}
    dynamic = {name: dict(axes) for name in "xy"}
    torch.onnx.export(make().eval(), (torch.zeros(shape),), str(path), dynamic_axes=dynamic, dynamo=False, **names)
    return path


def _compile(name: str, file: Path, dims: Mapping[str, int | str], folder: Path) -> float:
    """Compile a file untuned, for sizes or ranges of sizes, and return the elapsed seconds."""
    began_s = time.perf_counter()
    model = ModelSpec.from_json(name, {"source": f"onnx:{file}", "inputs": {}, "dims": dict(dims)})
    manifest, _ = extract_tasks(model, "cpu", get_target(describe_cpu()))
    compile_untuned(model, manifest, name, folder)
    return time.perf_counter() - began_s


def _time_engines(
    folder: Path, file: Path, sizes: Mapping[str, int], schedule: TurnSchedule
) -> Iterator[dict[str, Any]]:
    """Yield a row for each build in a folder and each baseline, timed at given sizes."""
    builds = {name: read_build(folder / name) for name in (_RANGE, _FIXED)}
    device, inputs = device_of(builds[_RANGE]), timing_inputs(builds[_RANGE].at(sizes))

    def starts(_: Path) -> dict[str, Any]:
        anole = {name: partial(build_engine, folder / name, inputs, device.runs_on, device.threads) for name in builds}
        return anole | {name: partial(_start_baseline, name, file, inputs, device.threads) for name in _BASELINES}

    started, times = time_in_turns(folder / _RANGE, device, starts, schedule)
    for name, engine in started.items():
        yield {
            **{"engine": name, "rounds": len(times[name]), "processor": device.description["model"]},
            **{"relative_error": relative_error(engine.outputs, started[_FIXED].outputs)},
            **{"size_bytes": builds[name].size_bytes if name in builds else None},
            **quartiles("latency", 1e3 * np.concatenate(times[name]), "_ms"),
            **quartiles("ratio", ratios(times[name], times[_RANGE])),
        }


def _start_baseline(name: str, file: Path, inputs: Sequence[NDArray[Any]], threads: int) -> Engine:
    if name == "onnxruntime":
        return onnxruntime_engine(file, inputs, threads)
    return openvino_engine(file, list(inputs), threads, {"INFERENCE_PRECISION_HINT": "f32"})


if __name__ == "__main__":
    main()
