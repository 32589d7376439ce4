"""Time untuned networks in float32, bf16 and int8, or with quantized weights, vs. other engines, as CSV.

    python -m benchmarks.networks.precision --rivals onnxruntime,openvino.default > docs/results/data/precision.csv

The networks are exported from torch with random weights, which do not affect the speed, except two with trained
weights. `anole quantize` writes the int8 files: QDQ format, a scale per filter, ranges from random inputs. ONNX
Runtime's quantizer writes those with dynamic ranges. ``openvino.default`` chooses its own precision for a float32 file:
bf16, if the processor has it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import onnx

from anole.config.entries import ModelSpec
from anole.evaluate.timing.turns import Pace
from anole.extract.stage import extract_tasks
from anole.quantize.float_file import read_file
from anole.quantize.stage import quantize_model
from anole.targets import get_target
from anole.targets.cpu.device.precision import FLOAT32, INT8, STORED_WEIGHTS, precisions_of
from anole.targets.cpu.settings import describe_cpu
from anole.task import weight_scheme
from benchmarks.common.arguments import chosen, described
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
_ADDED = ("precision", "processor", "narrow_share")


def main() -> None:
    """Print a row for each network, batch, precision and engine."""
    parser = described(__doc__)
    parser.add_argument("--networks", default=",".join(_NETWORKS), help="comma-separated")
    parser.add_argument("--batches", default="1,8", help="comma-separated")
    parser.add_argument("--rivals", default="onnxruntime,openvino.default", help="comma-separated")
    parser.add_argument("--rounds", type=int, default=15, help="turns per engine")
    given = parser.parse_args()
    networks, rivals = chosen(given.networks, _NETWORKS), chosen(given.rivals, PACKAGES)
    batches = [int(batch) for batch in given.batches.split(",")]
    print_rows((*_ADDED, *COLUMNS), _rows(networks, batches, rivals, Pace(rounds=given.rounds)))


def _rows(
    networks: Sequence[str], batches: Sequence[int], rivals: Sequence[str], pace: Pace
) -> Iterator[dict[str, Any]]:
    available = precisions_of(describe_cpu()["features"])
    for name in networks:
        for batch in batches:
            with TemporaryDirectory() as folder:
                float_file = export(name, batch, Path(folder))
                for precision in (each for each in available if each != INT8):
                    yield from _compared(name, float_file, precision, rivals, pace)
                for weights in STORED_WEIGHTS if name in _DENSE else ():
                    yield from _compared(name, float_file, f"{weights} weights", rivals, pace)
                quantized = float_file.with_name(f"{name}_int8.onnx")
                quantize_model(ModelSpec(name, f"onnx:{float_file}", {}), quantized, "min-max", target_db=0.0)
                yield from _compared(name, quantized, INT8, rivals, pace)
                if name == _SENTENCES:
                    yield from _compared(name, _dynamic(float_file), _DYNAMIC, rivals, pace)


def _compared(name: str, file: Path, precision: str, rivals: Sequence[str], pace: Pace) -> Iterator[dict[str, Any]]:
    """Yield two rows for each rival, of the build and of the rival; both run alone, in turns."""
    weights = precision.removesuffix(" weights")
    is_file = precision in (INT8, _DYNAMIC)
    own = {"weights": weights} if weights != precision else {"precision": FLOAT32 if is_file else precision}
    target = get_target(describe_cpu(**own))
    model, folder = ModelSpec(name, f"onnx:{file}", {}), file.with_suffix(f".{precision}")
    manifest, tasks = extract_tasks(model, precision, target)
    compile_untuned(model, manifest, name, folder)
    narrow_tasks = (task for task in tasks if task.workload.dtype != "float32" or weight_scheme(task.workload))
    flop = {task.key: task.workload.flop for task in narrow_tasks}
    narrow = sum(listed.weight * flop.get(listed.key, 0) for listed in manifest.tasks) / manifest.flop
    added = {"precision": precision, "processor": "{model} ({mcpu})".format(**target.description)}
    for rival in rivals:
        for row in compare(folder, [rival], pace, Path("absent.sqlite")):
            yield {**added, "narrow_share": f"{narrow:.3f}", **row}


def table(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a Markdown table of the latency, and the speedup over each rival, of each network and precision."""
    found: dict[tuple[str, str, str], dict[str, Row]] = {}
    for row in rows:
        found.setdefault((row["network"], row["batch"], row["precision"]), {})[row["engine"]] = row
    rivals = [engine for engine in dict.fromkeys(row["engine"] for row in rows) if engine != OWN]
    yield from head("network", "batch", "precision", "ms", *(f"vs. {rival}" for rival in rivals))
    for (network, batch, precision), engines in found.items():
        ratios = [_versus(engines[rival]) if rival in engines else "" for rival in rivals]
        yield line(network, batch, precision, engines[OWN]["latency_ms"], *ratios)


def _versus(rival: Row) -> str:
    """Return the speedup over a rival, and the rival's multiplied types, which older files do not have."""
    return times(float(rival["speedup"])) + (f" ({rival['multiplies']})" if rival.get("multiplies") else "")


def export(name: str, batch: int, folder: Path, axes: Mapping[int, str] | None = None) -> Path:
    """Export a network to an ONNX file with fixed shapes except for named input axes, and return its path.

    Weights are random unless the network is trained. Statistics differ between norms, as in trained networks: the
    exporter would share equal biases by operators that prevent fusion in ONNX Runtime.
    """
    import torch

    if name in (_SENTENCES, _RECOGNITION):
        return _trained(name, batch, folder)
    torch.manual_seed(0)
    network, path = _network(name).eval(), folder / f"{name}.onnx"
    for layer in network.modules():
        if isinstance(layer, torch.nn.BatchNorm2d):
            layer.running_mean.normal_(0, 0.1)
            layer.running_var.uniform_(0.5, 1.5)
    given = torch.zeros(batch, *(_ENCODER_INPUT if name == _ENCODER else _IMAGE))
    if not axes:
        torch.onnx.export(network, (given,), str(path), input_names=["x"], dynamo=False, opset_version=_OPSET)
        return path
    # The older exporter treats sizes inside attention as constants.
    dims = {axis: torch.export.Dim(name, min=2, max=4096) for axis, name in axes.items()}
    given = given.repeat_interleave(2, 0) if 0 in axes else given
    torch.onnx.export(
        network, (given,), str(path), input_names=["x"], dynamo=True, dynamic_shapes=(dims,), verbose=False
    )
    return path


def _trained(name: str, batch: int, folder: Path) -> Path:
    """Export a network with trained weights."""
    path = folder / f"{name}.onnx"
    made = sentence_encoder(folder, batch) if name == _SENTENCES else CASES[name].source(folder)
    sized = replace(made, inputs={key: (batch, *shape[1:]) for key, shape in made.inputs.items()})
    onnx.save(read_file(sized)[0], path)
    return path


def _dynamic(file: Path) -> Path:
    """Quantize the dense layers of a file dynamically with ONNX Runtime, and return the new file."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    path = file.with_name(f"{file.stem}_dynamic.onnx")
    quantize_dynamic(file, path, per_channel=True, weight_type=QuantType.QInt8)
    return path


def _network(name: str) -> Any:
    """Return a torchvision network, or the encoder."""
    import torch
    import torchvision

    if name != _ENCODER:
        return torchvision.models.get_model(name, weights=None)
    layer = torch.nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True)
    return torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)


if __name__ == "__main__":
    main()
