"""Any template of float32 as one of narrow numbers, whose data and weights it reads as words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import s_tir, te, tirx

from anole.record import Config
from anole.targets.base import Template
from anole.targets.cpu.templates.narrow import in_words, numbers_of_word
from anole.targets.shared.anchor import find_block, scheduled
from anole.targets.shared.reference import data_shape
from anole.targets.shared.words import word_of

_WORDS = "words"


@dataclass(frozen=True)
class WordTemplate:
    """The template of a workload of words, for workloads of narrow numbers."""

    of_words: Template

    def packed_shape(self, workload: Any, config: Config) -> tuple[int, ...]:
        """Returns the shape of the packed words."""
        return self.of_words.packed_shape(in_words(workload), config)

    def pack_weight(self, workload: Any, config: Config, weight: NDArray[Any]) -> NDArray[np.int32]:
        """Returns the packed words of a weight, whose second to last axis is that of the channels."""
        *outer, channels, filters = weight.shape
        numbers = numbers_of_word(workload)
        if numbers == 1:
            return self.of_words.pack_weight(in_words(workload), config, weight.astype(np.int32))
        rows = weight.reshape(*outer, channels // numbers, numbers, filters)
        words = np.ascontiguousarray(rows.swapaxes(-1, -2)).view(np.int32)[..., 0]
        return self.of_words.pack_weight(in_words(workload), config, words)

    def compute(self, workload: Any, config: Config, data: te.Tensor, packed: te.Tensor) -> te.Tensor:
        """Returns the definition over the words of the data."""
        inner, numbers = in_words(workload), range(numbers_of_word(workload))

        def word(*at: Any) -> Any:
            if len(numbers) == 1:
                return data[at].astype("int32")
            return word_of([data[(*at[:-1], at[-1] * len(numbers) + number)] for number in numbers])

        return self.of_words.compute(inner, config, te.compute(data_shape(inner), word, name=_WORDS), packed)

    def schedule(self, func: tirx.PrimFunc, workload: Any, config: Config) -> tirx.PrimFunc:
        """Returns the function with the loop nest of the config, in which words are read where they lie."""
        sch = s_tir.Schedule(func)
        sch.compute_inline(find_block(sch, _WORDS))
        return self.of_words.schedule(scheduled(sch), in_words(workload), config)
