"""The instruction-set levels that a library has kernels for, and the `cpuid` bits that detect them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm.target import codegen

from anole.errors import ExportError
from anole.targets import get_device

GENERIC = ("x86-64-v4", "x86-64-v3", "x86-64-v2")
"""The levels that any library may have in addition to the build's own, best first."""

TUNED = "tuned"

_EAX, _EBX, _ECX, _EDX = range(4)

_REGISTERS: dict[tuple[int, int, int], dict[str, int]] = {
    (1, 0, _ECX): {
        "sse3": 0, "pclmul": 1, "ssse3": 9, "fma": 12, "cx16": 13, "sse4.1": 19, "sse4.2": 20, "movbe": 22,
        "popcnt": 23, "aes": 25, "avx": 28, "f16c": 29,
    },
    (7, 0, _EBX): {
        "bmi": 3, "avx2": 5, "bmi2": 8, "avx512f": 16, "avx512dq": 17, "avx512ifma": 21, "avx512cd": 28, "sha": 29,
        "avx512bw": 30, "avx512vl": 31,
    },
    (7, 0, _ECX): {
        "avx512vbmi": 1, "avx512vbmi2": 6, "gfni": 8, "vaes": 9, "vpclmulqdq": 10, "avx512vnni": 11,
        "avx512bitalg": 12, "avx512vpopcntdq": 14,
    },
    (7, 0, _EDX): {"avx512vp2intersect": 8, "avx512fp16": 23},
    (7, 1, _EAX): {"avxvnni": 4, "avx512bf16": 5, "avxifma": 23},
    (7, 1, _EDX): {"avxvnniint8": 4, "avxneconvert": 5, "avxvnniint16": 10},
    (0x80000001, 0, _ECX): {"sahf": 0, "lzcnt": 5, "sse4a": 6, "xop": 11, "fma4": 16, "tbm": 21},
}  # fmt: skip
"""The bits of the LLVM features that kernels may use, by the ``cpuid`` register that reports them: leaf, sub-leaf,
number of the register."""

_BITS = {name: (*register, bit) for register, bits in _REGISTERS.items() for name, bit in bits.items()}


@dataclass(frozen=True)
class Level:
    """An instruction-set level: its name, the target description of a CPU that has it, and its LLVM features."""

    name: str
    description: Mapping[str, Any]
    features: frozenset[str]

    @property
    def identifier(self) -> str:
        """Its name as part of a C identifier."""
        return "".join(letter if letter.isalnum() else "_" for letter in self.name)

    @property
    def bits(self) -> list[tuple[int, int, int, int]]:
        """The bits that ``cpuid`` must report: leaf, sub-leaf, register and bit."""
        return sorted(_BITS[feature] for feature in self.features)


def choose_levels(description: Mapping[str, Any], wanted: Sequence[str] = ()) -> list[Level]:
    """Return the wanted levels of a library, by default all, in the order in which the library tries them.

    Raises:
        ExportError: the CPU does not support x86-64-v2, or a wanted level is not available for this build.
    """
    tuned = _level(description)
    lower = [_level({**description, "mcpu": name, "features": ()}) for name in GENERIC]
    if lower[-1].features - tuned.features:
        raise ExportError(f"found a build for {tuned.name}; only builds for x86-64-v2 and better can be exported")
    levels = [tuned, *(level for level in lower if level.features < tuned.features)]
    names = [tuned.name if name == TUNED else name for name in wanted]
    for name in names:
        if name not in (allowed := [level.name for level in levels]):
            raise ExportError(f"found level {name}; this build can have {TUNED} and {', '.join(allowed)}")
    return [level for level in levels if not names or level.name in names]


def _level(description: Mapping[str, Any]) -> Level:
    features = codegen.llvm_get_cpu_features(get_device(description).compiler_target())
    return Level(description["mcpu"], description, frozenset(map(str, features)) & _BITS.keys())
