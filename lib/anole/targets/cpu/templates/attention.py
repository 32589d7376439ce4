"""Attention on the CPU as one kernel: both products, with the scores of a chunk of rows and their softmax in the cache.

Scores are not computed with a running maximum (Dao et al., "FlashAttention", NeurIPS 2022): a core's cache holds all
scores of enough rows, and a plain softmax needs no rescaling.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, prod
from typing import Any

from tvm import s_tir, te, tirx

from anole.ir.nodes import blocks_of
from anole.ir.polynomials import bound, const, exp_nonpositive
from anole.ir.symbols import is_static, simplify
from anole.record import Config
from anole.targets.base import ANCHOR
from anole.targets.cpu.device.vector_unit import VectorUnit
from anole.targets.cpu.templates import nest
from anole.targets.cpu.templates.products import covered_extent
from anole.targets.shared import anchor
from anole.targets.shared.anchor import is_same_extent
from anole.targets.shared.templates import UnpackedTemplate
from anole.task import Attention

_COPIES = ("keys", "values")
_SCORES = ("queries", "products", "scores", "lane_maxima", "maxima", "exponentials", "lane_sums", "sums", "reciprocals")
_STAGES = (*_COPIES, *_SCORES, "attention")

_MAX = te.comm_reducer(lambda a, b: tirx.max(a, b), lambda _: const(-inf), name="max")
"""The maximum, minus infinity of nothing; TVM's own is the smallest finite number, which a mask may contain."""


@dataclass(frozen=True)
class AttentionTemplate(UnpackedTemplate):
    """Attention; see `attention_space` for its knobs.

    The split of a config may cover more rows than there are, and panels more keys and columns. Surplus keys have scores
    of minus infinity; surplus rows and columns are discarded.
    """

    unit: VectorUnit

    def compute(
        self, workload: Attention, config: Config, data: te.Tensor, packed: te.Tensor, *more: te.Tensor
    ) -> te.Tensor:
        """Return (batch, rows, columns) of queries, keys, values and addends."""
        w, (values, *addends) = workload, more
        parallel, _, *tile = config["tile_y"]
        rows = covered_extent(w.rows, config["tile_y"], parallel * prod(tile))
        stages = _Stages(w, rows, self.unit.lanes * config["panel_vectors"], data, packed, values)
        exponentials, reciprocals = stages.softmax(stages.scores(addends))
        result = stages.result(exponentials)
        shape = (w.batch, w.rows, w.columns)
        return te.compute(shape, lambda b, y, x: result[b, y, x] * reciprocals[b, y], name="attention_out")

    def schedule(self, func: tirx.PrimFunc, workload: Attention, config: Config) -> tirx.PrimFunc:
        """Schedule the function with the config's loop nest."""
        sch = s_tir.Schedule(func)
        *others, out = [block for block in blocks_of(sch) if sch.get(block).name_hint not in _STAGES]
        for block in others:
            # Views of the operands are read, and permutations of the result written, in place.
            sch.compute_inline(block)
        return _Nest(sch, out, config["tile_y"], config["panel_vectors"], self.unit.lanes).arrange()


