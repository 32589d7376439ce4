"""The choice of programs that compute a workload on the CPU: their versions, space, default config and template."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from math import prod
from typing import Any, cast

from anole.record import Config
from anole.space import ALGORITHM, Space, union
from anole.targets.base import DIRECT, TILES, WINOGRAD, Template, named_object
from anole.targets.cpu.device.vector_unit import VectorUnit
from anole.targets.cpu.templates.attention_space import attention_space
from anole.targets.cpu.templates.conv2d_space import conv2d_prefetches, conv2d_space, covered_size, leaves_gaps
from anole.targets.cpu.templates.depthwise_space import computed_channels, depthwise_space, is_depthwise
from anole.targets.cpu.templates.grouped_space import grouped_space, is_bundled
from anole.targets.cpu.templates.open_spaces import (
    attention_open,
    batch_matmul_open,
    conv2d_open,
    dense_open,
    depthwise_open,
    grouped_open,
)
from anole.targets.cpu.templates.packed_operands import can_be_packed, is_packed, with_packed_words
from anole.targets.cpu.templates.product_space import (
    batch_matmul_space,
    dense_prefetches,
    dense_space,
    weight_only_space,
)
from anole.targets.cpu.templates.register_tiles import covering, is_small
from anole.targets.cpu.templates.skip_padding import skips
from anole.targets.cpu.templates.tiles_space import (
    conv2d_tiles_space,
    dense_tiles_space,
    supports_tiles,
    tiles_are_faster,
)
from anole.targets.cpu.templates.winograd_space import can_winograd, output_tiles, winograd_is_faster, winograd_space
from anole.task import Attention, BatchMatmul, Bits, Conv2d, Dense, WeightScheme, Workload

VERSIONS = {
    "attention": 1,
    "batch_matmul": 2,
    "conv2d": 1,
    "cover": 1,
    "conv2d.prefetch": 3,
    "conv2d.idle": 1,
    "conv2d.gap": 1,
    "conv2d.depthwise": 1,
    "conv2d.surplus": 1,
    "conv2d.grouped": 2,
    "conv2d.winograd": 4,
    "dense": 2,
    "dense.prefetch": 1,
    "sharing": 1,
    "tiles": 1,
    "weights": 1,
    "words": 1,
}
"""The versions of programs' parts; increment a part's version when the meaning of its configs changes."""

MAX_ROWS = 8
"""Maximum number of rows of a dense layer with weight-only quantization; from about 12 rows, float32 is as fast."""

OPEN_VERSIONS = {"attention.open": 1, "batch_matmul.open": 1, "conv2d.open": 1, "dense.open": 1}

SpaceOf = Callable[[VectorUnit, int, Any], Space]
"""Maps a vector unit, the number of threads and a workload to its space."""


@dataclass(frozen=True)
class Programs:
    """The programs that compute a workload.

    Attributes:
        space: returns the space of their configs.
        template: the template's class, or a function that makes the template of a vector unit, as ``module:object``.
        default_config: maps the arguments of `space` to a valid config that is fast enough without tuning.
        has_packed_words: whether the template is for packed words, and the workload has low-precision operands.
    """

    space: SpaceOf
    template: str
    default_config: Callable[[VectorUnit, int, Any], Config]
    has_packed_words: bool = False

    def template_for(self, unit: VectorUnit) -> Template:
        """Return the template."""
        template = cast("Template", named_object(f"anole.targets.cpu.templates.{self.template}")(unit))
        if not self.has_packed_words:
            return template
        return cast(
            "Template", named_object("anole.targets.cpu.templates.packed_template:low_precision_template")(template)
        )


def program_parts(unit: VectorUnit, w: Workload, exact: bool, is_open: bool) -> list[str]:
    """Return the names, in `VERSIONS`, of the parts of a workload's programs."""
    if is_packed(w):
        return [*program_parts(unit, with_packed_words(w), True, is_open), "words"]
    parts = {
        w.operator: True,
        "sharing": is_small(w),
        "tiles": not is_open and supports_tiles(unit, w),
        f"{w.operator}.open": is_open,
    }
    if isinstance(w, Conv2d):
        depthwise, bundled = is_depthwise(w), is_bundled(unit, w)
        direct = not (depthwise or bundled)
        parts |= {
            "conv2d.depthwise": depthwise,
            "conv2d.surplus": depthwise and computed_channels(unit, w) > w.out_channels,
            "conv2d.grouped": bundled,
            "conv2d.prefetch": not depthwise and conv2d_prefetches(w),
            "cover": direct and covered_size(w) != (w.out_height, w.out_width),
            "conv2d.idle": direct and skips(w),
            "conv2d.gap": not bundled and leaves_gaps(w),
            "conv2d.winograd": allows_winograd(w, exact),
        }
    elif isinstance(w, Dense):
        is_weight_only = w.weights is not None
        parts |= {"dense.prefetch": not is_weight_only and dense_prefetches(w), "cover": covering(w.batch) > w.batch}
        parts["weights"] = is_weight_only
    else:
        parts["cover"] = covering(w.rows) > w.rows
    return [name for name, applies in parts.items() if applies]


