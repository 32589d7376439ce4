"""Workloads of narrow numbers are computed as workloads of words, each of which holds several; needs no compiler.

A word has 32 bits, as many as a float32. Neighbouring channels share a word, and the dot product of two words takes the
place of a multiply-add, so that spaces, merits and loop nests are those of float32. A depthwise convolution does not
sum over channels: each of its words holds one byte.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from anole.targets.cpu.templates.depthwise_space import is_depthwise
from anole.task import BatchMatmul, Conv2d, Dense, Workload

LANES_OF_WORD = {"bfloat16": 2, "uint8": 4}
"""How many numbers of a type fill a word; the weights of data of uint8 are of int8."""

_Workload = TypeVar("_Workload", bound=Workload)


def is_packed(w: Workload) -> bool:
    """Whether a workload's numbers are narrower than a word."""
    return w.dtype in LANES_OF_WORD


def can_be_packed(w: Workload, dtype: str) -> bool:
    """Whether a workload of float32 has a template for a narrow type: its channels must fill whole words.

    Bytes stand for whole numbers, and only they have depthwise convolutions and products of two computed tensors.
    """
    if w.dtype != "float32" or getattr(w, "exact", False) != (dtype == "uint8"):
        return False
    if isinstance(w, Conv2d):
        return dtype == "uint8" if is_depthwise(w) else w.in_channels // w.groups % LANES_OF_WORD[dtype] == 0
    if isinstance(w, Dense):
        return w.in_features % LANES_OF_WORD[dtype] == 0
    return dtype == "uint8" and w.inner % LANES_OF_WORD[dtype] == 0


def lanes_of_word(w: Workload) -> int:
    """Return how many numbers a word of a workload of narrow numbers holds."""
    return 1 if isinstance(w, Conv2d) and is_depthwise(w) else LANES_OF_WORD[w.dtype]


def word_dtype(dtype: str) -> str:
    """Return the type of full words of narrow numbers, or any other type as it is."""
    return f"{dtype}x{LANES_OF_WORD[dtype]}" if dtype in LANES_OF_WORD else dtype


def with_packed_lanes(w: _Workload) -> _Workload:
    """Return a workload of narrow numbers as one of words, or a workload of words as it is."""
    if not is_packed(w):
        return w
    numbers = lanes_of_word(w)
    dtype = f"{w.dtype}x{numbers}"
    if isinstance(w, Conv2d):
        return replace(w, in_channels=w.in_channels // numbers, dtype=dtype)
    if isinstance(w, Dense):
        return replace(w, in_features=w.in_features // numbers, dtype=dtype)
    assert isinstance(w, BatchMatmul)
    return replace(w, inner=w.inner // numbers, dtype=dtype)
