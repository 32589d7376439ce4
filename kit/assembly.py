"""Assembly of kernels, reduced to what must be equal."""

from __future__ import annotations

import re


def loop_instructions(assembly: str) -> str:
    """Returns the instructions of the parallel loops and of their launch, with LLVM's labels numbered."""
    kept: list[str] = []
    inside = False
    for line in assembly.splitlines():
        inside = (inside and not line.startswith(".Lfunc_end")) or line.startswith((".L__tvm_parallel", "main_compute"))
        instruction = line.partition("#")[0].strip()
        if inside and instruction and not re.match(r"\.(loc|cfi|file|Ltmp|Lfunc|L__unnamed)", instruction):
            kept.append(instruction)
    places: dict[str, str] = {}
    text = re.sub(r"\.L(?!__)\w+", lambda place: places.setdefault(place[0], f"place{len(places)}"), "\n".join(kept))
    return re.sub(r"(\.L__tvm_parallel_lambda)\.\d+", r"\1", text)
