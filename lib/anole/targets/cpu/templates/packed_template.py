"""Any template of float32 as one of narrow numbers, whose data and weights it reads as words."""

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
from anole.targets.cpu.templates.packed_operands import lanes_of_word, with_packed_lanes
from anole.targets.shared.anchor import find_block, scheduled
from anole.targets.shared.packed_lanes import word_of
from anole.targets.shared.reference import data_shape, weight_shape
from anole.targets.shared.templates import UnpackedTemplate
from anole.task import BatchMatmul

_WORDS, _RIGHT = "words", "right"


@dataclass(frozen=True)
class PackedTemplate:
    """The template of a workload of words, for workloads of narrow numbers."""

    of_words: Template

    def packed_shape(self, workload: Any, config: Config) -> tuple[int, ...]:
        """Return the shape of the packed words."""
        return self.of_words.packed_shape(with_packed_lanes(workload), config)

    def pack_weight(self, workload: Any, config: Config, weight: NDArray[Any]) -> NDArray[np.int32]:
        """Return the packed words of a weight, whose second to last axis is that of the channels."""
        *outer, channels, filters = weight.shape
        numbers = lanes_of_word(workload)
        if numbers == 1:
            return self.of_words.pack_weight(with_packed_lanes(workload), config, weight.astype(np.int32))
        rows = weight.reshape(*outer, channels // numbers, numbers, filters)
        words = np.ascontiguousarray(rows.swapaxes(-1, -2)).view(np.int32)[..., 0]
        return self.of_words.pack_weight(with_packed_lanes(workload), config, words)

    def compute(self, workload: Any, config: Config, data: te.Tensor, packed: te.Tensor) -> te.Tensor:
        """Return the definition over the words of the data."""
        inner, numbers = with_packed_lanes(workload), lanes_of_word(workload)

        def word(*at: Any) -> Any:
            return data[at].astype("int32") if numbers == 1 else _word_of_row(data, numbers, *at)

        return self.of_words.compute(inner, config, te.compute(data_shape(inner), word, name=_WORDS), packed)

    def schedule(self, func: tirx.PrimFunc, workload: Any, config: Config) -> tirx.PrimFunc:
        """Return the function with the loop nest of the config, in which words are read where they lie."""
        sch = s_tir.Schedule(func)
        for block in (find_block(sch, name) for name in (_WORDS, _RIGHT)):
            if block is not None:
                sch.compute_inline(block)
        return self.of_words.schedule(scheduled(sch), with_packed_lanes(workload), config)


class PackedMatmulTemplate(UnpackedTemplate, PackedTemplate):
    """That of two computed tensors of bytes, of which the right one's words are made when they are packed."""

    def compute(self, workload: BatchMatmul, config: Config, data: te.Tensor, packed: te.Tensor) -> te.Tensor:
        """Return the definition over the words of both operands."""
        numbers = lanes_of_word(workload)

        def word(*at: Any) -> Any:
            return (_word_of_row if workload.transpose_right else _word_of_column)(packed, numbers, *at)

        words = te.compute(weight_shape(with_packed_lanes(workload)), word, name=_RIGHT)
        return super().compute(workload, config, data, words)


def of_words(template: Template) -> PackedTemplate:
    """Return the template of a workload of narrow numbers, given that of its words."""
    return PackedMatmulTemplate(template) if isinstance(template, UnpackedTemplate) else PackedTemplate(template)


def _word_of_row(data: te.Tensor, numbers: int, *at: Any) -> Any:
    """Return a word of numbers that lie one after another."""
    return word_of([data[(*at[:-1], at[-1] * numbers + number)] for number in range(numbers)])


def _word_of_column(data: te.Tensor, numbers: int, batch: Any, word: Any, column: Any) -> Any:
    """Return a word of bytes that lie one below another."""
    found = [data[batch, word * numbers + number, column].astype("int32") for number in range(numbers)]
    return reduce(or_, [(byte & 255) << (8 * place) for place, byte in enumerate(found)])
