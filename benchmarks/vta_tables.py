"""Simulates the whole design spaces of layers on the accelerator, so that searches can be compared with the optimum.

    python benchmarks/vta_tables.py                     # the ten convolutions of ResNet-18
    python benchmarks/vta_tables.py --models alexnet,vgg11

Writes one file for each distinct layer to ``benchmarks/tables/vta``; existing files are kept.
"""

from __future__ import annotations

import argparse
import json
import logging
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from anole.errors import ConfigError
from anole.extract.load import load_model
from anole.files import write_atomically
from anole.host.machine import available_cores
from anole.spec.entries import ModelSpec
from anole.targets.vta.settings import describe_vta
from anole.targets.vta.target import VtaTarget, as_conv2d
from anole.task import Conv2d, Workload

TABLES = Path(__file__).parent / "tables" / "vta"
MODELS = ("alexnet", "vgg11", "vgg13", "vgg16", "vgg19", "resnet18", "resnet34")
"""The networks of DCOC's Table 5."""

DESCRIPTION = describe_vta(hardware="search")
"""The accelerator's block is searched, as in DCOC; area and memory have the default bounds."""

_CHUNK = 16
logger = logging.getLogger(__name__)


def main() -> None:
    """Writes the missing tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="resnet18", help=f"comma-separated, from {', '.join(MODELS)}")
    parser.add_argument("--processes", type=int, default=available_cores())
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    layers = dict.fromkeys(layer for model in arguments.models.split(",") for layer, _ in layers_of(model))
    with ProcessPoolExecutor(arguments.processes) as pool:
        for layer in layers:
            if not (path := table_path(layer)).exists():
                write_atomically(path, json.dumps(_table(layer, pool)) + "\n")


def layers_of(model: str) -> list[tuple[Conv2d, int]]:
    """Returns the distinct layers of a torchvision network that the accelerator runs, and how often each occurs."""
    from anole.extract.graph import find_layers

    target = VtaTarget(DESCRIPTION)
    imported = load_model(ModelSpec(model, f"torchvision:{model}", {"x": (1, 3, 224, 224)}))
    found: dict[Conv2d, int] = {}
    for position, layer in enumerate(find_layers(imported)):
        if target.takes(layer.workload, position):
            workload = as_conv2d(layer.workload)
            found[workload] = found.get(workload, 0) + 1
    return list(found.items())


def table_path(layer: Conv2d) -> Path:
    """Returns the path of a layer's table."""
    return TABLES / f"{layer.label.removeprefix('conv2d ').replace(' ', '_').replace('->', '-')}.json"


def _table(layer: Conv2d, pool: ProcessPoolExecutor) -> dict[str, Any]:
    began_s = time.perf_counter()
    space = VtaTarget(DESCRIPTION).space(layer)
    indices = space.valid_indices
    assert indices is not None
    configs = [space.config(vector) for vector in space.vectors(indices)]
    found = list(_simulated(layer, configs, pool))
    seconds = sum(each_s for _, each_s in found)
    logger.info(
        "%s: %d of %d configs can be lowered; %.0f s, %.1f ms each on one core",
        *(layer.label, len(configs), space.size, time.perf_counter() - began_s, 1e3 * seconds / len(configs)),
    )
    return {
        "workload": asdict(layer),
        "restriction": {},
        "target": DESCRIPTION,
        "cardinalities": space.cardinalities.tolist(),
        "seconds": round(seconds, 1),
        "latency_us": [None if latency_s is None else round(1e6 * latency_s, 2) for latency_s, _ in found],
    }


def _simulated(
    layer: Workload, configs: list[dict[str, Any]], pool: ProcessPoolExecutor
) -> Iterator[tuple[float | None, float]]:
    chunks = [configs[at : at + _CHUNK] for at in range(0, len(configs), _CHUNK)]
    for results in pool.map(_simulate_all, [layer] * len(chunks), chunks):
        yield from results


def _simulate_all(layer: Workload, configs: list[dict[str, Any]]) -> list[tuple[float | None, float]]:
    """Returns for each config its latency (None if its program is rejected) and the seconds of simulating it."""
    target, found = VtaTarget(DESCRIPTION), list[tuple[float | None, float]]()
    for config in configs:
        began_s, latency_s = time.perf_counter(), None
        try:
            latency_s = target.simulate(layer, config)
        except ConfigError:
            pass
        found.append((latency_s, time.perf_counter() - began_s))
    return found


if __name__ == "__main__":
    main()
