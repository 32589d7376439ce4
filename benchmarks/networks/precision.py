"""Compare untuned networks in float32, bf16 and int8, or with quantized weights, with other engines, as CSV.

    python -m benchmarks.networks.precision --rivals onnxruntime,openvino.default > docs/results/data/precision.csv

Most networks are exported from torch with random weights, which do not affect the speed. Two have trained weights: a
sentence encoder from torch, and the text recognition of PP-OCR, an ONNX file from a package. `anole quantize` writes
int8 files in QDQ format, with ranges from random inputs; ONNX Runtime's quantizer writes files with dynamic ranges.
``openvino.default`` chooses its own precision for a float32 file: bf16, if the CPU has it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import onnx

from anole.config.entries import ModelSpec
from anole.evaluate.timing.turns import TurnSchedule
from anole.extract.stage import extract_tasks
from anole.quantize.float_file import read_file
from anole.quantize.stage import quantize_model
from anole.targets import get_target
from anole.targets.cpu.device.precision import FLOAT32, INT8, STORED_WEIGHTS, precisions_of
from anole.targets.cpu.settings import describe_cpu
from anole.task import weight_scheme
from benchmarks.common.arguments import choose_names, make_parser
from benchmarks.common.rows import Row, head, line, print_rows, times
from benchmarks.networks.compare import COLUMNS, compare
from benchmarks.networks.engines import OWN, PACKAGES, compile_untuned
from benchmarks.networks.trained import CASES, sentence_encoder

_ENCODER, _ENCODER_INPUT, _IMAGE = "encoder", (128, 256), (3, 224, 224)
_SENTENCES, _RECOGNITION = "sentence_encoder", "ppocr6_recognition"
_NETWORKS = (
    *("resnet18", "resnet50", "vgg16", "mobilenet_v2", "squeezenet1_1", "efficientnet_b0"),
    *(_ENCODER, _SENTENCES, _RECOGNITION),
)
_DYNAMIC = "int8, dynamic"
_DENSE = ("vgg16",)
"""Networks that spend much of their time reading the weights of dense layers."""
_OPSET = 17
_MORE_COLUMNS = ("precision", "processor", "narrow_share")


def main() -> None:
    """Print a row for each network, batch, precision and engine."""
    parser = make_parser(__doc__)
    parser.add_argument("--networks", default=",".join(_NETWORKS), help="comma-separated")
    parser.add_argument("--batches", default="1,8", help="comma-separated")
    parser.add_argument("--rivals", default="onnxruntime,openvino.default", help="comma-separated")
    parser.add_argument("--rounds", type=int, default=15, help="turns per engine")
    args = parser.parse_args()
    networks, baselines = choose_names(args.networks, _NETWORKS), choose_names(args.rivals, PACKAGES)
    batches = [int(batch) for batch in args.batches.split(",")]
    print_rows((*_MORE_COLUMNS, *COLUMNS), _rows(networks, batches, baselines, TurnSchedule(max_rounds=args.rounds)))


def _rows(
    networks: Sequence[str], batches: Sequence[int], baselines: Sequence[str], schedule: TurnSchedule
) -> Iterator[dict[str, Any]]:
    available = precisions_of(describe_cpu()["features"])
    for name in networks:
        for batch in batches:
            with TemporaryDirectory() as folder:
                float_file = export(name, batch, Path(folder))
                for precision in (precision for precision in available if precision != INT8):
                    yield from _compare(name, float_file, precision, baselines, schedule)
                for weights in STORED_WEIGHTS if name in _DENSE else ():
                    yield from _compare(name, float_file, f"{weights} weights", baselines, schedule)
                quantized = float_file.with_name(f"{name}_int8.onnx")
                quantize_model(ModelSpec(name, f"onnx:{float_file}", {}), quantized, "min-max", target_db=0.0)
                yield from _compare(name, quantized, INT8, baselines, schedule)
                if name == _SENTENCES:
                    yield from _compare(name, _quantize_dynamically(float_file), _DYNAMIC, baselines, schedule)


def _compare(
    name: str, file: Path, precision: str, baselines: Sequence[str], schedule: TurnSchedule
) -> Iterator[dict[str, Any]]:
    """Yield two rows for each baseline: the build and the baseline, timed as a pair."""
    weights = precision.removesuffix(" weights")
    is_file = precision in (INT8, _DYNAMIC)
    settings = {"weights": weights} if weights != precision else {"precision": FLOAT32 if is_file else precision}
    target = get_target(describe_cpu(**settings))
    model, folder = ModelSpec(name, f"onnx:{file}", {}), file.with_suffix(f".{precision}")
    manifest, tasks = extract_tasks(model, precision, target)
    compile_untuned(model, manifest, name, folder)
    low_precision = (task for task in tasks if task.workload.dtype != "float32" or weight_scheme(task.workload))
    flop = {task.key: task.workload.flop for task in low_precision}
    share = sum(task.weight * flop.get(task.key, 0) for task in manifest.tasks) / manifest.flop
    common = {"precision": precision, "processor": "{model} ({mcpu})".format(**target.description)}
    for baseline in baselines:
        for row in compare(folder, [baseline], schedule, Path("absent.sqlite")):
            yield {**common, "narrow_share": f"{share:.3f}", **row}


def table(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a table of Anole's latency next to the last baseline, and of its speedup over each baseline."""
    cases: dict[tuple[str, str, str], dict[str, Row]] = {}
    for row in rows:
        cases.setdefault((row["network"], row["batch"], row["precision"]), {})[row["engine"]] = row
    baselines = [engine for engine in dict.fromkeys(row["engine"] for row in rows) if engine != OWN]
    yield from head("network", "batch", "precision", "ms", *(f"vs. {baseline}" for baseline in baselines))
    for (network, batch, precision), engines in cases.items():
        ratios = [_format_speedup(engines[baseline]) if baseline in engines else "" for baseline in baselines]
        yield line(network, batch, precision, engines[OWN]["latency_ms"], *ratios)


