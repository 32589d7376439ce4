"""Mutants of OpenCL kernels: a barrier deleted, or one access to shared or global memory off by one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

Mutate = Callable[[str], str]

_BARRIER = "barrier(CLK_LOCAL_MEM_FENCE);"
_SHARED = re.compile(r"__local float (\w+)\[")
_GLOBAL = re.compile(r"__global float\* restrict (\w+)")


def without_barriers(source: str) -> Iterator[str]:
    """Every mutant that lacks one barrier."""
    first, *others = source.split(_BARRIER)
    for deleted in range(len(others)):
        yield first + "".join(f"{';' if at == deleted else _BARRIER}{part}" for at, part in enumerate(others))


def off_by_one(source: str) -> Iterator[tuple[str, str]]:
    """Mutants in which the first or the last access to one buffer is to the value after; with what was changed."""
    for name in dict.fromkeys([*_GLOBAL.findall(source), *_SHARED.findall(source)]):
        accesses = [*re.finditer(rf"\b{name}(\[| \+ )", source)]
        accesses = [access for access in accesses if not source[: access.start()].endswith("__local float ")]
        for which, access in {"first": accesses[0], "last": accesses[-1]}.items():
            yield f"{which} {name}", f"{source[: access.start()]}({name} + 1){source[access.end(0) - len(access[1]) :]}"
