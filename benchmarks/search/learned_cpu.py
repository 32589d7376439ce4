"""Learning across tasks on this machine: what is proposed before the first trial, by models of other layers.

    python -m benchmarks.search.learned_cpu work/pretrained record --seconds 60   # random trials; goes on
    python -m benchmarks.search.learned_cpu work/pretrained compare --seconds 60   # measures proposals; likewise

The layers are the direct convolutions of ResNet-18 and MobileNet v2. A model learns from the random trials of one
network and proposes for the layers of the other. Beside it are the merit, a merit whose constants are wrong by a factor
of two, and random configs. All proposals of a layer are measured in the same turn; a gap is over the fastest known.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anole.measure.measurer import Measurer
from anole.measure.options import MeasureOptions
from anole.space.space import Space, Vectors
from anole.targets import get_target
from anole.targets.cpu.settings import describe_cpu
from anole.targets.cpu.templates import conv2d_space
from anole.task import Conv2d, Task
from benchmarks.search.pretrained import SpeedModel
from benchmarks.search.record import Fastest

_SAME = (1, 1, 1, 1)
NETWORKS = {
    "resnet18": (
        Conv2d(1, 56, 56, 64, 128, (3, 3), (2, 2), _SAME),
        Conv2d(1, 56, 56, 64, 128, (1, 1), (2, 2)),
        Conv2d(1, 28, 28, 128, 256, (3, 3), (2, 2), _SAME),
        Conv2d(1, 28, 28, 128, 256, (1, 1), (2, 2)),
        Conv2d(1, 14, 14, 256, 512, (3, 3), (2, 2), _SAME),
        Conv2d(1, 14, 14, 256, 512, (1, 1), (2, 2)),
        Conv2d(1, 224, 224, 3, 64, (7, 7), (2, 2), (3, 3, 3, 3)),
    ),
    "mobilenet_v2": (
        Conv2d(1, 112, 112, 16, 96, (1, 1)),
        Conv2d(1, 56, 56, 24, 144, (1, 1)),
        Conv2d(1, 28, 28, 144, 32, (1, 1)),
        Conv2d(1, 28, 28, 32, 192, (1, 1)),
        Conv2d(1, 14, 14, 384, 64, (1, 1)),
        Conv2d(1, 14, 14, 96, 576, (1, 1)),
        Conv2d(1, 7, 7, 320, 1280, (1, 1)),
    ),
}
LAYERS = {f"{network} {at}": (network, layer) for network, own in NETWORKS.items() for at, layer in enumerate(own)}

DRAWN, PROPOSED, POOL = 48, 8, 4096
METHODS = ("random", "merit", "wrong merit", "pretrained", "pretrained with merit", "pretrained with wrong merit")

_CONSTANTS = (
    "_NEAR",
    "_SHARED",
    "_FAR",
    "_UNASKED",
    "_PADDED",
    "_HIDING",
    "_FEW",
    "_MANY",
    "_CONFLICTING",
    "_EVALUATED",
)
"""Constants of the merit that were fitted to a machine."""


@dataclass(frozen=True)
class Layer:
    """A layer on this machine."""

    name: str

    @property
    def workload(self) -> Conv2d:
        """Its convolution."""
        return LAYERS[self.name][1]

    @property
    def space(self) -> Space:
        """Its space."""
        return get_target(_description()).space(self.workload)

    def measured(self, vectors: Vectors) -> list[float]:
        """Returns the seconds of configs on this machine; NaN for a failure."""
        target = get_target(_description())
        task = Task(self.workload, _description(), target.template_version(self.workload))
        configs = [self.space.config(vector) for vector in vectors]
        with Measurer(task, MeasureOptions(Fastest())) as measurer:
            return [each.latency_s or float("nan") for each in measurer.measure(configs)]


@cache
def _description() -> dict[str, Any]:
    return dict(describe_cpu(exact=True))


def main() -> None:
    """Records or compares until the time is up."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("what", choices=("record", "compare", "table"))
    parser.add_argument("--seconds", type=float, default=60.0)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    ends_s = time.monotonic() + arguments.seconds
    if arguments.what == "table":
        table(_read(arguments.folder / "compare.jsonl"))
        return
    path = arguments.folder / f"{arguments.what}.jsonl"
    done = {line["layer"] for line in _read(path)}
    for name in LAYERS:
        if name not in done and time.monotonic() < ends_s:
            found = record(name) if arguments.what == "record" else compare(name, arguments.folder)
            with path.open("a") as file:
                file.write(json.dumps({"layer": name, **found}) + "\n")
            print(name, flush=True)


