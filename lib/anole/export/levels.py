"""The levels of instructions that a library has kernels for, and what tells whether a processor has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm.target import codegen

from anole.errors import ExportError
from anole.targets.cpu.device.builder import llvm_target

GENERIC = ("x86-64-v4", "x86-64-v3", "x86-64-v2")
"""The levels that every library may have beside the one that the build was tuned for, the best first."""

TUNED = "tuned"

_EAX, _EBX, _ECX, _EDX = range(4)

_BITS: dict[str, tuple[int, int, int, int]] = {
    "sse3": (1, 0, _ECX, 0),
    "pclmul": (1, 0, _ECX, 1),
    "ssse3": (1, 0, _ECX, 9),
    "fma": (1, 0, _ECX, 12),
    "cx16": (1, 0, _ECX, 13),
    "sse4.1": (1, 0, _ECX, 19),
    "sse4.2": (1, 0, _ECX, 20),
    "movbe": (1, 0, _ECX, 22),
    "popcnt": (1, 0, _ECX, 23),
    "aes": (1, 0, _ECX, 25),
    "avx": (1, 0, _ECX, 28),
    "f16c": (1, 0, _ECX, 29),
    "bmi": (7, 0, _EBX, 3),
    "avx2": (7, 0, _EBX, 5),
    "bmi2": (7, 0, _EBX, 8),
    "avx512f": (7, 0, _EBX, 16),
    "avx512dq": (7, 0, _EBX, 17),
    "avx512ifma": (7, 0, _EBX, 21),
    "avx512cd": (7, 0, _EBX, 28),
    "sha": (7, 0, _EBX, 29),
    "avx512bw": (7, 0, _EBX, 30),
    "avx512vl": (7, 0, _EBX, 31),
    "avx512vbmi": (7, 0, _ECX, 1),
    "avx512vbmi2": (7, 0, _ECX, 6),
    "gfni": (7, 0, _ECX, 8),
    "vaes": (7, 0, _ECX, 9),
    "vpclmulqdq": (7, 0, _ECX, 10),
    "avx512vnni": (7, 0, _ECX, 11),
    "avx512bitalg": (7, 0, _ECX, 12),
    "avx512vpopcntdq": (7, 0, _ECX, 14),
    "avx512vp2intersect": (7, 0, _EDX, 8),
    "avx512fp16": (7, 0, _EDX, 23),
    "avxvnni": (7, 1, _EAX, 4),
    "avx512bf16": (7, 1, _EAX, 5),
    "avxifma": (7, 1, _EAX, 23),
    "avxvnniint8": (7, 1, _EDX, 4),
    "avxneconvert": (7, 1, _EDX, 5),
    "avxvnniint16": (7, 1, _EDX, 10),
    "sahf": (0x80000001, 0, _ECX, 0),
    "lzcnt": (0x80000001, 0, _ECX, 5),
    "sse4a": (0x80000001, 0, _ECX, 6),
    "xop": (0x80000001, 0, _ECX, 11),
    "fma4": (0x80000001, 0, _ECX, 16),
    "tbm": (0x80000001, 0, _ECX, 21),
}
"""LLVM's features that compute on data, so that any kernel may contain them, and where ``cpuid`` tells of each: leaf,
sub-leaf, number of the register, bit."""


@dataclass(frozen=True)
class Level:
    """A set of instructions: its name, a processor that has it, as a target, and LLVM's names of what it adds."""

    name: str
    description: Mapping[str, Any]
    features: frozenset[str]

    @property
    def identifier(self) -> str:
        """Its name as a part of names in C."""
        return "".join(letter if letter.isalnum() else "_" for letter in self.name)

    @property
    def bits(self) -> list[tuple[int, int, int, int]]:
        """What ``cpuid`` must say: leaf, sub-leaf, register and bit."""
        return sorted(_BITS[feature] for feature in self.features)


def choose_levels(description: Mapping[str, Any], wanted: Sequence[str] = ()) -> list[Level]:
    """Returns the levels of a library, those that are wanted or all, in the order in which it tries them.

    Raises:
        ExportError: the processor is no x86-64, or the library cannot have a level that is wanted.
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
    known = codegen.llvm_get_cpu_features(llvm_target(description))
    return Level(description["mcpu"], description, frozenset(map(str, known)) & _BITS.keys())
