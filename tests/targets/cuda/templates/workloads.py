"""What the tests of the CUDA target share: random workloads of every template, and one target."""

from __future__ import annotations

from hypothesis import strategies as st

from anole.record import Config
from anole.space import ALGORITHM
from anole.targets.cuda.settings import describe_cuda
from anole.targets.cuda.target import CudaTarget
from anole.targets.cuda.templates.winograd_space import winograd_space
from anole.task import BatchMatmul, Conv2d, Dense, Workload

TARGET = CudaTarget(describe_cuda("sm_90"))
LIMITS = TARGET.limits


@st.composite
def convolutions(draw: st.DrawFn) -> Conv2d:
    """Convolutions of odd sizes, strides, paddings and dilations; some of them grouped, some depthwise."""
    kernel = draw(st.tuples(st.integers(1, 4), st.integers(1, 4)))
    dilation = draw(st.tuples(st.integers(1, 2), st.integers(1, 2)))
    padding = draw(st.tuples(*[st.integers(0, 2)] * 4))
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    kind = draw(st.sampled_from(["plain", "plain", "grouped", "depthwise"]))
    groups = {"plain": 1, "grouped": draw(st.integers(2, 3)), "depthwise": draw(st.integers(2, 24))}[kind]
    return Conv2d(
        batch=draw(st.integers(1, 2)),
        height=max(reach[0] - padding[0] - padding[2], draw(st.integers(1, 13))),
        width=max(reach[1] - padding[1] - padding[3], draw(st.integers(1, 13))),
        in_channels=groups if kind == "depthwise" else groups * draw(st.integers(1, 12)),
        out_channels=groups if kind == "depthwise" else groups * draw(st.integers(1, 24)),
        kernel=kernel,
        strides=draw(st.tuples(st.integers(1, 3), st.integers(1, 3))),
        padding=padding,
        dilation=dilation,
        groups=groups,
    )


dense_layers = st.builds(Dense, st.integers(1, 50), st.integers(1, 48), st.integers(1, 72))
"""Dense layers of few and of many rows."""

products = st.builds(
    BatchMatmul, st.integers(1, 3), st.integers(1, 40), st.integers(1, 32), st.integers(1, 48), st.booleans()
)

workloads = convolutions() | dense_layers | products

ONE_OF_EACH = {
    "conv2d": Conv2d(1, 14, 14, 32, 64, (3, 3), padding=(1, 1, 1, 1)),
    "grouped": Conv2d(1, 14, 14, 32, 64, (3, 3), padding=(1, 1, 1, 1), groups=4),
    "depthwise": Conv2d(1, 14, 14, 32, 32, (3, 3), padding=(1, 1, 1, 1), groups=32),
    "gemm": Dense(64, 48, 40),
    "gemv": Dense(1, 128, 40),
    "batch_matmul": BatchMatmul(3, 32, 16, 40),
    "transposed": BatchMatmul(3, 32, 16, 40, transpose_right=True),
}
"""A workload of every template."""

WINOGRAD = ONE_OF_EACH["conv2d"]
"""A workload that Winograd's template has, too."""


def by_winograd(workload: Conv2d, **changes: object) -> Config:
    """The config by which Winograd is fastest by the model, changed."""
    return {ALGORITHM: "winograd", **winograd_space(LIMITS, TARGET.gpu, workload).best_drawn, **changes}


def default_of(kind: str) -> tuple[Workload, Config]:
    """A workload and its default config, by the template's name; Winograd's has the size of its tiles."""
    if kind in ONE_OF_EACH:
        return ONE_OF_EACH[kind], TARGET.default_config(ONE_OF_EACH[kind])
    return WINOGRAD, by_winograd(WINOGRAD, tile_size=int(kind[-1]))


KINDS = (*ONE_OF_EACH, "winograd 2", "winograd 4")

winograd_convolutions = st.builds(
    Conv2d,
    batch=st.integers(1, 2),
    height=st.integers(4, 13),
    width=st.integers(4, 13),
    in_channels=st.integers(1, 14),
    out_channels=st.integers(2, 24),
    kernel=st.just((3, 3)),
    padding=st.tuples(*[st.integers(0, 2)] * 4),
)
"""Of odd and even sizes, prime channels, and other paddings on every side."""
