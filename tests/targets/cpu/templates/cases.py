"""Cases and strategies for the tests of the CPU's templates: small workloads of all shapes, to be built and run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from tvm import s_tir

from anole.record import Config
from anole.space import ALGORITHM, Space
from anole.targets.base import TILES, WINOGRAD, Template
from anole.targets.cpu.device import builder
from anole.targets.cpu.device.runner import CpuRunner
from anole.targets.cpu.device.vector_unit import VectorUnit
from anole.targets.cpu.settings import describe_cpu
from anole.targets.cpu.templates.packed_operands import with_packed_words
from anole.targets.cpu.templates.programs import Programs, programs_of
from anole.targets.cpu.templates.tiles_space import supports_tiles
from anole.targets.shared.kernel import define
from anole.task import Attention, BatchMatmul, Conv2d, Dense, WeightScheme, Workload

from ....examples import examples

PROCESSOR = {**describe_cpu(), "threads": 2}
UNIT = VectorUnit.of(PROCESSOR)
AVX512, AVX2, NEON = VectorUnit(16, 32), VectorUnit(8, 16), VectorUnit(4, 32)
AMX_FEATURES = ["amx_tile", "amx_int8", "amx_bf16"]
AMX = replace(AVX512, tile_types=frozenset({"bfloat16x2", "uint8x4"}))
UNITS = st.sampled_from([AVX512, AVX2, NEON])
SEEDS = st.integers(0, 1 << 30)


def tries(n: int) -> settings:
    """Return the settings of a property with `n` examples, which may be large and slow."""
    return settings(max_examples=examples(n), suppress_health_check=list(HealthCheck))


@dataclass(frozen=True)
class Case:
    """A workload with its programs for a vector unit; `values` fixes some knobs."""

    workload: Workload
    unit: VectorUnit = UNIT
    threads: int = 2
    values: Mapping[str, Any] = field(default_factory=dict)

    @property
    def _programs(self) -> Programs:
        return programs_of(self.unit, self.workload, exact=False, is_open=False)

    @property
    def space(self) -> Space:
        """The full space, without fixed values."""
        return self._programs.space(self.unit, self.threads, self.workload)

    @property
    def template(self) -> Template:
        return self._programs.template_for(self.unit)

    @property
    def default(self) -> Config:
        return self._programs.default_config(self.unit, self.threads, self.workload)

    @property
    def config(self) -> Config:
        """The default config with the fixed values."""
        return {**self.default, **self.values}

    def random_config(self, seed: int = 0) -> Config:
        """Return a random valid config with the fixed values."""
        return random_config(self.space, seed, **self.values)

    def text(self, config: Config) -> str:
        """Return a scheduled kernel as text."""
        func = define(self.template, self.workload, config)
        return str(self.template.schedule(func, self.workload, config).script())

    def error(self, config: Config) -> float:
        """Return the relative error of a built kernel."""
        added = AMX_FEATURES if self.unit.tile_types else []
        described = {**PROCESSOR, "features": [*PROCESSOR["features"], *added]}
        return error_of(self.template, self.workload, config, described)


def random_config(space: Space, seed: int = 0, **values: Any) -> Config:
    """Return a random valid config with the given values."""
    restricted = space.restrict({name: [value] for name, value in values.items()})
    return restricted.config(restricted.sample(1, np.random.default_rng(seed))[0])


def error_of(template: Template, workload: Workload, config: Config, described: Mapping[str, Any] = PROCESSOR) -> float:
    """Return the relative error of a built kernel; check that its function can be scheduled again, as in a network."""
    s_tir.Schedule(template.schedule(define(template, workload, config), workload, config))
    with TemporaryDirectory() as folder:
        artifact = Path(folder) / "kernel.so"
        builder.build(template, workload, config, described, artifact)
        return CpuRunner(template, workload, cold_bytes=0).load(artifact, config).relative_error()


UNCOVERABLE = st.sampled_from([17, 19, 23, 25, 29, 31, 34, 37])
"""Extents that no good register tile divides."""

TAPS, STRIDES = (st.tuples(st.integers(1, limit), st.integers(1, limit)) for limit in (5, 4))


@st.composite
def _convolutions(
    draw: st.DrawFn,
    groups: list[int],
    channels: list[int],
    filters: list[int],
    kernels: st.SearchStrategy[tuple[int, int]] = TAPS,
    strides: st.SearchStrategy[tuple[int, int]] = STRIDES,
) -> Conv2d:
    """Return a convolution with any image size and padding; `channels` and `filters` are per group."""
    kernel, dilation = draw(kernels), draw(st.just((1, 1)) | st.tuples(st.integers(1, 3), st.integers(1, 3)))
    padding, n_groups = draw(st.tuples(*[st.integers(0, 3)] * 4)), draw(st.sampled_from(groups))
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    return Conv2d(
        batch=draw(st.integers(1, 4)),
        height=max(reach[0] - padding[0] - padding[2], draw(st.integers(1, 13))),
        width=max(reach[1] - padding[1] - padding[3], draw(st.integers(1, 13) | UNCOVERABLE)),
        in_channels=n_groups * draw(st.sampled_from(channels)),
        out_channels=n_groups * draw(st.sampled_from(filters)),
        kernel=kernel,
        strides=draw(strides),
        padding=padding,
        dilation=dilation,
        groups=n_groups,
    )


convolutions = _convolutions([1, 1, 1, 2, 3], [*range(1, 10)], [*range(1, 21)])
depthwise = _convolutions([2, 3, 7, 13, 16, 24, 31, 37, 48, 64], [1], [1, 1, 1, 2, 3])
grouped = _convolutions([2, 3, 4, 5, 8, 13], [1, 2, 3, 4, 7, 8, 11], [1, 2, 3, 4, 5, 7, 8, 12, 24])
winograd = _convolutions(
    [1],
    [1, 2, 3, 7, 8, 16, 17, 24, 32],
    [1, 5, 8, 13, 16, 31, 32, 48],
    kernels=st.sampled_from([(3, 3), (3, 3), (5, 5)]),
    strides=st.just((1, 1)),
)
"""Convolutions that Winograd can compute."""

rows = st.integers(1, 12) | UNCOVERABLE
dense_layers = st.builds(Dense, rows, st.integers(1, 40), st.integers(1, 70))
products = st.builds(BatchMatmul, st.integers(1, 3), rows, st.integers(1, 40), st.integers(1, 70), st.booleans())


keys, features = st.integers(1, 70), st.integers(1, 40)
attention = st.builds(Attention, st.integers(1, 3), rows, keys, features, features, st.integers(0, 2), st.booleans())


def _low_precision(dtype: str, elements: int) -> st.SearchStrategy[Workload]:
    """Return a strategy of low-precision layers, with `elements` per packed 32-bit word."""
    layers = _convolutions([1, 1, 2, 3], [elements * words for words in (1, 2, 3, 8)], [*range(1, 21)])
    inner = st.integers(1, 20).map(lambda words: elements * words)
    return (layers | st.builds(Dense, rows, inner, st.integers(1, 70))).map(lambda w: replace(w, dtype=dtype))


byte_products = products.map(lambda w: replace(w, inner=4 * w.inner, dtype="uint8"))
byte_layers = depthwise.map(lambda w: replace(w, dtype="uint8")) | byte_products
low_precision = _low_precision("bfloat16", 2) | _low_precision("uint8", 4) | byte_layers


def _in_tiles(workload: Workload, threads: int) -> Case:
    """Return a case that AMX multiplies; for bytes, tiles are chosen by the config."""
    values = {ALGORITHM: TILES} if workload.dtype == "uint8" else {}
    return Case(workload, AMX, threads, values)


in_tiles = st.builds(
    _in_tiles, low_precision.filter(lambda w: supports_tiles(AMX, with_packed_words(w))), st.integers(1, 9)
)


@st.composite
def _weight_only(draw: st.DrawFn) -> Dense:
    """Return a dense layer with few rows and weight-only quantization."""
    bits, zeros = draw(st.sampled_from([4, 8])), draw(st.booleans())
    block, blocks = 32 // bits * draw(st.sampled_from([1, 3, 4, 8])), draw(st.integers(1, 6))
    scheme = WeightScheme(bits, block, zeros)
    return Dense(draw(st.integers(1, 16)), block * blocks, draw(st.integers(1, 70)), weights=scheme)


workloads = convolutions | depthwise | dense_layers | products | attention
"""Layers of every operator, also of odd sizes."""

ATROUS = Conv2d(1, 14, 14, 16, 32, (3, 3), padding=(12, 12, 12, 12), dilation=(12, 12), exact=True)
IDLE = [
    ATROUS,
    replace(ATROUS, in_channels=3, out_channels=20, padding=(13, 5, 4, 12), dilation=(7, 6)),
    replace(ATROUS, batch=2, height=9, width=17, strides=(2, 1), padding=(8, 8, 8, 8), dilation=(8, 8)),
    # Weights come from memory, and are prefetched.
    replace(ATROUS, height=5, width=5, in_channels=512, out_channels=64, padding=(4, 4, 4, 4), dilation=(4, 4)),
    Conv2d(1, 4, 4, 8, 16, (3, 3), padding=(1, 1, 1, 1), exact=True),
]
"""Convolutions with steps that multiply only padding."""

FROM_MEMORY = [
    Conv2d(1, 3, 5, 512, 512, (1, 1)),
    Conv2d(2, 7, 4, 256, 144, (3, 3), strides=(2, 1), padding=(1, 0, 0, 2)),
    Conv2d(1, 5, 5, 64, 176, (5, 5), padding=(2, 2, 2, 2), exact=True),
]
"""Convolutions whose weights exceed the cache."""

cases: st.SearchStrategy[Case] = (
    st.builds(Case, workloads | grouped | st.sampled_from(IDLE), UNITS | st.just(UNIT), st.integers(1, 9))
    | st.builds(Case, winograd, UNITS | st.just(UNIT), st.integers(1, 9), st.just({ALGORITHM: WINOGRAD}))
    | st.builds(Case, low_precision, UNITS | st.just(UNIT), st.integers(1, 9))
    | in_tiles
    | st.builds(Case, _weight_only(), UNITS | st.just(UNIT), st.integers(1, 9))
    | st.builds(Case, st.sampled_from(FROM_MEMORY), values=st.just({"prefetch": 1}))
    | st.builds(Case, st.just(Dense(7, 500, 600)), values=st.just({"prefetch_k": 64}))
)
