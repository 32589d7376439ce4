"""Dense layers with weight-only quantization: integers in packed 32-bit lanes, which are unpacked in registers.

An integer becomes float32 without a conversion: its bits are inserted into the mantissa of a power of two, where the
lowest bit has the value one, which adds the integer to the power. This takes two bitwise operations, which many
processors do in one, and a subtraction of the power together with the zero point. Integers in the upper half of a
packed lane are shifted down first.
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
from anole.targets.shared.templates import in_panels
from anole.targets.shared.weight_only import packed_rows_of_block, rows_of_block
from anole.task import Dense, WeightScheme

_FRACTION_BITS, _HALF_BITS = 23, 16


class WeightOnlyTemplate(DenseTemplate):
    """The product of float32 data with weights that are quantized by a scheme."""

    def packed_shape(self, workload: Dense, config: Config) -> tuple[int, ...]:
        """Return (panels, rows of packed lanes, panel width)."""
        return (prod(config["tile_x"][:2]), weight_shape(workload)[0], config["tile_x"][2])

    def pack_weight(self, workload: Dense, config: Config, weight: NDArray[np.int32]) -> NDArray[np.int32]:
        """Pack the matrix of packed lanes into panels, zero-padded."""
        return in_panels(weight, config["tile_x"][2], prod(config["tile_x"]))

    def compute(self, workload: Dense, config: Config, data: te.Tensor, packed: te.Tensor) -> te.Tensor:
        """Multiply (rows, in) data with packed weights, as (rows, out); each lane's sum is scaled, then added."""
        w, scheme = workload, workload.weights
        assert scheme is not None
        panel, columns = config["tile_x"][2], prod(config["tile_x"])
        rows = covered_extent(w.batch, config["tile_y"], prod(config["tile_y"][1:]))
        words, length, numbers = packed_rows_of_block(scheme), rows_of_block(scheme), scheme.numbers
        k = te.reduce_axis((0, w.in_features // numbers), "k")

        def point(y: Any, x: Any) -> Any:
            row = y if anchor.is_same_extent(rows, w.batch) else tirx.min(y, w.batch - 1)
            block = k // words

            def lane(at: Any) -> Any:
                return packed[x // panel, block * length + at, x % panel]

            word, scale = lane(k % words), tirx.reinterpret("float32", lane(words))
            zero = tirx.reinterpret("float32", lane(words + 1)) if scheme.zeros else None
            total = tirx.const(0, "float32")
            for number in range(numbers):
                total += data[row, k * numbers + number] * _unpacked(word, zero, scheme, number)
            return te.sum(total * scale, axis=k)

        result = te.compute((rows, columns), point, name=w.operator, attrs={ANCHOR: w.operator})
        return anchor.crop(result, w.batch, w.out_features)


def _unpacked(word: Any, zero: Any, scheme: WeightScheme, number: int) -> Any:
    """Unpack an integer of a packed lane as float32, minus its zero point."""
    half, first = divmod(number * scheme.bits, _HALF_BITS)
    power, mask = np.float32(1 << _FRACTION_BITS - first), (1 << scheme.bits) - 1 << first
    own = word >> tirx.const(_HALF_BITS, "int32") if half else word
    bits = own & tirx.const(mask, "int32") | tirx.const(int(power.view(np.int32)), "int32")
    subtrahend = tirx.const(float(power), "float32")
    subtrahend += tirx.const(1 << scheme.bits - 1, "float32") if zero is None else zero
    return tirx.reinterpret("float32", bits) - subtrahend
