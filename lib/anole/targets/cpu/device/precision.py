"""The precisions in which a processor may multiply, and what it must have for them."""

from __future__ import annotations

from collections.abc import Iterable

from anole.task import Bits

FLOAT32, BF16, INT8 = "float32", "bf16", "int8"

WHOLE = "uint8"
"""The type of data that is known to be whole numbers of 8 bits."""

DTYPES = {FLOAT32: "float32", BF16: "bfloat16", INT8: "float32"}
"""The type to which a network's numbers of float32 are rounded before they are multiplied, by names of precisions.

Sums are of float32. Where the precision is int8, the network is a quantized one, whose products are of whole numbers.
"""

STORED_WEIGHTS: dict[str, tuple[Bits, int | None]] = {"int8": (8, None), "int4": (4, 32)}
"""The bits and the block of weights that are stored in few bits, by the names of types; no block is a whole column."""

NEEDS = {
    FLOAT32: (frozenset[str](),),
    BF16: (frozenset({"avx512_bf16", "avx512vl"}), frozenset({"avx512f", "amx_tile", "amx_bf16"})),
    INT8: (frozenset({"avx2"}),),
}
"""Sets of features without any of which a precision would be slower than float32: those of vectors first."""


BYTE_FEATURES = frozenset({"avx_vnni", "avx512_vnni", "amx_tile", "amx_int8"})
"""The features with which products of bytes are faster, though not necessary for them."""


def lacks(precision: str, features: Iterable[str]) -> list[str]:
    """Return the features for a precision that a processor with these lacks; without them, float32 is faster."""
    first, *others = (sorted(needed - set(features)) for needed in NEEDS[precision])
    return first if all(others) else []


def has_bytes(features: Iterable[str]) -> bool:
    """Whether a processor with these features has exact products of bytes that are faster than of float32."""
    return "avx2" in set(features)


def precisions_of(features: Iterable[str]) -> tuple[str, ...]:
    """Return the precisions of a processor with these features, float32 first."""
    found = set(features)
    return tuple(precision for precision in DTYPES if not lacks(precision, found))
