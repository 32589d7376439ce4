"""The CPU: its features, its name in Linux, and its name in LLVM (`mcpu`)."""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from anole.errors import MachineError

_V2 = frozenset("cx16 popcnt sse4_1 sse4_2 ssse3".split())
_V3 = _V2 | frozenset("avx avx2 bmi1 bmi2 f16c fma movbe".split())
_V4 = _V3 | frozenset("avx512f avx512bw avx512cd avx512dq avx512vl".split())
_ICELAKE = _V4 | frozenset("avx512_vnni avx512_vbmi2 avx512_bitalg avx512ifma avx512vbmi".split())
_SAPPHIRE = _ICELAKE | frozenset("avx512_bf16 avx512_fp16 avx_vnni".split())

_X86_REQUIRED_FLAGS: dict[str, frozenset[str]] = {
    "x86-64-v4": _V4,
    "x86-64-v3": _V3,
    "x86-64-v2": _V2,
    "x86-64": frozenset(),
    **dict.fromkeys(("znver1", "znver2", "znver3"), _V3),
    "znver4": _ICELAKE | {"avx512_bf16"},
    "znver5": _ICELAKE | {"avx512_bf16", "avx_vnni"},
    **dict.fromkeys(("haswell", "broadwell", "skylake"), _V3),
    "skylake-avx512": _V4,
    "cascadelake": _V4 | {"avx512_vnni"},
    "cooperlake": _V4 | {"avx512_vnni", "avx512_bf16"},
    **dict.fromkeys(("icelake-client", "icelake-server", "rocketlake", "tigerlake"), _ICELAKE),
    **dict.fromkeys(("alderlake", "raptorlake", "meteorlake", "arrowlake", "lunarlake", "sierraforest"), _V3),
    **dict.fromkeys(("sapphirerapids", "emeraldrapids", "graniterapids"), _SAPPHIRE),
}
"""CPU flags that code for each LLVM processor requires, as spelled in /proc/cpuinfo."""

_GENERIC = ("x86-64-v4", "x86-64-v3", "x86-64-v2", "x86-64")

_AARCH64 = (
    "generic",
    *(f"cortex-{core}" for core in ("a53", "a55", "a57", "a72", "a76", "a78", "x1", "x2", "x3", "x4", "x925")),
    *(f"neoverse-{core}" for core in ("n1", "n2", "n3", "v1", "v2", "v3")),
    "grace",
    "a64fx",
    "ampere1",
    "ampere1a",
    "thunderx2t99",
)

_FEATURES = tuple(
    "sse4_2 avx f16c fma avx2 avx_vnni "
    "avx512f avx512bw avx512cd avx512dq avx512vl avx512_vnni avx512_bf16 avx512_fp16 "
    "amx_tile amx_int8 amx_bf16 asimd asimdhp asimddp bf16 i8mm sve sve2".split()
)

LOW_PRECISION_FEATURES = frozenset(
    "avx_vnni avx512_vnni avx512_bf16 avx512_fp16 amx_tile amx_int8 amx_bf16 asimdhp asimddp bf16 i8mm".split()
)
"""Features with instructions for int8, float16 or bfloat16."""

_LLVM_NAMES = {
    **{name: name for name in "avx f16c fma avx2 avx512f avx512bw avx512cd avx512dq avx512vl".split()},
    "sse4_2": "sse4.2",
    "avx_vnni": "avxvnni",
    "avx512_vnni": "avx512vnni",
    "avx512_bf16": "avx512bf16",
    "avx512_fp16": "avx512fp16",
}
"""LLVM's names of features that it uses automatically; AMX is missing because it requires intrinsics."""


@dataclass(frozen=True)
class Processor:
    """A CPU as Linux describes it.

    Attributes:
        architecture: as in `platform.machine`, such as ``x86_64``.
        family, model: numbers of the x86 CPU; 0 on other architectures.
        name: readable name, which is part of a target's identity.
        flags: as spelled in /proc/cpuinfo.
    """

    architecture: str
    vendor: str
    family: int
    model: int
    name: str
    flags: frozenset[str]

    @cached_property
    def mcpu(self) -> str:
        """LLVM's name of an x86 CPU, the best generic name if it is unknown or a flag is missing, or ``generic``."""
        if self.architecture not in ("x86_64", "AMD64"):
            return "generic"
        names = (self._family_name(), *_GENERIC)
        return next(name for name in names if name is not None and not self.missing_features(name))

    @property
    def features(self) -> list[str]:
        """The vector extensions that affect the speed of kernels, in a fixed order."""
        return [feature for feature in _FEATURES if feature in self.flags]

    def missing_features(self, mcpu: str) -> list[str]:
        """Return the flags that code for an LLVM processor requires and this CPU does not have."""
        return sorted(_X86_REQUIRED_FLAGS.get(mcpu, frozenset()) - self.flags)

    def _family_name(self) -> str | None:
        if self.vendor == "AuthenticAMD":
            return _amd_name(self.family, self.model)
        if self.vendor == "GenuineIntel" and self.family == 6:
            return _intel_name(self.model, self.flags)
        return None


