"""Random convolutions, and random steps of quantized networks that a small accelerator can run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import assume, reject
from hypothesis import strategies as st

from anole.errors import ConfigError
from anole.task import Conv2d
from anole_vta.geometry import DEFAULT, Geometry
from anole_vta.isa import Alu, AluOpcode, decode_stream, encode_stream
from anole_vta.network.network import AcceleratorLayer, Pool, Quantized, QuantizedNetwork
from anole_vta.network.simulated_accelerator import LoadedStep, can_add, load_step
from anole_vta.templates.conv2d import SHIFT_AND_CLIP, Bias, Residual, Schedule, lower_conv2d
from anole_vta.templates.design import can_run, conv2d_space
from anole_vta.templates.program import Program

GEOMETRIES = [
    DEFAULT,
    Geometry(variant="vta++"),
    Geometry(batch=2, variant="vta++"),
    Geometry(block_in=8, block_out=32, variant="vta++"),
    Geometry(block_in=32, block_out=32),
    # More accumulators than inputs, so their indices are wider.
    Geometry(block_in=32, block_out=8, wgt_bytes=1 << 17, variant="vta++"),
    # So small that most layers need several tiles.
    Geometry(block_in=8, block_out=8, inp_bytes=1 << 10, wgt_bytes=1 << 11, acc_bytes=1 << 11),
    Geometry(inp_bytes=1 << 12, acc_bytes=1 << 12, variant="vta++"),
]


@st.composite
def convolutions(draw: Any, geometries: Any) -> tuple[tuple[Any, ...], Program]:
    """Generate arguments of `lower_conv2d` for a convolution with many small tiles, and its program."""
    g = draw(geometries)
    tile_h, tile_w, h_threads, oc_threads = (draw(st.integers(1, max_size)) for max_size in (3, 3, 2, 2))
    kernel, stride = (draw(st.integers(1, 3)), draw(st.integers(1, 3))), draw(st.integers(1, 2))
    padding = draw(st.one_of(st.just((0, 0, 0, 0)), st.tuples(*[st.integers(0, 3)] * 4)))
    rows, columns = draw(st.integers(1, 8)) * tile_h * h_threads, draw(st.integers(1, 8)) * tile_w
    # Most of the generated convolutions can be lowered.
    tile_ci = 1 if any(padding) else draw(st.integers(1, 2))
    tile_co = draw(st.integers(1, 2)) if tile_w == columns else 1
    top, left, bottom, right = padding
    w = Conv2d(
        g.batch * draw(st.integers(1, 2)),
        (rows - 1) * stride + kernel[0] - top - bottom,
        (columns - 1) * stride + kernel[1] - left - right,
        g.block_in * tile_ci * draw(st.integers(1, 6)),
        g.block_out * tile_co * oc_threads * draw(st.integers(1, 6)),
        kernel,
        (stride, stride),
        padding,
    )
    assume(w.height > 0 and w.width > 0)
    steps = draw(st.sampled_from([SHIFT_AND_CLIP, (Bias(), *SHIFT_AND_CLIP), (Bias(), Residual(), *SHIFT_AND_CLIP)]))
    arguments = (w, Schedule(tile_h, tile_w, tile_ci, tile_co, h_threads, oc_threads), g, steps)
    try:
        return arguments, lower_conv2d(*arguments)
    except ConfigError:
        reject()


@dataclass(frozen=True)
class Case:
    """A network of one step, and its inputs."""

    geometry: Geometry
    step: Any
    inputs: list[Any]

    @property
    def network(self) -> QuantizedNetwork:
        residual = getattr(self.step, "residual", None)
        names = (self.step.data,) if residual is None else (self.step.data, residual)
        return QuantizedNetwork(names, (self.step.result,), (self.step,))

    def load(self) -> LoadedStep:
        return load_step(self.step, self.geometry, self.inputs[0].numbers.shape)


def change_stream(path: Path, opcode: AluOpcode, geometry: Geometry, /, **values: Any) -> None:
    """Change fields of all ALU instructions of an opcode in a stream."""
    program = decode_stream(path.read_bytes(), geometry)
    changed = [each._replace(**values) if isinstance(each, Alu) and each.opcode == opcode else each for each in program]
    assert tuple(changed) != program
    path.write_bytes(encode_stream(changed, geometry))


def change_arrays(path: Path, **changes: Callable[[Any], Any]) -> None:
    """Change arrays of an archive."""
    with np.load(path) as arrays:
        plain = dict(arrays)
    np.savez(path, **{**plain, **{name: change(plain[name]) for name, change in changes.items()}})


@st.composite
def layer_cases(draw: Any, geometries: Any = tuple(GEOMETRIES), max_size: int = 9) -> Case:
    g = draw(st.sampled_from(list(geometries)))
    extent, kernel, stride = st.integers(1, max_size), st.sampled_from([1, 2, 3, 5]), st.integers(1, 3)
    w = Conv2d(
        g.batch * draw(st.integers(1, 2)),
        draw(extent),
        draw(extent),
        draw(st.integers(1, 2 * g.block_in + 1)),
        draw(st.integers(1, 2 * g.block_out + 1)),
        (draw(kernel), draw(kernel)),
        (draw(stride), draw(stride)),
        draw(st.one_of(st.just((0, 0, 0, 0)), st.tuples(*[st.integers(0, 3)] * 4))),
    )
    assume(w.out_height > 0 and w.out_width > 0)
    space = conv2d_space(w, g)
    assume(len(space.valid_indices))
    config = space.config(space.vectors([draw(st.sampled_from(space.valid_indices.tolist()))])[0])
    has_residual = draw(st.booleans()) and can_add(w, config, g)
    data_exponent, weight_exponent = draw(st.integers(-9, 3)), draw(st.integers(-9, 3))
    shift = draw(st.sampled_from([0, 0, 1, 5, 8, 11, 14]))
    high = draw(st.sampled_from([127, 127, 96, 1, 0]))
    rng = np.random.default_rng(draw(st.integers(0, 1 << 30)))
    half = 1 << shift - 1 if shift else 0
    shape = (w.batch, w.out_height, w.out_width, w.out_channels)
    layer = AcceleratorLayer(
        name="layer",
        workload=w,
        config=config,
        data="x",
        result="y",
        residual="r" if has_residual else None,
        data_exponent=data_exponent,
        weight_exponent=weight_exponent,
        residual_exponent=data_exponent + weight_exponent + draw(st.integers(-9, 24)) if has_residual else 0,
        result_exponent=data_exponent + weight_exponent + shift,
        low=draw(st.sampled_from([0, -high, -127])),
        high=high,
        result_shape=shape,
        weight=rng.integers(-128, 128, (*w.kernel, w.in_channels, w.out_channels), np.int8),
        bias=(rng.integers(-(1 << 29), 1 << 29, w.out_channels) >> draw(st.integers(0, 29))).astype(np.int32) + half,
    )
    data = Quantized(rng.integers(-128, 128, (w.batch, w.height, w.width, w.in_channels), np.int8), data_exponent)
    residual = Quantized(rng.integers(-128, 128, shape, np.int8), layer.residual_exponent)
    return Case(g, layer, [data, residual] if has_residual else [data])


@st.composite
def pool_cases(draw: Any) -> Case:
    g = draw(st.sampled_from([g for g in GEOMETRIES if g.variant == "vta++"]))
    kernel = (draw(st.integers(1, 3)), draw(st.integers(1, 3)))
    strides = (draw(st.integers(1, 3)), draw(st.integers(1, 3)))
    padding = tuple(draw(st.integers(0, kernel[axis % 2] - 1)) for axis in range(4))
    height, width = draw(st.integers(1, 13)), draw(st.integers(1, 13))
    assume(height + padding[0] + padding[2] >= kernel[0] and width + padding[1] + padding[3] >= kernel[1])
    rng = np.random.default_rng(draw(st.integers(0, 1 << 30)))
    shape = (g.batch * draw(st.integers(1, 2)), height, width, draw(st.integers(1, 2 * g.block_out + 1)))
    data = Quantized(rng.integers(-128, 128, shape, np.int8), -4)
    case = Case(g, Pool("pool", kernel, strides, padding, "x", "y", -4), [data])
    assume(can_run(case.load))
    return case


STEPS = st.one_of(layer_cases(), layer_cases(), pool_cases())
"""Layers that some accelerator can run, with data and possibly a residual, and less often poolings."""
