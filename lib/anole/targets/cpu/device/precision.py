"""The precisions in which a CPU may multiply, and the features that they require."""

from __future__ import annotations

from collections.abc import Iterable

from anole.task import Bits

FLOAT32, BF16, INT8 = "float32", "bf16", "int8"

UINT8 = "uint8"
"""The type of data whose values are known to be 8-bit integers."""

DTYPES = {FLOAT32: "float32", BF16: "bfloat16", INT8: "float32"}
"""The type to which a network's float32 values are rounded before they are multiplied, by precision.

Accumulators are float32. With int8, the network itself is quantized; its integer products are detected on import.
"""

STORED_WEIGHTS: dict[str, tuple[Bits, int | None]] = {"int8": (8, None), "int4": (4, 32)}
"""The bits and the block size of weight-only quantization, by type; None for one block per column."""

REQUIRED_FEATURES = {
    FLOAT32: (frozenset[str](),),
    BF16: (frozenset({"avx512_bf16", "avx512vl"}), frozenset({"avx512f", "amx_tile", "amx_bf16"})),
    INT8: (frozenset({"avx2"}),),
}
"""Alternative sets of features with which a precision is faster than float32; vector features come first."""


FEATURES_FOR_8_BITS = frozenset({"avx_vnni", "avx512_vnni", "amx_tile", "amx_int8"})
"""Optional features that speed up 8-bit products."""


def missing_features(precision: str, features: Iterable[str]) -> list[str]:
    """Return the missing features without which a precision would be slower than float32; none if it is supported."""
    missing, *alternatives = (sorted(needed - set(features)) for needed in REQUIRED_FEATURES[precision])
    return missing if all(alternatives) else []


def has_8bit_products(features: Iterable[str]) -> bool:
    """Whether a CPU with these features has exact 8-bit products that are faster than float32."""
    return "avx2" in set(features)


def precisions_of(features: Iterable[str]) -> tuple[str, ...]:
    """Return the precisions that a CPU with these features supports, float32 first."""
    available = set(features)
    return tuple(precision for precision in DTYPES if not missing_features(precision, available))