class _Stages:
    """The stages of attention; rows and keys are rounded up to whole tiles."""

    def __init__(
        self, w: Attention, rows: Any, panel: int, queries: te.Tensor, keys: te.Tensor, values: te.Tensor
    ) -> None:
        self._w, self._rows, self._panel = w, rows, panel
        self._panels = _panels(w.keys, panel)
        shape = (w.batch, rows, w.inner)
        self._queries = te.compute(shape, lambda b, y, k: queries[b, self._row(y), k], name="queries")
        self._keys = self._pack("keys", w.keys, w.inner, lambda b, x, k: keys[b, x, k])
        self._values = self._pack("values", w.columns, w.keys, lambda b, x, k: values[b, k, x])

    def _row(self, y: Any) -> Any:
        return y if is_same_extent(self._rows, self._w.rows) else tirx.min(y, self._w.rows - 1)

    def _pack(self, name: str, columns: Any, inner: Any, element: Any) -> te.Tensor:
        """Pack an operand as (batch, panels, inner, panel width), with zeros beyond its columns."""
        panel, panels = self._panel, _panels(columns, self._panel)

        def point(b: Any, p: Any, k: Any, lane: Any) -> Any:
            x = p * panel + lane
            value = element(b, x, k)
            return value if is_same_extent(panels * panel, columns) else tirx.if_then_else(x < columns, value, const(0))

        return te.compute((self._w.batch, panels, inner, panel), point, name=name)

    def scores(self, addends: Sequence[te.Tensor]) -> te.Tensor:
        """Return the products of queries and keys plus the addends, (batch, rows, keys)."""
        w, panel, width = self._w, self._panel, self._panels * self._panel
        k = te.reduce_axis((0, w.inner), "k")
        products = te.compute(
            (w.batch, self._rows, width),
            lambda b, y, x: te.sum(self._queries[b, y, k] * self._keys[b, x // panel, k, x % panel], axis=k),
            name="products",
        )

        # A condition that guards loads is not computed for each lane; see `nest.with_full_vectors`.
        select = tirx.if_then_else if addends else tirx.Select

        def score(b: Any, y: Any, x: Any) -> Any:
            value = sum((addend[b, self._row(y), x] for addend in addends), products[b, y, x])
            return value if is_same_extent(width, w.keys) else select(x < w.keys, value, const(-inf))

        return te.compute(products.shape, score, name="scores")

    def softmax(self, scores: te.Tensor) -> tuple[te.Tensor, te.Tensor]:
        """Return the exponentials of scores minus their row's maximum, and the reciprocals of their sums."""
        maxima = self._reduce(scores, _MAX, "maxima")

        def unless_empty(at: Any, value: Any) -> Any:
            return tirx.Select(maxima[at] == const(-inf), const(0), value) if self._w.masked else value

        def exponential(b: Any, y: Any, x: Any) -> Any:
            return bound(scores[b, y, x] - unless_empty((b, y), maxima[b, y]), exp_nonpositive)

        exponentials = te.compute(scores.shape, exponential, name="exponentials")
        sums = self._reduce(exponentials, te.sum, "sums")
        reciprocals = te.compute(sums.shape, lambda *at: unless_empty(at, const(1) / sums[at]), name="reciprocals")
        return exponentials, reciprocals

    def _reduce(self, scores: te.Tensor, reducer: Any, name: str) -> te.Tensor:
        """Reduce rows of scores, first all panels lane by lane, then the lanes."""
        panel, at = te.reduce_axis((0, self._panels), "panel"), te.reduce_axis((0, self._panel), "lane")
        lanes = te.compute(
            (*scores.shape[:2], self._panel),
            lambda b, y, lane: reducer(scores[b, y, panel * self._panel + lane], axis=panel),
            name=f"lane_{name}",
        )
        return te.compute(scores.shape[:2], lambda b, y: reducer(lanes[b, y, at], axis=at), name=name)

    def result(self, exponentials: te.Tensor) -> te.Tensor:
        """Return the products of exponentials and values, (batch, rows, columns)."""
        w, panel = self._w, self._panel
        k = te.reduce_axis((0, w.keys), "k")
        return te.compute(
            (w.batch, self._rows, self._values.shape[1] * panel),
            lambda b, y, x: te.sum(exponentials[b, y, k] * self._values[b, x // panel, k, x % panel], axis=k),
            name="attention",
            attrs={ANCHOR: w.operator},
        )


def _panels(columns: Any, panel: int) -> Any:
    """Return the number of panels that cover columns."""
    panels = (columns + panel - 1) // panel
    return panels if isinstance(panels, int) else simplify(panels)


@dataclass(frozen=True)
class _Nest:
    """The loop nest of the stages; every stage is computed where the next one needs it."""

    sch: s_tir.Schedule
    out: Any
    tile_y: Sequence[int]
    vectors: int
    lanes: int

    def arrange(self) -> tirx.PrimFunc:
        """Schedule all stages, the last one first, and return the function."""
        sch = self.sch
        parallel, chunk, tile = self._arrange_output()
        self._multiply(sch.get_sblock("attention"), tile)
        for name in ("reciprocals", "sums"):
            self._compute_at(name, chunk)
        self._reduce("lane_sums", chunk)
        sch.vectorize(sch.split(self._compute_at("exponentials", chunk)[-1], [None, self.vectors, self.lanes])[2])
        self._compute_at("maxima", chunk)
        self._reduce("lane_maxima", chunk)
        *_, row, column = self._compute_at("scores", chunk)
        self._multiply(sch.get_sblock("products"), self._tile(row, column))
        self._vectorize(self._compute_at("queries", chunk)[-1])
        for name in _COPIES:
            self._vectorize(self._compute_at(name, parallel)[-1])
        return nest.with_full_vectors(anchor.scheduled(sch))

    def _arrange_output(self) -> tuple[Any, Any, Any]:
        """Tile and parallelize the loops of the result; return the loops over parts, chunks and tiles."""
        sch = self.sch
        loops = sch.get_loops(self.out)
        axes = list(sch.get(self.out).annotations.get(anchor.AXES, range(len(loops))))
        *batch, row, column = (loops[axes.index(axis)] for axis in range(len(axes)))
        parts, chunks, *tile_rows = self.tile_y
        if is_static(sch.get(row).extent):
            part, chunk, row = sch.split(row, [None, chunks, prod(tile_rows)])
        else:  # each part gets chunks in turn, as many as there are
            chunk, part, row = sch.split(row, [None, parts, prod(tile_rows)])
        sch.reorder(*batch, part, chunk)
        tile = self._tile(row, column, outer=(*batch, part, chunk))
        parallel = sch.fuse(*batch, part)
        sch.parallel(parallel)
        return parallel, chunk, tile

    def _tile(self, row: Any, column: Any, outer: Sequence[Any] = ()) -> Any:
        """Split the loops of a chunk into register tiles; return the loop over tiles of rows."""
        sch = self.sch
        panel, vector, lane = sch.split(column, [None, self.vectors, self.lanes])
        tile, register = sch.split(row, [None, self.tile_y[3]])
        sch.reorder(*outer, panel, tile, register, vector, lane)
        self._unroll(register, vector, lane)
        return tile

    def _multiply(self, block: Any, tile: Any) -> None:
        """Compute a product in registers, for each tile of its consumer."""
        sch = self.sch
        sch.compute_at(block, tile, preserve_unit_loops=True)
        *_, row, column, k = sch.get_loops(block)
        vector, lane = sch.split(column, [None, self.lanes])
        sch.reorder(k, row, vector, lane)
        self._unroll(row, vector, lane)
        sch.set_scope(block, 0, "local")
        sch.decompose_reduction(block, k)

    def _reduce(self, name: str, chunk: Any) -> None:
        """Reduce scores lane by lane, for all rows of a tile together."""
        sch = self.sch
        *_, row, lane, panel = self._compute_at(name, chunk)
        block = sch.get_sblock(name)
        tile, register = sch.split(row, [None, self.tile_y[3]])
        vector, lane = sch.split(lane, [None, self.lanes])
        sch.reorder(tile, panel, register, vector, lane)
        self._unroll(register, vector, lane)
        result = sch.cache_write(block, 0, "local")
        sch.reverse_compute_at(result, tile, preserve_unit_loops=True)
        *_, register, lane = sch.get_loops(result)
        self._unroll(register, *sch.split(lane, [None, self.lanes]))
        sch.decompose_reduction(block, panel)

    def _compute_at(self, name: str, loop: Any) -> Sequence[Any]:
        """Compute a stage inside a loop; return its loops."""
        block = self.sch.get_sblock(name)
        self.sch.compute_at(block, loop, preserve_unit_loops=True)
        return list(self.sch.get_loops(block))

    def _vectorize(self, loop: Any) -> None:
        """Vectorize a loop over a contiguous axis, if it is a multiple of the lanes."""
        if int(self.sch.get(loop).extent) % self.lanes == 0:
            self.sch.vectorize(self.sch.split(loop, [None, self.lanes])[1])

    def _unroll(self, *loops: Any) -> None:
        """Unroll loops, and vectorize the last one."""
        for loop in loops[:-1]:
            self.sch.unroll(loop)
        self.sch.vectorize(loops[-1])
