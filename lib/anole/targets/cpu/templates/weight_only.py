"""Dense layers with weight-only quantization: integers in packed 32-bit words, which are unpacked in registers.

An integer becomes float32 without a conversion: its bits are inserted into the mantissa of a power of two, where the
lowest bit has the value one, which adds the integer to the power. This takes two bitwise operations, which many
CPUs do in one instruction, and a subtraction of the power together with the zero point. Integers in the upper half of a
packed word are shifted down first.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import te, tirx

from anole.record import Config
from anole.targets.base import ANCHOR
from anole.targets.cpu.templates.products import DenseTemplate, covered_extent
from anole.targets.shared import anchor
from anole.targets.shared.reference import weight_shape
from anole.targets.shared.templates import pack_panels
from anole.targets.shared.weight_only import packed_rows_per_block, rows_per_block
from anole.task import Dense, WeightScheme

_FRACTION_BITS, _HALF_BITS = 23, 16


class WeightOnlyTemplate(DenseTemplate):
    """The product of float32 data with weights that are quantized by a scheme."""

    def packed_shape(self, workload: Dense, config: Config) -> tuple[int, ...]:
        """Return (panels, rows of packed words, panel width)."""
        return (prod(config["tile_x"][:2]), weight_shape(workload)[0], config["tile_x"][2])

    def pack_weight(self, workload: Dense, config: Config, weight: NDArray[np.int32]) -> NDArray[np.int32]:
        """Pack the matrix of packed words into panels, zero-padded."""
        return pack_panels(weight, config["tile_x"][2], prod(config["tile_x"]))

    def compute(self, workload: Dense, config: Config, data: te.Tensor, packed: te.Tensor) -> te.Tensor:
        """Multiply (rows, in) data with packed weights, as (rows, out); each word's sum is scaled, then accumulated."""
        w, scheme = workload, workload.weights
        assert scheme is not None
        panel, columns = config["tile_x"][2], prod(config["tile_x"])
        rows = covered_extent(w.batch, config["tile_y"], prod(config["tile_y"][1:]))
        word_rows, block_rows, per_word = packed_rows_per_block(scheme), rows_per_block(scheme), scheme.numbers
        k = te.reduce_axis((0, w.in_features // per_word), "k")

        def point(y: Any, x: Any) -> Any:
            row = y if anchor.is_same_extent(rows, w.batch) else tirx.min(y, w.batch - 1)
            block = k // word_rows

            def word_at(word_row: Any) -> Any:
                return packed[x // panel, block * block_rows + word_row, x % panel]

            word, scale = word_at(k % word_rows), tirx.reinterpret("float32", word_at(word_rows))
            zero_point = tirx.reinterpret("float32", word_at(word_rows + 1)) if scheme.zeros else None
            total = tirx.const(0, "float32")
            for index in range(per_word):
                total += data[row, k * per_word + index] * _unpack(word, zero_point, scheme, index)
            return te.sum(total * scale, axis=k)

        result = te.compute((rows, columns), point, name=w.operator, attrs={ANCHOR: w.operator})
        return anchor.crop(result, w.batch, w.out_features)


def _unpack(word: Any, zero_point: Any, scheme: WeightScheme, index: int) -> Any:
    """Unpack an integer of a packed word as float32, minus its zero point."""
    half, first = divmod(index * scheme.bits, _HALF_BITS)
    power, mask = np.float32(1 << _FRACTION_BITS - first), (1 << scheme.bits) - 1 << first
    shifted = word >> tirx.const(_HALF_BITS, "int32") if half else word
    bits = shifted & tirx.const(mask, "int32") | tirx.const(int(power.view(np.int32)), "int32")
    subtrahend = tirx.const(float(power), "float32")
    subtrahend += tirx.const(1 << scheme.bits - 1, "float32") if zero_point is None else zero_point
    return tirx.reinterpret("float32", bits) - subtrahend
