"""Adapters of float32 templates to low-precision operands in packed 32-bit words."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import s_tir, te, tirx

from anole.record import Config
from anole.targets.base import Template
from anole.targets.cpu.templates.packed_operands import elements_per_word, with_packed_words
from anole.targets.shared.anchor import find_block, scheduled
from anole.targets.shared.packed_words import pack_word
from anole.targets.shared.reference import data_shape, weight_shape
from anole.targets.shared.templates import UnpackedTemplate
from anole.task import BatchMatmul

_DATA, _RIGHT = "words", "right"


@dataclass(frozen=True)
class PackedTemplate:
    """A low-precision template that delegates to `inner`, a template for packed 32-bit words."""

    inner: Template

    def packed_shape(self, workload: Any, config: Config) -> tuple[int, ...]:
        """Return the shape of the packed weight, in 32-bit words."""
        return self.inner.packed_shape(with_packed_words(workload), config)

    def pack_weight(self, workload: Any, config: Config, weight: NDArray[Any]) -> NDArray[np.int32]:
        """Pack a weight, with channels on the second to last axis, into 32-bit words, and the words into its layout."""
        *outer, channels, filters = weight.shape
        elements = elements_per_word(workload)
        if elements == 1:
            return self.inner.pack_weight(with_packed_words(workload), config, weight.astype(np.int32))
        rows = weight.reshape(*outer, channels // elements, elements, filters)
        words = np.ascontiguousarray(rows.swapaxes(-1, -2)).view(np.int32)[..., 0]
        return self.inner.pack_weight(with_packed_words(workload), config, words)

    def compute(self, workload: Any, config: Config, data: te.Tensor, packed: te.Tensor) -> te.Tensor:
        """Return the anchor's definition over packed words of the data."""
        inner_workload, elements = with_packed_words(workload), elements_per_word(workload)

        def word_at(*at: Any) -> Any:
            return data[at].astype("int32") if elements == 1 else _word_of_row(data, elements, *at)

        return self.inner.compute(
            inner_workload, config, te.compute(data_shape(inner_workload), word_at, name=_DATA), packed
        )

    def schedule(self, func: tirx.PrimFunc, workload: Any, config: Config) -> tirx.PrimFunc:
        """Schedule the function with the config's loop nest, which loads packed words directly from memory."""
        sch = s_tir.Schedule(func)
        for block in (find_block(sch, name) for name in (_DATA, _RIGHT)):
            if block is not None:
                sch.compute_inline(block)
        return self.inner.schedule(scheduled(sch), with_packed_words(workload), config)


class PackedMatmulTemplate(UnpackedTemplate, PackedTemplate):
    """Batched int8 matmul of two activations; the right operand is packed into 32-bit words at run time."""

    def compute(self, workload: BatchMatmul, config: Config, data: te.Tensor, packed: te.Tensor) -> te.Tensor:
        """Return the product's definition over packed words of both operands."""
        elements = elements_per_word(workload)

        def word_at(*at: Any) -> Any:
            return (_word_of_row if workload.transpose_right else _word_of_column)(packed, elements, *at)

        right_words = te.compute(weight_shape(with_packed_words(workload)), word_at, name=_RIGHT)
        return super().compute(workload, config, data, right_words)


def low_precision_template(template: Template) -> PackedTemplate:
    """Return the low-precision template, given the template for packed words."""
    return PackedMatmulTemplate(template) if isinstance(template, UnpackedTemplate) else PackedTemplate(template)


def _word_of_row(data: te.Tensor, elements: int, *at: Any) -> Any:
    """Return a packed word of elements that are contiguous in a row."""
    return pack_word([data[(*at[:-1], at[-1] * elements + element)] for element in range(elements)])


def _word_of_column(data: te.Tensor, elements: int, batch: Any, word: Any, column: Any) -> Any:
    """Return a packed word of bytes from consecutive rows of a column."""
    values = [data[batch, word * elements + element, column].astype("int32") for element in range(elements)]
    return reduce(or_, [(byte & 255) << (8 * at) for at, byte in enumerate(values)])
