"""Low-precision workloads as workloads of packed 32-bit words (two bf16 or four uint8 each); needs no compiler.

A packed word has the size of a float32. Adjacent channels share a word, and the dot product of two words replaces a
multiply-add, so spaces, merits and loop nests are the same as for float32. A depthwise convolution does not sum over
channels: each of its packed words holds one byte.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from anole.targets.cpu.templates.depthwise_space import is_depthwise
from anole.task import BatchMatmul, Conv2d, Dense, Workload

ELEMENTS_PER_WORD = {"bfloat16": 2, "uint8": 4}
"""Number of elements of a type in a packed 32-bit word; the weights of uint8 data are int8."""

_Workload = TypeVar("_Workload", bound=Workload)


def is_packed(w: Workload) -> bool:
    """Whether a workload has a low-precision type that is computed in packed words."""
    return w.dtype in ELEMENTS_PER_WORD


def can_be_packed(w: Workload, dtype: str) -> bool:
    """Whether a float32 workload has a template for a low-precision type: its channels must fill packed words.

    uint8 is only for exact integers; only uint8 supports depthwise convolutions and batched matmuls of two activations.
    """
    if w.dtype != "float32" or getattr(w, "exact", False) != (dtype == "uint8"):
        return False
    if isinstance(w, Conv2d):
        return dtype == "uint8" if is_depthwise(w) else w.in_channels // w.groups % ELEMENTS_PER_WORD[dtype] == 0
    if isinstance(w, Dense):
        return w.in_features % ELEMENTS_PER_WORD[dtype] == 0
    return dtype == "uint8" and w.inner % ELEMENTS_PER_WORD[dtype] == 0


def elements_per_word(w: Workload) -> int:
    """Return the number of elements in a packed word of a low-precision workload."""
    return 1 if isinstance(w, Conv2d) and is_depthwise(w) else ELEMENTS_PER_WORD[w.dtype]


def packed_word_dtype(dtype: str) -> str:
    """Return the type of full packed words of a low-precision type, or any other type unchanged."""
    return f"{dtype}x{ELEMENTS_PER_WORD[dtype]}" if dtype in ELEMENTS_PER_WORD else dtype


def with_packed_words(w: _Workload) -> _Workload:
    """Convert a low-precision workload to a workload of packed words; return any other workload unchanged."""
    if not is_packed(w):
        return w
    elements = elements_per_word(w)
    dtype = f"{w.dtype}x{elements}"
    if isinstance(w, Conv2d):
        return replace(w, in_channels=w.in_channels // elements, dtype=dtype)
    if isinstance(w, Dense):
        return replace(w, in_features=w.in_features // elements, dtype=dtype)
    assert isinstance(w, BatchMatmul)
    return replace(w, inner=w.inner // elements, dtype=dtype)
