"""Runs layers on the simulated hardware: lowers them to programs and executes these."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anole.errors import ConfigError
from anole.record import Config
from anole.targets.vta.geometry import Geometry
from anole.targets.vta.isa import AluOpcode
from anole.targets.vta.network.network import AcceleratorLayer, Data, Pool, StepRunner, Sum
from anole.targets.vta.network.pool import lower_pool, pooled_size
from anole.targets.vta.network.tensor_layout import (
    memory_image,
    pack_bias,
    pack_data,
    pack_out,
    pack_weight,
    region_of,
    unpack_out,
)
from anole.targets.vta.simulator.functional import FunctionalSimulator
from anole.targets.vta.templates.conv2d import SHIFT_AND_CLIP, Bias, EpilogueStep, Immediate, Residual, lower_conv2d
from anole.targets.vta.templates.design import design_of, whole_blocks
from anole.targets.vta.templates.program import Program
from anole.task import Conv2d


@dataclass(frozen=True)
class Loaded:
    """A step's program, and its constants in the accelerator's layout."""

    program: Program
    constants: Mapping[str, NDArray[Any]]


def epilogue_of(layer: AcceleratorLayer, geometry: Geometry) -> tuple[EpilogueStep, ...]:
    """Returns the epilogue that a layer applies to its sums."""
    steps: list[EpilogueStep] = [Bias()]
    if layer.residual is not None:
        steps.append(Residual())
    if layer.shift:
        steps.append(Immediate(AluOpcode.SHR, layer.shift))
    if geometry.variant == "vta++" and layer.low == -layer.high:
        return (*steps, Immediate(AluOpcode.CLP, layer.high))
    return (*steps, Immediate(AluOpcode.MIN, layer.high), Immediate(AluOpcode.MAX, layer.low))


def can_add(workload: Conv2d, config: Config, geometry: Geometry) -> bool:
    """Returns whether a layer has room to add a residual."""
    try:
        design_of(workload, geometry, config, (Bias(), Residual(), *SHIFT_AND_CLIP))
    except ConfigError:
        return False
    return True


def can_pool(pool: Pool, shape: tuple[int, ...], geometry: Geometry) -> bool:
    """Returns whether the accelerator can run a pool on data of this shape, NHWC."""
    try:
        load_pool(pool, shape, geometry)
    except ConfigError:
        return False
    return True


def load_layer(layer: AcceleratorLayer, geometry: Geometry) -> Loaded:
    """Returns the program of a layer, and its packed weight and bias.

    Raises:
        ConfigError: the layer's config does not fit the geometry.
    """
    epilogue = epilogue_of(layer, geometry)
    design = design_of(layer.workload, geometry, layer.config, epilogue)
    whole = whole_blocks(layer.workload, geometry)
    ci, co = whole.in_channels - layer.workload.in_channels, whole.out_channels - layer.workload.out_channels
    weight = np.pad(layer.weight, ((0, 0), (0, 0), (0, ci), (0, co)))
    return Loaded(
        lower_conv2d(whole, design.schedule, geometry, epilogue),
        {"weight": pack_weight(weight, geometry), "bias": pack_bias(np.pad(layer.bias, (0, co)), geometry)},
    )


def load_pool(pool: Pool, shape: tuple[int, ...], geometry: Geometry) -> Loaded:
    """Returns the program of a pool on data of this shape, NHWC.

    Raises:
        ConfigError: the accelerator cannot run it.
    """
    n, h, w, c = shape
    blocks = -(-c // geometry.block_out) * geometry.block_out
    return Loaded(lower_pool(pool, (n, h, w, blocks), geometry), {})


class SimulatedAccelerator(StepRunner):
    """The simulated hardware.

    Args:
        loaded: every step's program and constants, by the name of its result.
    """

    def __init__(self, loaded: Mapping[str, Loaded]) -> None:
        self.loaded = loaded

    def layer(self, layer: AcceleratorLayer, data: Data, residual: Sum | None) -> Data:
        """Runs a layer's program."""
        loaded = self.loaded[layer.result]
        g, w = loaded.program.geometry, layer.workload
        tensors = {"data": pack_data(_filled(data, g.block_in), g), **loaded.constants}
        if residual is not None:
            tensors["residual"] = pack_out(_filled(residual, g.block_out), g)
        return _run(loaded.program, tensors, (w.batch, w.out_height, w.out_width, w.out_channels))

    def pool(self, pool: Pool, data: Data) -> Data:
        """Runs a pool's program."""
        program = self.loaded[pool.result].program
        block = program.geometry.block_out
        wide = pack_out(_filled(data, block), program.geometry).astype(np.int32)
        n, h, w, c = data.shape
        return _run(program, {"data": wide}, (n, *pooled_size(pool, h, w), c))


def _run(program: Program, tensors: Mapping[str, NDArray[Any]], shape: tuple[int, ...]) -> Data:
    """Runs a program and returns its region ``out``, as NHWC of this shape."""
    dram = memory_image(program, tensors)
    FunctionalSimulator(program.geometry, dram).run(program.instructions)
    g, (n, h, w, c) = program.geometry, shape
    blocks = (n // g.batch, -(-c // g.block_out), h, w, g.batch, g.block_out)
    return unpack_out(region_of(program, dram, "out").view(np.int8).reshape(blocks))[..., :c]


def _filled(data: NDArray[Any], block: int) -> NDArray[Any]:
    """Returns NHWC data with its channels padded to whole blocks."""
    return np.pad(data, ((0, 0), (0, 0), (0, 0), (0, -data.shape[-1] % block)))