def programs_of(unit: VectorUnit, w: Workload, exact: bool, is_open: bool) -> Programs:
    """Return the programs that compute a workload, with an open space if `is_open`."""
    if is_packed(w):
        return _adapt_to_packed_words(programs_of(unit, with_packed_words(w), True, is_open))
    if isinstance(w, Dense):
        kind = "dense" if w.weights is None else "weight_only"
    elif isinstance(w, (Attention, BatchMatmul)):
        kind = w.operator
    elif is_bundled(unit, w):
        kind = "grouped"
    elif is_depthwise(w):
        kind = "depthwise"
    else:
        kind = "direct" if is_open or not allows_winograd(w, exact) else "chosen"
    if is_open:
        return _OPEN[kind]
    return (_TILED[w.dtype] if supports_tiles(unit, w) else _CONSTRAINED)[kind]


def in_target_precision(unit: VectorUnit, threads: int, w: Workload, dtype: str) -> Workload:
    """Convert a float32 workload to low precision if there is a template and it should be faster."""
    if isinstance(w, Attention) or not can_be_packed(w, dtype):
        return w
    if not isinstance(w, Conv2d):
        return replace(w, dtype=dtype, exact=False)
    packed = replace(w, dtype=dtype, exact=False)
    if dtype == "bfloat16" and with_packed_words(packed).dtype in unit.tile_types:
        # On CPUs with bfloat16 tiles, bfloat16 vectors are slower than float32 vectors.
        return packed if supports_tiles(unit, with_packed_words(packed)) else w
    is_faster = not (
        allows_winograd(w, exact=False) and winograd_is_faster(unit, threads, w, with_packed_words(packed))
    )
    return packed if is_faster and not is_bundled(unit, w) else w


def weight_only(w: Workload, bits_and_block: tuple[Bits, int | None] | None) -> Workload:
    """Give a float32 dense layer its own weight scheme, else a scheme with the given bits, if it should be faster.

    It is faster for few rows, where reading weights takes longer than multiplying. Other layers are not quantized. If
    the block is None, it is an entire column.
    """
    if not isinstance(w, Dense):
        return w
    scheme = w.weights
    if scheme is None and bits_and_block is not None:
        scheme = WeightScheme(bits_and_block[0], bits_and_block[1] or w.in_features)
    is_faster = w.batch <= MAX_ROWS and w.dtype == "float32" and not w.exact
    return replace(w, weights=scheme if is_faster and scheme is not None and scheme.divides(w.in_features) else None)


def spread(threads: int, w: Workload, config: Config) -> Config:
    """Adapt a config to give all threads equal shares of each image, or of all rows, if its tiles allow it.

    At other sizes, threads may share a config's chunks unequally. The layout of packed weights stays the same.
    """
    names: tuple[str, ...] = ("tile_x",) if isinstance(w, Dense) else ()
    if isinstance(w, BatchMatmul) and w.batch < threads:
        names = ("tile_y",)
    if isinstance(w, Conv2d) and config.get(ALGORITHM) != WINOGRAD:
        names = ("tile_y", "tile_f")
    elif isinstance(w, Conv2d) and output_tiles(replace(w, batch=1), config).blocks < threads:
        # Each further chunk of filters transforms the data again, which enough blocks of tiles make unnecessary.
        names = ("tile_f",)
    adapted = dict(config)
    for name in names:
        chunks, tiles, register = config[name]
        while prod(adapted[knob][0] for knob in names) % threads and tiles > 1:
            factor = next(n for n in range(2, tiles + 1) if tiles % n == 0)
            chunks, tiles = chunks * factor, tiles // factor
            adapted[name] = [chunks, tiles, register]
    return adapted if prod(adapted[name][0] for name in names) % threads == 0 else config


