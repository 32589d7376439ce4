"""Workloads for the CPU's tests: small ones of all shapes."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import assume
from hypothesis import strategies as st

from anole.targets.cpu.device.vector_unit import VectorUnit
from anole.targets.cpu.templates.grouped_space import is_bundled
from anole.task import BatchMatmul, Conv2d, Dense


@st.composite
def _winograd_convolutions(draw: st.DrawFn) -> Conv2d:
    taps = draw(st.sampled_from([3, 3, 5]))
    dilation = draw(st.just((1, 1)) | st.tuples(st.integers(1, 3), st.integers(1, 3)))
    height, width = (draw(st.integers((taps - 1) * each + 1, 15)) for each in dilation)
    return Conv2d(
        batch=draw(st.integers(1, 4)),
        height=height,
        width=width,
        in_channels=draw(st.sampled_from([1, 2, 3, 7, 8, 16, 17, 24, 32])),
        out_channels=draw(st.sampled_from([1, 5, 8, 13, 16, 31, 32, 48])),
        kernel=(taps, taps),
        padding=draw(st.tuples(*[st.integers(0, 3)] * 4)),
        dilation=dilation,
    )


winograd_convolutions = _winograd_convolutions()
"""Those that Winograd can compute: images of any size and padding, also of prime numbers of channels."""


@st.composite
def grouped_convolutions(draw: st.DrawFn, units: Iterable[VectorUnit]) -> tuple[Conv2d, VectorUnit, int]:
    """Those whose groups share vectors of a unit, with the unit and a seed; also of prime numbers of channels."""
    kernel, dilation = (draw(st.tuples(st.integers(1, most), st.integers(1, most))) for most in (5, 3))
    padding = draw(st.tuples(*[st.integers(0, 3)] * 4))
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    groups = draw(st.sampled_from([2, 3, 4, 5, 8, 13]))
    workload = Conv2d(
        batch=draw(st.integers(1, 4)),
        height=max(reach[0] - padding[0] - padding[2], draw(st.integers(1, 13))),
        width=max(reach[1] - padding[1] - padding[3], draw(st.integers(1, 13))),
        in_channels=groups * draw(st.sampled_from([1, 2, 3, 4, 7, 8, 11])),
        out_channels=groups * draw(st.sampled_from([1, 2, 3, 4, 5, 7, 8, 12, 24])),
        kernel=kernel,
        strides=draw(st.tuples(st.integers(1, 4), st.integers(1, 4))),
        padding=padding,
        dilation=dilation,
        groups=groups,
    )
    able = [unit for unit in units if is_bundled(unit, workload)]
    assume(able)
    return workload, draw(st.sampled_from(able)), draw(st.integers(0, 1 << 30))


uncoverable = st.sampled_from([17, 19, 23, 25, 29, 31, 34, 37])
"""Extents that no good register tile divides."""


@st.composite
def convolutions(draw: st.DrawFn) -> Conv2d:
    kernel = draw(st.tuples(st.integers(1, 5), st.integers(1, 5)))
    dilation = draw(st.tuples(st.integers(1, 2), st.integers(1, 2)))
    padding = draw(st.tuples(*[st.integers(0, 2)] * 4))
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    groups = draw(st.sampled_from([1, 1, 1, 2, 3]))
    depthwise = draw(st.booleans()) and groups > 1
    in_channels = groups if depthwise else groups * draw(st.integers(1, 9))
    out_channels = groups if depthwise else groups * draw(st.integers(1, 20))
    return Conv2d(
        batch=draw(st.integers(1, 2)),
        height=max(reach[0] - padding[0] - padding[2], draw(st.integers(1, 13))),
        width=max(reach[1] - padding[1] - padding[3], draw(st.integers(1, 13) | uncoverable)),
        in_channels=in_channels,
        out_channels=out_channels,
        kernel=kernel,
        strides=draw(st.tuples(st.integers(1, 3), st.integers(1, 3))),
        padding=padding,
        dilation=dilation,
        groups=groups,
    )


rows = st.integers(1, 12) | uncoverable
dense_layers = st.builds(Dense, rows, st.integers(1, 40), st.integers(1, 70))
products = st.builds(BatchMatmul, st.integers(1, 3), rows, st.integers(1, 40), st.integers(1, 70), st.booleans())
workloads = convolutions() | dense_layers | products
"""Layers of every operator, also of odd sizes."""
