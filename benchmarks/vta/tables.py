"""Simulate complete design spaces of layers on the accelerator, to compare searches with the optimum.

    python -m benchmarks.vta.tables                    # 35 layers, with the block and the buffers as knobs
    python -m benchmarks.vta.tables --models resnet18  # every layer of networks, with VTA's buffers

A layer without a file in ``lib/anole/bench/tables/vta_buffers`` or ``lib/anole/bench/tables/vta`` gets one there.
Configs that differ only in buffer sizes without an effect share a program, and each program is simulated once.
"""

from __future__ import annotations

import csv
import io
import json
import logging
import lzma
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from anole.bench import tables
from anole.bench.tables import distinct_programs
from anole.config.entries import ModelSpec
from anole.errors import ConfigError
from anole.extract.load import load_model
from anole.files import write_atomically
from anole.host.machine import available_cores
from anole.task import Conv2d, Workload
from anole_vta.geometry import DEFAULT
from anole_vta.settings import describe_vta
from anole_vta.target import VtaTarget, as_conv2d
from anole_vta.templates.design import BUFFERS, PROGRAM, hardware_config
from benchmarks.common.arguments import choose_names, log_progress, make_parser
from benchmarks.common.rows import read_rows

NETWORKS = Path(__file__).parents[1] / "tables/vta_networks.csv"
"""The count of each layer, by the name of its table, in each network."""
MODELS = (*("alexnet", "vgg11", "vgg13", "vgg16", "vgg19", "resnet18", "resnet34"), *("squeezenet1_1", "mobilenet_v2"))
"""The networks of DCOC's Table 5, which are from three families, and one network from each of two others."""

DESCRIPTION = describe_vta(hardware="search")
"""An accelerator with searched block and buffers, and default bounds on area and memory."""

OWN_BUFFERS = {name: [value] for name, value in hardware_config(DEFAULT).items() if name in BUFFERS}
"""The restriction of a space to VTA's own buffers, as in DCOC's Table 2."""


