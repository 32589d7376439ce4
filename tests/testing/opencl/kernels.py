"""Hand-written kernels of one buffer, for the tests of what runs them."""

from __future__ import annotations

import numpy as np

from anole.testing.opencl.launches import Launch, Launches

SIZE = 64
INPUT = {"data": np.arange(SIZE, dtype=np.float32)}


def launches_of(body: str, threads: int = SIZE, *kernels: str) -> Launches:
    """One launch of a kernel with this body, or of each of the named kernels, from ``data`` to ``out``."""
    signature = "(__global float* restrict data_ptr, __global float* restrict out_ptr)"
    names = kernels or ("run",)
    source = "".join(f"__kernel void {name}{signature} {{ int i = get_local_id(0); {body} }}\n" for name in names)
    made = tuple(Launch(name, ("data", "out"), (1, 1, 1), (threads, 1, 1)) for name in names)
    return Launches(source, {"data": SIZE, "out": SIZE}, {}, made)
