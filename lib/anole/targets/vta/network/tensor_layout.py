"""Packs tensors into the accelerator's blocked layouts and into a DRAM image."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anole.targets.vta.geometry import Geometry
from anole.targets.vta.isa import encode_uop
from anole.targets.vta.templates.program import Program


def pack_data(data: NDArray[Any], geometry: Geometry) -> NDArray[Any]:
    """Returns NHWC data as [N/B][C/BI][H][W][B][BI]."""
    return _blocked(data, geometry.batch, geometry.block_in)


def pack_weight(weight: NDArray[Any], geometry: Geometry) -> NDArray[Any]:
    """Returns HWIO weights as [CO/BO][CI/BI][KH][KW][BO][BI]."""
    kh, kw, ci, co = weight.shape
    bi, bo = geometry.block_in, geometry.block_out
    return weight.reshape(kh, kw, ci // bi, bi, co // bo, bo).transpose(4, 2, 0, 1, 5, 3)


def unpack_weight(weight: NDArray[Any]) -> NDArray[Any]:
    """Returns [CO/BO][CI/BI][KH][KW][BO][BI] weights as HWIO."""
    co, ci, kh, kw, bo, bi = weight.shape
    return weight.transpose(2, 3, 1, 5, 0, 4).reshape(kh, kw, ci * bi, co * bo)


def pack_bias(bias: NDArray[Any], geometry: Geometry) -> NDArray[Any]:
    """Returns a bias of shape (CO,) as [CO/BO][B][BO]."""
    blocks = bias.reshape(-1, 1, geometry.block_out)
    return np.broadcast_to(blocks, (len(blocks), geometry.batch, geometry.block_out))


def pack_out(out: NDArray[Any], geometry: Geometry) -> NDArray[Any]:
    """Returns an NHWC tensor as [N/B][CO/BO][OH][OW][B][BO]."""
    return _blocked(out, geometry.batch, geometry.block_out)


def unpack_out(out: NDArray[Any]) -> NDArray[Any]:
    """Returns [N/B][CO/BO][OH][OW][B][BO] as NHWC."""
    n, c, h, w, b, block = out.shape
    return out.transpose(0, 4, 2, 3, 1, 5).reshape(n * b, h, w, c * block)


def memory_image(program: Program, tensors: Mapping[str, NDArray[Any]]) -> NDArray[np.uint8]:
    """Returns DRAM with the packed tensors and the micro-operations of a program in their regions."""
    dram = np.zeros(max(region.address + region.size_bytes for region in program.regions.values()), np.uint8)
    uops = np.array([encode_uop(uop, program.geometry) for uop in program.uops], dtype="<u4")
    for name, tensor in {**tensors, "uop": uops}.items():
        region = program.regions[name]
        dram[region.address : region.address + region.size_bytes] = np.ascontiguousarray(tensor).view(np.uint8).ravel()
    return dram


def region_of(program: Program, dram: NDArray[np.uint8], name: str) -> NDArray[np.uint8]:
    """Returns the bytes of a region."""
    region = program.regions[name]
    return dram[region.address : region.address + region.size_bytes]


def _blocked(tensor: NDArray[Any], batch: int, block: int) -> NDArray[Any]:
    n, h, w, c = tensor.shape
    return tensor.reshape(n // batch, batch, h, w, c // block, block).transpose(0, 4, 2, 3, 1, 5)
