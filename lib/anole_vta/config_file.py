"""VTA's own description of an accelerator: vta_config.json."""

from __future__ import annotations

from typing import Any

from anole_vta.geometry import Geometry


def vta_config(geometry: Geometry) -> dict[str, Any]:
    """Return the content of the file, with binary logarithms of sizes in bytes and of widths in bits.

    VTA has one block size for input and output channels (``LOG_BLOCK``); VTA++ has one for each, and the width of its
    memory bus. The queues, and the bus of VTA, are not part of the file.
    """
    blocks = {"LOG_BLOCK_IN": _log2(geometry.block_in), "LOG_BLOCK_OUT": _log2(geometry.block_out)}
    if geometry.variant == "vta" and geometry.block_in == geometry.block_out:
        blocks = {"LOG_BLOCK": _log2(geometry.block_in)}
    bus = {name: 8 * geometry.bus_bytes for name in ("SHL_MEM_AXI_DATA_BITS", "DPI_DATA_BITS")}
    return {
        "TARGET": "sim",
        "HW_VER": "0.0.2",
        "LOG_INP_WIDTH": 3,
        "LOG_WGT_WIDTH": 3,
        "LOG_ACC_WIDTH": 5,
        "LOG_BATCH": _log2(geometry.batch),
        **blocks,
        "LOG_UOP_BUFF_SIZE": _log2(geometry.uop_bytes),
        "LOG_INP_BUFF_SIZE": _log2(geometry.inp_bytes),
        "LOG_WGT_BUFF_SIZE": _log2(geometry.wgt_bytes),
        "LOG_ACC_BUFF_SIZE": _log2(geometry.acc_bytes),
        **(bus if geometry.variant == "vta++" else {}),
    }


def _log2(number: int) -> int:
    """Return the binary logarithm of a power of two."""
    return number.bit_length() - 1
