"""What is learned from before a layer is searched on the accelerator: random trials on layers of other networks.

    python -m benchmarks.search.sources    # simulates the trials; some minutes

The networks are AlexNet, VGG-16, SqueezeNet 1.1 and MobileNet v2; the layers with exact tables are ResNet's. Trials of
the constrained space rarely fail; most of the open space do.
"""

from __future__ import annotations

import csv
import io
import itertools
import logging
import lzma
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anole.errors import ConfigError
from anole.files import write_atomically
from anole.space.space import Columns, Space
from anole.targets.vta.geometry import DEFAULT
from anole.targets.vta.target import VtaTarget
from anole.targets.vta.templates.design import tiles_of
from anole.targets.vta.templates.roofline import least_cycles, traffic
from anole.task import Conv2d
from benchmarks.accelerator.tables import DESCRIPTION, LAYERS

PATH = Path(__file__).parents[1] / "tables/vta_trials.csv.xz"
DRAWN = {"constrained": 128, "open": 384}
"""Configs drawn from each layer's space; of the open one, about a seventh can be run."""

_SAME = (1, 1, 1, 1)
SOURCES = (
    *(Conv2d(batch, 13, 13, 192, 384, (3, 3), padding=_SAME) for batch in (1, 4)),
    *(Conv2d(batch, 27, 27, 64, 192, (5, 5), padding=(2, 2, 2, 2)) for batch in (1, 4)),
    Conv2d(1, 13, 13, 384, 256, (3, 3), padding=_SAME),
    *(Conv2d(1, 112, 112, 128, 128, (3, 3), padding=_SAME),),
    *(Conv2d(batch, 56, 56, 256, 256, (3, 3), padding=_SAME) for batch in (1, 4)),
    *(Conv2d(batch, 28, 28, 512, 512, (3, 3), padding=_SAME) for batch in (1, 4)),
    *(Conv2d(batch, 14, 14, 512, 512, (3, 3), padding=_SAME) for batch in (1, 4)),
    Conv2d(1, 55, 55, 64, 16, (1, 1)),
    *(Conv2d(batch, 55, 55, 16, 64, (3, 3), padding=_SAME) for batch in (1, 4)),
    *(Conv2d(batch, 27, 27, 32, 128, (1, 1)) for batch in (1, 4)),
    *(Conv2d(batch, 27, 27, 32, 128, (3, 3), padding=_SAME) for batch in (1, 4)),
    Conv2d(4, 13, 13, 384, 64, (1, 1)),
    *(Conv2d(batch, 13, 13, 64, 256, (3, 3), padding=_SAME) for batch in (1, 4)),
    *(Conv2d(batch, 56, 56, 24, 144, (1, 1)) for batch in (1, 4)),
    Conv2d(1, 28, 28, 192, 32, (1, 1)),
    *(Conv2d(batch, 28, 28, 32, 192, (1, 1)) for batch in (1, 4)),
    *(Conv2d(batch, 14, 14, 96, 576, (1, 1)) for batch in (1, 4)),
    *(Conv2d(batch, 7, 7, 960, 160, (1, 1)) for batch in (1, 4)),
)
"""The layers that are learned from; none of them has a table with searched buffers."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Trials:
    """Random trials on one layer.

    Attributes:
        layer: the layer.
        columns: the values of each knob, shape (n,).
        latencies_s: shape (n,); NaN is a failure.
    """

    layer: Conv2d
    columns: Columns
    latencies_s: NDArray[np.float64]


def target(kind: str = "constrained") -> VtaTarget:
    """Returns the accelerator whose hardware is searched, with a kind of space."""
    return VtaTarget({**DESCRIPTION, "space": "open"} if kind == "open" else DESCRIPTION)


@cache
def source_trials(kind: str) -> tuple[Trials, ...]:
    """Returns the trials on all layers, in a kind of space."""
    if not PATH.exists():
        write_atomically(PATH, _simulate())
    rows = list(csv.DictReader(io.StringIO(lzma.decompress(PATH.read_bytes()).decode())))
    found = []
    for at, layer in enumerate(SOURCES):
        own = [row for row in rows if (row["kind"], row["layer"]) == (kind, str(at))]
        names = [name for name in own[0] if name not in ("kind", "layer", "cycles")]
        columns = {name: np.array([int(row[name]) for row in own]) for name in names}
        cycles = np.array([float(row["cycles"] or "nan") for row in own])
        found.append(Trials(layer, columns, cycles / target().frequency_hz))
    return tuple(found)


def _simulate() -> bytes:
    assert not set(SOURCES) & set(LAYERS)
    file = io.StringIO()
    names = [knob.name for knob in target().space(SOURCES[0]).knobs]
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["kind", "layer", *names, "cycles"])
    for (kind, drawn), (at, layer) in itertools.product(DRAWN.items(), enumerate(SOURCES)):
        vta, works = target(kind), 0
        space = vta.space(layer)
        for vector in space.sample(drawn, np.random.default_rng(at)):
            config = space.config(vector)
            cycles = _cycles(vta, layer, config)
            works += cycles is not None
            writer.writerow([kind, at, *(config[name] for name in names), "" if cycles is None else cycles])
        logger.info("%s, %s: %d of %d can be run", layer.label, kind, works, drawn)
    return lzma.compress(file.getvalue().encode(), preset=9)


def _cycles(vta: VtaTarget, layer: Conv2d, config: Mapping[str, Any]) -> int | None:
    try:
        return vta.cycles(layer, config)
    except ConfigError:
        return None


def extents(w: Conv2d) -> NDArray[np.float64]:
    """Returns binary logarithms of a layer's extents, shape (n_extents,)."""
    numbers = (w.batch, w.out_height, w.out_width, w.in_channels, w.out_channels, w.kernel[0], w.strides[0])
    return np.log2(np.array(numbers, dtype=np.float64))