def record(name: str) -> dict[str, Any]:
    """Measures random configs of a layer."""
    layer = Layer(name)
    vectors = layer.space.sample(DRAWN, np.random.default_rng(0))
    return {"workload": asdict(layer.workload), "vectors": vectors.tolist(), "latencies_s": layer.measured(vectors)}


def compare(name: str, folder: Path) -> dict[str, Any]:
    """Measures what every method proposes for a layer; methods take turns, the best proposals first."""
    layer, pool = Layer(name), Layer(name).space.sample(POOL, np.random.default_rng(1))
    best = {method: pool[np.argsort(-scores(method, layer, pool, folder), kind="stable")] for method in METHODS}
    best = {method: vectors[:PROPOSED] for method, vectors in best.items()}
    turns = np.stack(list(best.values()), axis=1).reshape(-1, pool.shape[1])
    latencies_s = np.array(layer.measured(turns)).reshape(PROPOSED, len(METHODS))
    return {method: latencies_s[:, at].tolist() for at, method in enumerate(METHODS)}


def scores(method: str, layer: Layer, vectors: Vectors, folder: Path) -> NDArray[np.float64]:
    """Returns what a method thinks of configs before anything is measured, shape (n,)."""
    if method == "random":
        return np.zeros(len(vectors))
    if "pretrained" not in method:
        return _merits(layer.name, vectors, wrong="wrong" in method)
    return _model(method, LAYERS[layer.name][0], folder)(_features(method, layer, vectors))


@cache
def _model(method: str, left_out: str, folder: Path) -> SpeedModel:
    """Returns a model of the random trials of the networks that are not left out."""
    features, logs = [], []
    for line in _read(folder / "record.jsonl"):
        if LAYERS[line["layer"]][0] != left_out:
            features.append(_features(method, Layer(line["layer"]), np.array(line["vectors"])))
            latencies_s = np.array(line["latencies_s"], dtype=np.float64)
            logs.append(np.log2(np.nanmin(latencies_s) / latencies_s))
    return SpeedModel(np.concatenate(features), np.concatenate(logs))


def _features(method: str, layer: Layer, vectors: Vectors) -> NDArray[np.float32]:
    """Returns features by name, the layer's extents and, if wanted, the merit relative to the best of many."""
    space, w = layer.space, layer.workload
    found = dict(zip(space.feature_names, space.features(vectors).T, strict=True))
    zeros = np.zeros(len(vectors), dtype=np.float32)
    own = [found.get(name, zeros) for name in _names()]
    extents = (w.out_height, w.out_width, w.in_channels, w.out_channels, w.kernel[0], w.strides[0])
    own += [np.full(len(vectors), np.log2(extent)) for extent in extents]
    if "merit" in method:
        wrong = "wrong" in method
        drawn = _merits(layer.name, space.sample(POOL, np.random.default_rng(0)), wrong=wrong)
        own.append(np.log2(drawn.max() / _merits(layer.name, vectors, wrong=wrong)))
    return np.stack(own, axis=1).astype(np.float32)


@cache
def _names() -> tuple[str, ...]:
    return tuple(sorted({name for each in LAYERS for name in Layer(each).space.feature_names}))


def _merits(name: str, vectors: Vectors, *, wrong: bool) -> NDArray[np.float64]:
    """Returns the merits of configs, which are negative cycles."""
    with _wrong_constants() if wrong else _nothing():
        space = Layer(name).space
        assert space.merit is not None
        return space.merit(space.columns(vectors))


@contextmanager
def _nothing() -> Iterator[None]:
    yield


@contextmanager
def _wrong_constants() -> Iterator[None]:
    """Makes the merit's constants wrong: by turns twice and half as large."""
    right = {name: getattr(conv2d_space, name) for name in _CONSTANTS}
    try:
        for at, (name, value) in enumerate(right.items()):
            setattr(conv2d_space, name, value * (2.0 if at % 2 else 0.5))
        yield
    finally:
        for name, value in right.items():
            setattr(conv2d_space, name, value)


def table(lines: Sequence[dict[str, Any]]) -> None:
    """Prints the gaps of each method after 1 and 8 proposals, with intervals over layers."""
    from benchmarks.search.intervals import mean

    for method in METHODS:
        figures = []
        for n in (1, PROPOSED):
            gaps = {(line["layer"], "0"): np.log(np.nanmin(line[method][:n]) / _best_s(line)) for line in lines}
            found = mean(gaps, np.exp)
            assert found is not None
            figures.append(f"{found.value:.2f} ({found.low:.2f} to {found.high:.2f})")
        print(f"| {method} | {' | '.join(figures)} |")


def _best_s(line: dict[str, Any]) -> float:
    return float(np.nanmin([line[method] for method in METHODS]))


def _read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(text) for text in path.read_text().splitlines()] if path.exists() else []


if __name__ == "__main__":
    main()
