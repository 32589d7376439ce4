"""Run layers on the simulated hardware: lower them to programs, pack tensors into DRAM, and simulate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anole.record import Config
from anole.task import Conv2d
from anole_vta.geometry import Geometry
from anole_vta.isa import AluOpcode, encode_uop
from anole_vta.network.network import AcceleratorLayer, Data, Pool, Sum
from anole_vta.network.pool import lower_pool, pooled_size
from anole_vta.simulator.functional import FunctionalSimulator
from anole_vta.templates.conv2d import SHIFT_AND_CLIP, Bias, EpilogueStep, Immediate, Residual, lower_conv2d
from anole_vta.templates.design import can_run, design_of, pad_to_blocks
from anole_vta.templates.program import Program


@dataclass(frozen=True)
class LoadedStep:
    """The program of a step, and its constants in the accelerator's layout."""

    program: Program
    constants: Mapping[str, NDArray[Any]]


def epilogue_of(layer: AcceleratorLayer, geometry: Geometry) -> tuple[EpilogueStep, ...]:
    """Return the epilogue of a layer: bias, residual, shift and clipping."""
    steps: list[EpilogueStep] = [Bias()]
    if layer.residual is not None:
        steps.append(Residual())
    if layer.shift:
        steps.append(Immediate(AluOpcode.SHR, layer.shift))
    if geometry.variant == "vta++" and layer.low == -layer.high:
        return (*steps, Immediate(AluOpcode.CLP, layer.high))
    return (*steps, Immediate(AluOpcode.MIN, layer.high), Immediate(AluOpcode.MAX, layer.low))


def can_add(workload: Conv2d, config: Config, geometry: Geometry) -> bool:
    """Whether the buffers have room for the residual of a layer."""
    return can_run(lambda: design_of(workload, geometry, config, (Bias(), Residual(), *SHIFT_AND_CLIP)))


def load_step(step: AcceleratorLayer | Pool, geometry: Geometry, shape: tuple[int, ...] = ()) -> LoadedStep:
    """Lower a step and pack its constants; `shape` is the NHWC shape of a pool's data.

    Raises:
        ConfigError: the accelerator cannot run the step.
    """
    if isinstance(step, Pool):
        *pixels, channels = shape
        return LoadedStep(
            lower_pool(step, (*pixels, -(-channels // geometry.block_out) * geometry.block_out), geometry), {}
        )
    epilogue = epilogue_of(step, geometry)
    design = design_of(step.workload, geometry, step.config, epilogue)
    padded = pad_to_blocks(step.workload, geometry)
    pad_in, pad_out = padded.in_channels - step.workload.in_channels, padded.out_channels - step.workload.out_channels
    weight = np.pad(step.weight, ((0, 0), (0, 0), (0, pad_in), (0, pad_out)))
    bias = np.pad(step.bias, (0, pad_out)).reshape(-1, 1, geometry.block_out).repeat(geometry.batch, axis=1)
    return LoadedStep(
        lower_conv2d(padded, design.schedule, geometry, epilogue),
        {"weight": _pack_weight(weight, geometry), "bias": bias},
    )


def _pack_weight(weight: NDArray[Any], geometry: Geometry) -> NDArray[Any]:
    """Pack HWIO weights as [CO/BO][CI/BI][KH][KW][BO][BI]."""
    kh, kw, ci, co = weight.shape
    bi, bo = geometry.block_in, geometry.block_out
    return weight.reshape(kh, kw, ci // bi, bi, co // bo, bo).transpose(4, 2, 0, 1, 5, 3)


def unpack_weight(weight: NDArray[Any]) -> NDArray[Any]:
    """Unpack [CO/BO][CI/BI][KH][KW][BO][BI] weights to HWIO."""
    co, ci, kh, kw, bo, bi = weight.shape
    return weight.transpose(2, 3, 1, 5, 0, 4).reshape(kh, kw, ci * bi, co * bo)


class SimulatedAccelerator:
    """Simulated hardware that holds each step's program and constants, keyed by the name of the step's result."""

    def __init__(self, loaded: Mapping[str, LoadedStep]) -> None:
        self.loaded = loaded

    def layer(self, layer: AcceleratorLayer, data: Data, residual: Sum | None) -> Data:
        """Run a layer's program."""
        loaded = self.loaded[layer.result]
        g, w = loaded.program.geometry, layer.workload
        tensors = {"data": _pack_tensor(data, g.batch, g.block_in), **loaded.constants}
        if residual is not None:
            tensors["residual"] = _pack_tensor(residual, g.batch, g.block_out)
        return _run(loaded.program, tensors, (w.batch, w.out_height, w.out_width, w.out_channels))

    def pool(self, pool: Pool, data: Data) -> Data:
        """Run a pool's program."""
        program = self.loaded[pool.result].program
        accumulators = _pack_tensor(data, program.geometry.batch, program.geometry.block_out).astype(np.int32)
        n, h, w, c = data.shape
        return _run(program, {"data": accumulators}, (n, *pooled_size(pool, h, w), c))


def _pack_tensor(tensor: NDArray[Any], batch: int, block: int) -> NDArray[Any]:
    """Pack an NHWC tensor as [N/B][C/BLOCK][H][W][B][BLOCK], padding channels to full blocks."""
    padded = np.pad(tensor, ((0, 0), (0, 0), (0, 0), (0, -tensor.shape[-1] % block)))
    n, h, w, c = padded.shape
    return padded.reshape(n // batch, batch, h, w, c // block, block).transpose(0, 4, 2, 3, 1, 5)


def _run(program: Program, tensors: Mapping[str, NDArray[Any]], shape: tuple[int, ...]) -> Data:
    """Run a program on packed tensors, and return its region ``out`` as NHWC with the given shape."""
    g, (n, h, w, c) = program.geometry, shape
    dram = np.zeros(max(region.address + region.size_bytes for region in program.regions.values()), np.uint8)
    slices = {name: slice(r.address, r.address + r.size_bytes) for name, r in program.regions.items()}
    uops = np.array([encode_uop(uop, g) for uop in program.uops], dtype="<u4")
    for name, tensor in {**tensors, "uop": uops}.items():
        dram[slices[name]] = np.ascontiguousarray(tensor).view(np.uint8).ravel()
    FunctionalSimulator(g, dram).run(program.instructions)
    out = dram[slices["out"]].view(np.int8).reshape(n // g.batch, -1, h, w, g.batch, g.block_out)
    return out.transpose(0, 4, 2, 3, 1, 5).reshape(n, h, w, -1)[..., :c]
