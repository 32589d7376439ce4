"""The settings of a GPU target in models.yaml, and the description made from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from anole.errors import TargetError
from anole.node import Node
from anole.targets.base import DeviceLocation
from anole.targets.kind import CONSTRAINED, Inventory, Kind, check_space, described_space, plain_values
from anole.targets.rpc.address import Remote
from anole_cuda.device.architecture import ARCHITECTURES, BlockLimits
from anole_cuda.device.machine import compilers, present_gpus

if TYPE_CHECKING:
    from anole_cuda.target import CudaTarget

_KEYS = ("arch", "model", "space")


def read_settings(node: Node, remote: Remote | None) -> dict[str, Any]:
    """Read an entry of ``targets``, whose candidates are measured on this machine or another one.

    Raises:
        SpecError: a value is not allowed, or `arch` is missing for a remote GPU, which cannot be detected.
    """
    entry = node.mapping()
    for name in ("arch", "model"):
        if name in entry:
            entry[name].text()
    check_space(entry)
    if remote is not None and "arch" not in entry:
        raise node.error("has no `arch`; a GPU measured elsewhere (`measure`) cannot be detected")
    return plain_values(node, _KEYS)


def describe_cuda(arch: object = None, model: object = None, space: str = CONSTRAINED) -> dict[str, Any]:
    """Return the full description of a GPU as a target; it is part of the keys of tasks.

    GPUs of one architecture differ in speed, so the model's name separates their measurements.

    Args:
        arch: such as ``sm_90``; None for the architecture of this machine's first GPU.
        model: such as ``NVIDIA H200``; None for the model of the same GPU or, if `arch` is given, any model.
        space: ``constrained``, or ``open`` for spaces without constraints; part of the description if not the default.

    Raises:
        TargetError: the architecture is unknown, or none was given and there is no GPU.
    """
    if arch is None:
        gpu = next((gpu for gpu in present_gpus() if model in (None, gpu.name)), None)
        if gpu is None:
            required = "GPU" if model is None else repr(model)
            raise TargetError(f"found no {required} on this machine (by nvidia-smi); set `arch`, such as sm_90")
        arch, model = gpu.architecture, gpu.name
    if arch not in ARCHITECTURES:
        raise TargetError(f"arch: unknown value {arch!r}; use one of {', '.join(ARCHITECTURES)}")
    model_entry = {} if model is None else {"model": model}
    return {"kind": "cuda", "arch": arch, **model_entry, "limits": asdict(BlockLimits()), **described_space(space)}


def _target(description: Mapping[str, Any]) -> CudaTarget:
    from anole_cuda.target import CudaTarget

    return CudaTarget(description)


def _inventory() -> Inventory:
    gpus = present_gpus()
    facts = {
        "CUDA compilers": compilers(),
        "GPU": ", ".join(map(str, gpus)) or "none; CUDA kernels can be compiled, but not measured",
    }
    architectures = sorted({gpu.architecture for gpu in gpus} & set(ARCHITECTURES))
    return Inventory(facts, {f"GPU {arch}": describe_cuda(arch) for arch in architectures})


KIND = Kind(
    _KEYS,
    read_settings,
    describe_cuda,
    _target,
    detected=("arch",),
    location=DeviceLocation.GPU,
    measurable_elsewhere=True,
    inventory=_inventory,
    finer_tiles="anole.targets.shared.output_tiles:finer_tiles",
)