def _format_speedup(row: Row) -> str:
    """Format the speedup over a baseline, and the types that the baseline multiplies, which older files do not have."""
    return times(float(row["speedup"])) + (f" ({row['multiplies']})" if row.get("multiplies") else "")


def export(name: str, batch: int, folder: Path, axes: Mapping[int, str] | None = None) -> Path:
    """Export a network to an ONNX file with fixed shapes except for named input axes, and return its path.

    Weights are random unless the network is trained. Batch norms get different statistics, as in trained networks: the
    exporter would share equal biases through operators that prevent fusion in ONNX Runtime.
    """
    import torch

    if name in (_SENTENCES, _RECOGNITION):
        return _export_trained(name, batch, folder)
    torch.manual_seed(0)
    network, path = _network(name).eval(), folder / f"{name}.onnx"
    for layer in network.modules():
        if isinstance(layer, torch.nn.BatchNorm2d):
            layer.running_mean.normal_(0, 0.1)
            layer.running_var.uniform_(0.5, 1.5)
    example = torch.zeros(batch, *(_ENCODER_INPUT if name == _ENCODER else _IMAGE))
    if not axes:
        torch.onnx.export(network, (example,), str(path), input_names=["x"], dynamo=False, opset_version=_OPSET)
        return path
    # The older exporter treats sizes inside attention as constants.
    dims = {axis: torch.export.Dim(name, min=2, max=4096) for axis, name in axes.items()}
    example = example.repeat_interleave(2, 0) if 0 in axes else example
    torch.onnx.export(
        network, (example,), str(path), input_names=["x"], dynamo=True, dynamic_shapes=(dims,), verbose=False
    )
    return path


def _export_trained(name: str, batch: int, folder: Path) -> Path:
    """Write the ONNX file of a network with trained weights and a fixed batch size."""
    path = folder / f"{name}.onnx"
    model = sentence_encoder(folder, batch) if name == _SENTENCES else CASES[name].source(folder)
    model = replace(model, inputs={key: (batch, *shape[1:]) for key, shape in model.inputs.items()})
    onnx.save(read_file(model)[0], path)
    return path


def _quantize_dynamically(file: Path) -> Path:
    """Quantize a file with ONNX Runtime for ranges computed at run time, and return the new file."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    path = file.with_name(f"{file.stem}_dynamic.onnx")
    quantize_dynamic(file, path, per_channel=True, weight_type=QuantType.QInt8)
    return path


def _network(name: str) -> Any:
    """Return a network with random weights, from torchvision or the encoder."""
    import torch
    import torchvision

    if name != _ENCODER:
        return torchvision.models.get_model(name, weights=None)
    layer = torch.nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True)
    return torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)


if __name__ == "__main__":
    main()
