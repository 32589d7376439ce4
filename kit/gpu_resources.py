"""The registers, shared memory and spills of compiled kernels, from NVRTC binaries; needs neither nvcc nor a GPU."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from anole.errors import TargetError
from anole_cuda.device.builder import prepare_to_compile
from anole_cuda.device.gpu_specs import GpuSpecs

_REGISTERS, _FRAME = 0x2F, 0x11
"""Kinds of attributes in section ``.nv.info`` that have a kernel's symbol, and its registers or stack bytes."""

_SHARED, _RESERVED, _RESERVED_BYTES = ".nv.shared.", ".nv.shared.reserved.", 1 << 10
"""Prefixes of the sections for the shared memory of kernels and of the system, and the size of the system's part."""

_SIZED = 4
"""The format of an attribute with the size of its value in the header."""


@dataclass(frozen=True)
class Resources:
    """The maximum of each resource over the kernels of one source.

    Attributes:
        registers: the registers of one thread.
        shared_bytes: the shared memory of one block, allocated statically.
        local_bytes: local memory of one thread in bytes: spilled registers, and arrays with computed indices.
    """

    registers: int
    shared_bytes: int
    local_bytes: int

    def occupancy(self, arch: str, threads: int) -> float:
        """Return the occupancy with blocks of `threads`: the share of a multiprocessor's warps that are resident."""
        gpu = GpuSpecs.of(arch)
        blocks = gpu.resident_blocks(threads, self.registers, self.shared_bytes)
        return float(blocks * -(-threads // gpu.warp) / gpu.warps)


def resources_of(source: str, arch: str) -> Resources:
    """Compile CUDA C++ for an architecture, as candidates are compiled, and return the resources of its kernels.

    Raises:
        TargetError: NVRTC rejects the source or the architecture; the message includes its output.
    """
    prepare_to_compile()
    from tvm.support.nvcc import compile_cuda

    try:
        binary = bytes(compile_cuda(source, "cubin", arch, compiler="nvrtc"))
    except RuntimeError as error:
        raise TargetError(f"NVRTC rejects the source: {str(error).strip()[-2000:]}") from error
    return read_resources(binary)


def read_resources(binary: bytes) -> Resources:
    """Return the resources of the kernels in a binary, an ELF file from NVIDIA's assembler.

    NVIDIA does not document the sections; they are interpreted as in cuobjdump and open disassemblers.
    """
    sections = list(_sections(binary))
    attributes = [pair for name, data, _ in sections if name == ".nv.info" for pair in _attributes(data)]

    def maximum(attribute: int) -> int:
        values = [struct.unpack("<II", value)[1] for kind, value in attributes if kind == attribute]
        return max(values, default=0)

    shared = {name: size for name, _, size in sections if name.startswith(_SHARED)}
    # From Hopper on, binaries have a section for memory reserved by the system, and include it in each kernel's size.
    reserved = _RESERVED_BYTES if any(name.startswith(_RESERVED) for name in shared) else 0
    sizes = [size - reserved for name, size in shared.items() if not name.startswith(_RESERVED)]
    return Resources(maximum(_REGISTERS), max(sizes, default=0), maximum(_FRAME))


def _sections(binary: bytes) -> Iterator[tuple[str, bytes, int]]:
    """Yield the name, content and size of each section of a 64-bit ELF file; some sections have no content."""
    (table,) = struct.unpack_from("<Q", binary, 0x28)
    entry_bytes, n_sections, names_index = struct.unpack_from("<HHH", binary, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", binary, table + entry_bytes * i) for i in range(n_sections)]
    names = headers[names_index][4]
    for name, _, _, _, begin, size in headers:
        end = binary.index(b"\0", names + name)
        yield binary[names + name : end].decode(), binary[begin : begin + size], size


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the kind and value of each attribute in a section ``.nv.info`` whose format is `_SIZED`."""
    position = 0
    while position < len(data):
        form, kind, size = struct.unpack_from("<BBH", data, position)
        position += 4
        if form == _SIZED:
            yield kind, data[position : position + size]
            position += size
