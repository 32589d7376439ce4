"""Describes the kernels of a lowered network: how often each is called, its layers, its operations and traffic."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import tvm
from tvm import ir, relax, tirx
from tvm_ffi import dtype

from anole.compile.lower import WORKLOAD
from anole.compile.passes.concat import WRITTEN_BYTES
from anole.documents.build import BuiltKernel
from anole.extract.graph import Layer
from anole.task import Workload, workload_from_json


@dataclass(frozen=True)
class Kernel:
    """One function of a network, which may be called at several places.

    Attributes:
        name: the function's name in the library.
        calls: number of calls in one run of the network.
        workload: the workload of its anchor operator, if it has one.
        layers: the layers that have this anchor, one for each call.
        size_bytes: bytes that one call reads and writes if it touches every element of its operands once.
    """

    name: str
    calls: int
    workload: Workload | None
    layers: tuple[str, ...]
    size_bytes: int

    def built(self, task_keys: Mapping[Workload, str]) -> BuiltKernel:
        """Returns the kernel as in the build's description."""
        return BuiltKernel(
            name=self.name,
            calls=self.calls,
            task=None if self.workload is None else task_keys.get(self.workload),
            layers=tuple(self.layers),
            flop=0 if self.workload is None else self.workload.flop,
            size_bytes=self.size_bytes,
        )


def describe_kernels(module: tvm.IRModule, layers: Iterable[Layer]) -> list[Kernel]:
    """Returns the kernels of a lowered module, in the order of their first call.

    Args:
        module: the module that `anole.compile.lower.lower` returned.
        layers: the network's anchor operators, in the order of execution.
    """
    waiting: dict[Workload, list[str]] = {}
    for layer in layers:
        waiting.setdefault(layer.workload, []).append(layer.name)
    held: dict[Any, list[str]] = {}
    for variable in _called(module["main"]):
        workload = _workload(module[variable])
        names = waiting.get(workload, []) if workload is not None else []
        held.setdefault(variable, []).append(names.pop(0) if names else "")
    return [
        Kernel(
            name=str(variable.name_hint),
            calls=len(names),
            workload=_workload(module[variable]),
            layers=tuple(filter(None, names)),
            size_bytes=_size_bytes(module[variable]),
        )
        for variable, names in held.items()
    ]


def _called(main: relax.Function) -> Iterator[Any]:
    """Yields the functions that a network calls, in order, each as often as it is called."""
    for block in main.body.blocks:
        for binding in block.bindings:
            value = getattr(binding, "value", None)
            if isinstance(value, ir.Call) and isinstance(value.op, ir.Op) and "call_tir" in value.op.name:
                yield value.args[0]


def _workload(func: tirx.PrimFunc) -> Workload | None:
    text = func.attrs.get(WORKLOAD) if func.attrs else None
    return None if text is None else workload_from_json(json.loads(str(text)))


def _size_bytes(func: tirx.PrimFunc) -> int:
    sizes = [prod(map(int, param.ty.shape)) * dtype(str(param.ty.dtype)).itemsize for param in func.params]
    written = func.attrs.get(WRITTEN_BYTES) if func.attrs else None
    return sum(sizes) if written is None else sum(sizes[:-1]) + int(written)
