"""Launch handwritten kernels through the driver API, in a process with the emulated GPU."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray

from anole.errors import TargetError
from kit.emulated_gpu.programs import compile_source


class _Launch(ctypes.Structure):
    """`CUlaunchConfig` of the driver API."""

    _fields_ = (
        *((f"{level}_{axis}", ctypes.c_uint) for level in ("grid", "block") for axis in "xyz"),
        ("dynamic_shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("n_attributes", ctypes.c_uint),
    )


def launch(
    source: str,
    kernel: str,
    grid: Sequence[int],
    block: Sequence[int],
    arguments: Sequence[NDArray[Any]],
    dynamic_shared_bytes: int = 0,
) -> list[NDArray[Any]]:
    """Compile CUDA C++, launch one kernel, whose parameters are pointers, and return its arguments after the run.

    Raises:
        TargetError: the source does not compile, or the device finds a fault, which the message describes.
    """
    driver, module, function = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_void_p()
    binary = bytes(compile_source(source))
    _check(driver, driver.cuModuleLoadData(ctypes.byref(module), binary))
    _check(driver, driver.cuModuleGetFunction(ctypes.byref(function), module, kernel.encode()))
    tensors = [tvm.runtime.tensor(np.ascontiguousarray(array), tvm.cuda()) for array in arguments]
    addresses = [ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors]
    pointers = (ctypes.c_void_p * len(addresses))(*(ctypes.addressof(address) for address in addresses))
    config = _Launch(*grid, *block, dynamic_shared_bytes)
    status = driver.cuLaunchKernelEx(ctypes.byref(config), function, pointers, None)
    try:
        _check(driver, status)
        return [tensor.numpy() for tensor in tensors]
    finally:
        driver.cuModuleUnload(module)


def _check(driver: ctypes.CDLL, status: int) -> None:
    if status:
        text = ctypes.c_char_p()
        driver.cuGetErrorString(status, ctypes.byref(text))
        raise TargetError((text.value or b"").decode())