def allows_winograd(w: Conv2d, exact: bool) -> bool:
    """Whether Winograd is an option: not if a convolution must be computed exactly as defined."""
    return can_winograd(w) and not exact and not w.exact and w.dtype == "float32"


@cache
def chosen_space(unit: VectorUnit, threads: int, w: Conv2d) -> Space:
    """Return the space of a convolution whose configs choose the algorithm."""
    return union({DIRECT: conv2d_space(unit, threads, w), WINOGRAD: winograd_space(unit, threads, w)})


def _chosen_default(unit: VectorUnit, threads: int, w: Conv2d) -> Config:
    """Return a valid config of the algorithm that should be faster."""
    if winograd_is_faster(unit, threads, w):
        return {ALGORITHM: WINOGRAD, **winograd_space(unit, threads, w).best_sampled}
    return {ALGORITHM: DIRECT, **conv2d_space(unit, threads, w).best_sampled}


def _vectors_or_tiles(vectors: SpaceOf, tiles: SpaceOf, template: str) -> Programs:
    """Return programs whose configs choose between vectors and AMX tiles of packed words."""

    @cache
    def space(unit: VectorUnit, threads: int, w: Conv2d | Dense) -> Space:
        return union({DIRECT: vectors(unit, threads, w), TILES: tiles(unit, threads, w)})

    def default(unit: VectorUnit, threads: int, w: Conv2d | Dense) -> Config:
        algorithm, space_of = (TILES, tiles) if tiles_are_faster(unit, threads, w) else (DIRECT, vectors)
        return {ALGORITHM: algorithm, **space_of(unit, threads, w).best_sampled}

    return Programs(space, template, default)


def _with_best_default(space: SpaceOf, template: str) -> Programs:
    """Return programs whose default is the config with the highest merit."""
    return Programs(space, template, lambda unit, threads, w: space(unit, threads, w).best_sampled)


def _adapt_to_packed_words(programs: Programs) -> Programs:
    """Return the programs of a low-precision workload, given the programs for packed words."""
    return Programs(
        lambda unit, threads, w: programs.space(unit, threads, with_packed_words(w)),
        programs.template,
        lambda unit, threads, w: programs.default_config(unit, threads, with_packed_words(w)),
        has_packed_words=True,
    )


_CONSTRAINED = {
    "attention": _with_best_default(attention_space, "attention:AttentionTemplate"),
    "direct": _with_best_default(conv2d_space, "conv2d:Conv2dTemplate"),
    "chosen": Programs(chosen_space, "winograd:direct_or_winograd", _chosen_default),
    "grouped": _with_best_default(grouped_space, "grouped:GroupedTemplate"),
    "depthwise": _with_best_default(depthwise_space, "depthwise:DepthwiseTemplate"),
    "dense": _with_best_default(dense_space, "products:DenseTemplate"),
    "weight_only": _with_best_default(weight_only_space, "weight_only:WeightOnlyTemplate"),
    "batch_matmul": _with_best_default(batch_matmul_space, "products:BatchMatmulTemplate"),
}
_OPEN = {
    kind: replace(_CONSTRAINED[kind], space=space)
    for kind, space in {
        "attention": attention_open,
        "direct": conv2d_open,
        "grouped": grouped_open,
        "depthwise": depthwise_open,
        "dense": dense_open,
        "weight_only": dense_open,
        "batch_matmul": batch_matmul_open,
    }.items()
}
"""Programs with open spaces, whose default is the constrained space's config with the highest merit."""

_TILED = {
    "bfloat16x2": {
        "direct": _with_best_default(conv2d_tiles_space, "tiles:TiledConvolution"),
        "dense": _with_best_default(dense_tiles_space, "tiles:TiledDense"),
    },
    "uint8x4": {
        "direct": _vectors_or_tiles(conv2d_space, conv2d_tiles_space, "tiles:direct_or_tiles"),
        "dense": _vectors_or_tiles(dense_space, dense_tiles_space, "tiles:dense_or_tiles"),
    },
}
"""Programs for CPUs with AMX, by the type of packed words; 8-bit vectors are also fast on these CPUs."""