LAYERS = tuple(
    Conv2d(batch, size, size, inputs, outputs, (kernel, kernel), (stride, stride), (kernel // 2,) * 4)
    for batch, size, inputs, outputs, kernel, stride in (
        *((4, 56, 64, 64, 3, 1), (1, 56, 64, 64, 3, 1), (1, 28, 128, 128, 3, 1), (1, 56, 64, 128, 3, 2)),
        *((4, 28, 128, 256, 3, 2), (1, 56, 64, 128, 1, 2), (4, 28, 128, 256, 1, 2), (1, 28, 512, 128, 1, 1)),
        *((1, 56, 64, 256, 1, 1), (4, 56, 64, 128, 3, 2), (4, 14, 256, 256, 3, 1), (1, 112, 16, 96, 1, 1)),
        *((1, 112, 32, 16, 1, 1), (1, 56, 144, 24, 1, 1), (1, 56, 96, 24, 1, 1), (1, 56, 24, 144, 1, 1)),
        *((1, 28, 32, 192, 1, 1), (1, 28, 144, 32, 1, 1), (1, 28, 192, 32, 1, 1), (1, 14, 64, 384, 1, 1)),
        *((1, 14, 384, 64, 1, 1), (1, 14, 96, 576, 1, 1), (1, 14, 576, 96, 1, 1), (1, 14, 384, 96, 1, 1)),
        *((1, 14, 192, 64, 1, 1), (4, 28, 144, 32, 1, 1), (4, 28, 32, 192, 1, 1), (4, 14, 96, 576, 1, 1)),
        *((4, 14, 64, 384, 1, 1), (4, 27, 32, 128, 3, 1), (4, 55, 16, 64, 3, 1), (1, 14, 256, 256, 3, 1)),
        *((1, 14, 512, 512, 3, 1), (1, 28, 512, 512, 3, 1), (1, 56, 128, 256, 3, 1)),
    )
)
"""Layers of ResNet-18, ResNet-50 and VGG-16 with at least 100,000 valid configs, then others of the networks above."""

_CHUNK = 16


def main() -> None:
    """Write the missing tables."""
    parser = make_parser(__doc__)
    parser.add_argument("--models", nargs="?", const="", help=f"all, or comma-separated, from {', '.join(MODELS)}")
    parser.add_argument("--processes", type=int, default=available_cores())
    given = parser.parse_args()
    log_progress()
    models = [] if given.models is None else choose_names(given.models, MODELS)
    found = {model: layers_of(model) for model in models}
    if models:
        counts = {**networks(), **{model: {_name(layer): n for layer, n in own} for model, own in found.items()}}
        lines = (f"{model},{layer},{n}\n" for model, own in counts.items() for layer, n in own.items())
        write_atomically(NETWORKS, "network,layer,count\n" + "".join(lines))
    with ProcessPoolExecutor(given.processes, get_context("fork")) as pool:
        for layer in dict.fromkeys(layer for layers in found.values() for layer, _ in layers):
            if not (path := table_path(layer)).exists():
                write_atomically(path, json.dumps(_table(layer, pool)) + "\n")
        for layer in () if models else LAYERS:
            if not (path := buffer_table_path(layer)).exists():
                write_atomically(path, _programs(layer, pool))
    write_workloads()


def layers_of(model: str) -> list[tuple[Conv2d, int]]:
    """Return the distinct layers of a torchvision network that the accelerator runs, with their counts."""
    from anole.extract.graph import find_layers

    target = VtaTarget(DESCRIPTION)
    imported = load_model(ModelSpec(model, f"torchvision:{model}", {"x": (1, 3, 224, 224)}))
    found: dict[Conv2d, int] = {}
    for position, layer in enumerate(find_layers(imported)):
        if target.takes(layer.workload, position):
            workload = as_conv2d(layer.workload)
            found[workload] = found.get(workload, 0) + 1
    return list(found.items())


def networks() -> dict[str, dict[str, int]]:
    """Return the count of each layer, by the name of its table, in each network with tables."""
    found: dict[str, dict[str, int]] = {}
    for row in read_rows(NETWORKS):
        found.setdefault(row["network"], {})[row["layer"]] = int(row["count"])
    return found


def table_path(layer: Conv2d) -> Path:
    """Return the path of a layer's table with VTA's own buffers."""
    return tables.FOLDER / f"vta/{_name(layer)}.json"


def buffer_table_path(layer: Conv2d) -> Path:
    """Return the path of a layer's table with searched buffers."""
    return tables.FOLDER / f"vta_buffers/{_name(layer)}.csv.xz"


def write_workloads() -> None:
    """Write the target and the layers of the tables with searched buffers, which these files do not contain."""
    existing = {_name(layer): asdict(layer) for layer in LAYERS if buffer_table_path(layer).exists()}
    content = json.dumps({"target": DESCRIPTION, "workloads": existing}, indent=1)
    write_atomically(tables.FOLDER / "vta_buffers.json", content + "\n")


def _name(layer: Conv2d) -> str:
    return layer.label.removeprefix("conv2d ").replace(" ", "_").replace("->", "-")


def _programs(layer: Conv2d, pool: ProcessPoolExecutor) -> bytes:
    """Simulate all programs of a layer's space; return a compressed CSV file with a row for each."""
    began_s = time.perf_counter()
    space = VtaTarget(DESCRIPTION).space(layer)
    programs, indices, of_each = distinct_programs(space)
    runs = list(_simulate(layer, [space.config(vector) for vector in space.vectors(indices)], pool))
    _log(layer, runs, f"{len(of_each)} of {space.size} configs can be lowered to {len(programs)} programs", began_s)
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([*PROGRAM, "cycles"])
    for row, (cycles, _) in zip(programs.tolist(), runs, strict=True):
        writer.writerow([*row, "" if cycles is None else cycles])
    return lzma.compress(file.getvalue().encode(), preset=9)


def _table(layer: Conv2d, pool: ProcessPoolExecutor) -> dict[str, Any]:
    """Simulate all configs of a layer with VTA's buffers; return the content of a table for `anole.bench`."""
    began_s = time.perf_counter()
    target = VtaTarget(DESCRIPTION)
    space = target.space(layer).restrict(OWN_BUFFERS)
    indices = space.all_valid_indices
    runs = list(_simulate(layer, [space.config(vector) for vector in space.vectors(indices)], pool))
    _log(layer, runs, f"{len(runs)} of {space.size} configs can be lowered", began_s)
    return {
        "workload": asdict(layer),
        "restriction": OWN_BUFFERS,
        "target": DESCRIPTION,
        "cardinalities": space.cardinalities.tolist(),
        "seconds": round(sum(each_s for _, each_s in runs), 1),
        "latency_us": [None if cycles is None else round(1e6 * cycles / target.frequency_hz, 2) for cycles, _ in runs],
    }


Simulated = tuple[int | None, float]
"""The cycles of a program, None if it is rejected, and the seconds of its simulation."""


def _log(layer: Conv2d, found: Sequence[Simulated], what: str, began_s: float) -> None:
    each_ms = 1e3 * sum(each_s for _, each_s in found) / len(found)
    elapsed_s = time.perf_counter() - began_s
    logging.info("%s: %s; %.0f s, %.1f ms each on one core", layer.label, what, elapsed_s, each_ms)


def _simulate(layer: Workload, configs: list[dict[str, Any]], pool: ProcessPoolExecutor) -> Iterator[Simulated]:
    chunks = [configs[at : at + _CHUNK] for at in range(0, len(configs), _CHUNK)]
    for results in pool.map(_simulate_all, [layer] * len(chunks), chunks):
        yield from results


def _simulate_all(layer: Workload, configs: list[dict[str, Any]]) -> list[Simulated]:
    target, simulated = VtaTarget(DESCRIPTION), list[Simulated]()
    for config in configs:
        began_s, cycles = time.perf_counter(), None
        with suppress(ConfigError):
            cycles = target.cycles(layer, config)
        simulated.append((cycles, time.perf_counter() - began_s))
    return simulated


if __name__ == "__main__":
    main()