def relative(w: Conv2d, columns: Columns, *, kind: str) -> NDArray[np.float32]:
    """Returns features relative to the loop nest, shape (n, n_features), with one meaning for all shapes.

    They are the binary logarithms of the block, the buffers, the tile, the layer's extents, the blocks of each axis,
    the parts of padded work, and how often the smallest tile fits each buffer. In a constrained space, they are also
    the tile's channels and what is moved, which only a config that can be run has.
    """
    counted = _counted(w, columns)
    parts = [np.log2(np.maximum(1e-9, np.stack(list(counted.values()), axis=1)))]
    parts.append(np.broadcast_to(extents(w), (len(parts[0]), len(extents(w)))))
    if kind == "constrained":
        moved = _moved(w, columns)
        share = [moved[name] / moved["gemm"] for name in ("inp", "wgt", "out")]
        parts.append(np.log2(np.maximum(1e-9, np.stack([*moved.values(), *share], axis=1))))
    else:
        fits = [w.out_height % columns["tile_h"], w.out_height // columns["tile_h"] % columns["h_threading"]]
        parts.append(np.stack([*fits, w.batch % columns["tile_b"]], axis=1))
    return np.concatenate(parts, axis=1).astype(np.float32)


def _counted(w: Conv2d, columns: Columns) -> dict[str, NDArray[np.float64]]:
    """Returns what can be counted of any config, each of shape (n,)."""
    of = {name: np.asarray(values, dtype=np.float64) for name, values in columns.items()}
    contexts = of["h_threading"] * of["oc_threading"]
    rows, pixels = (of["tile_h"] - 1) * w.strides[0] + w.kernel[0], of["tile_h"] * of["tile_w"]
    wide = (of["tile_w"] - 1) * w.strides[1] + w.kernel[1]
    all_ci, all_co = np.ceil(w.in_channels / of["tile_ci"]), np.ceil(w.out_channels / of["tile_co"])
    taps = w.kernel[0] * w.kernel[1]
    return {
        **{name: of[name] for name in ("tile_b", "tile_ci", "tile_co", "h_threading", "oc_threading")},
        **{name: 2.0 ** of[f"log_{name}_buff_size"] for name in ("inp", "wgt", "acc")},
        **{name: of[name] for name in ("tile_h", "tile_w")},
        "tiles_h": w.out_height / of["tile_h"],
        "tiles_w": w.out_width / of["tile_w"],
        "all_ci": all_ci,
        "all_co": all_co,
        "padding_ci": all_ci * of["tile_ci"] / w.in_channels,
        "padding_co": all_co * of["tile_co"] / w.out_channels,
        "inp_fits": 2.0 ** of["log_inp_buff_size"] / (of["tile_b"] * of["tile_ci"] * rows * wide * contexts),
        "wgt_fits": 2.0 ** of["log_wgt_buff_size"] / (of["tile_ci"] * of["tile_co"] * taps * contexts),
        "acc_fits": 2.0 ** of["log_acc_buff_size"] / (4 * of["tile_b"] * of["tile_co"] * (pixels + 1) * contexts),
        "halo": rows * wide / (pixels * w.strides[0] * w.strides[1]),
        "gemm_steps": pixels * taps,
    }


def _moved(w: Conv2d, columns: Columns) -> dict[str, NDArray[np.float64]]:
    """Returns the tile's blocks and the cycles of computing and of moving each tensor, each of shape (n,)."""
    blocks_ci, blocks_co = tiles_of(w, DEFAULT, columns)
    counted = _counted(w, columns)
    places = w.batch / columns["tile_b"] * counted["tiles_h"] * counted["tiles_w"]
    tiles = [np.ceil(counted[f"all_{axis}"] / np.maximum(1, n)) for axis, n in (("ci", blocks_ci), ("co", blocks_co))]
    return {
        "blocks_ci": np.maximum(1.0, blocks_ci),
        "blocks_co": np.maximum(1.0, blocks_co),
        "loads": places * tiles[0] * tiles[1],
        **traffic(w, columns, blocks_co, DEFAULT.bus_bytes),
    }


def roofline_s(w: Conv2d, columns: Columns, *, bus: int = 1) -> NDArray[np.float64]:
    """Returns the seconds that the accelerator takes at least, shape (n,).

    Args:
        w: the layer.
        columns: configs that can be run.
        bus: by how much the bus is thought to be faster than it is.
    """
    cycles = least_cycles(w, columns, tiles_of(w, DEFAULT, columns)[1], bus * DEFAULT.bus_bytes)
    return np.asarray(cycles / target().frequency_hz)


def with_merit(w: Conv2d, space: Space, bus: int = 1, merit_is_speed: bool = False) -> Space:
    """Returns a layer's space with the merit of a roofline whose bus is thought to be faster than it is."""

    def merit(columns: Columns) -> NDArray[np.float64]:
        vectors = np.stack([np.searchsorted(knob.table, columns[knob.name]) for knob in space.knobs], axis=1)
        seconds = roofline_s(w, columns, bus=bus)
        return space.worths(vectors, seconds) / seconds

    return space.with_merit(merit, merit_is_speed)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    for each in DRAWN:
        works = sum(int((~np.isnan(trials.latencies_s)).sum()) for trials in source_trials(each))
        print(f"{each}: {works} trials can be run")