def processor(cpuinfo: str | None = None, architecture: str | None = None) -> Processor:
    """Return this machine's CPU, or the CPU that a text of /proc/cpuinfo describes.

    For tests, the environment variable ``ANOLE_CPUINFO`` names a file to read instead of /proc/cpuinfo. Flags that the
    real CPU does not have are dropped, so code for the described CPU runs on this machine.

    Raises:
        MachineError: that file cannot be read.
    """
    architecture = architecture or platform.machine()
    if cpuinfo is not None:
        return _parse(cpuinfo, architecture)
    path = Path("/proc/cpuinfo")
    actual = _drop_forbidden_amx(_parse(path.read_text(encoding="utf-8") if path.exists() else "", architecture))
    cpuinfo_path = os.environ.get("ANOLE_CPUINFO")
    if not cpuinfo_path:
        return actual
    try:
        override = _parse(Path(cpuinfo_path).read_text(encoding="utf-8"), architecture)
    except (OSError, UnicodeDecodeError) as error:
        raise MachineError(f"ANOLE_CPUINFO: cannot read {cpuinfo_path}: {error}") from error
    return replace(override, flags=override.flags & actual.flags)


def _parse(cpuinfo: str, architecture: str) -> Processor:
    lines = (line.partition(":") for line in cpuinfo.partition("\n\n")[0].splitlines())
    facts = {key.strip(): value.strip() for key, _, value in lines}
    arm = " ".join(facts[key] for key in ("CPU implementer", "CPU part") if key in facts)
    return Processor(
        architecture=architecture,
        vendor=facts.get("vendor_id", ""),
        family=int(facts.get("cpu family", 0)),
        model=int(facts.get("model", 0)),
        name=facts.get("model name") or arm or platform.processor() or architecture,
        flags=frozenset((facts.get("flags") or facts.get("Features") or "").split()),
    )


def _drop_forbidden_amx(cpu: Processor) -> Processor:
    """Drop the AMX flags if this process may not use AMX; old kernels list the flags even then."""
    flags = frozenset(flag for flag in cpu.flags if flag.startswith("amx_"))
    return replace(cpu, flags=cpu.flags - flags) if flags and not _may_use_tiles() else cpu


def _may_use_tiles() -> bool:
    """Request permission to use AMX tiles for this process; return whether it was granted."""
    arch_prctl, request, tile_data = 158, 0x1023, 18
    return not ctypes.CDLL(None).syscall(arch_prctl, request, tile_data)


def known_processors(architecture: str | None = None) -> tuple[str, ...]:
    """Return the possible values of `mcpu` on an architecture, by default this machine's."""
    return tuple(_X86_REQUIRED_FLAGS) if (architecture or platform.machine()) in ("x86_64", "AMD64") else _AARCH64


def features_of(mcpu: str) -> list[str]:
    """Return the vector extensions that every CPU with this LLVM name has, in a fixed order."""
    flags = _X86_REQUIRED_FLAGS.get(mcpu, frozenset({"asimd"}))
    return [feature for feature in _FEATURES if feature in flags]


def llvm_attributes(mcpu: str, features: Iterable[str]) -> list[str]:
    """Return LLVM attributes, such as ``+avx512bf16``, for features that vary between CPUs with an LLVM name."""
    extra_features = [feature for feature in features if feature not in features_of(mcpu)]
    return [f"+{_LLVM_NAMES[feature]}" for feature in extra_features if feature in _LLVM_NAMES]


def _amd_name(family: int, model: int) -> str | None:
    if family == 23:
        return "znver1" if model < 0x30 else "znver2"
    if family == 25:
        zen4 = 0x10 <= model <= 0x1F or 0x60 <= model <= 0x7F or 0xA0 <= model <= 0xAF
        return "znver4" if zen4 else "znver3"
    if family == 26:
        return "znver5"
    return None


def _intel_name(model: int, flags: frozenset[str]) -> str | None:
    if model == 0x55:
        return "cooperlake" if "avx512_bf16" in flags else "cascadelake" if "avx512_vnni" in flags else "skylake-avx512"
    models = {
        "haswell": (0x3C, 0x3F, 0x45, 0x46),
        "broadwell": (0x3D, 0x47, 0x4F, 0x56),
        "skylake": (0x4E, 0x5E, 0x8E, 0x9E, 0xA5, 0xA6),
        "icelake-client": (0x7D, 0x7E),
        "icelake-server": (0x6A, 0x6C),
        "rocketlake": (0xA7,),
        "tigerlake": (0x8C, 0x8D),
        "alderlake": (0x97, 0x9A),
        "raptorlake": (0xB7, 0xBA, 0xBF),
        "meteorlake": (0xAA, 0xAC),
        "arrowlake": (0xB5, 0xC5, 0xC6),
        "lunarlake": (0xBD,),
        "sapphirerapids": (0x8F,),
        "emeraldrapids": (0xCF,),
        "graniterapids": (0xAD, 0xAE),
        "sierraforest": (0xAF,),
    }
    return next((name for name, numbers in models.items() if model in numbers), None)
