"""NVIDIA's architectures: their names, and the limits that no kernel exceeds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from anole.errors import TargetError
from anole.targets.cuda.device.gpus import present_gpus

ARCHITECTURES = (
    *("sm_70", "sm_72", "sm_75", "sm_80", "sm_86", "sm_87", "sm_89", "sm_90"),
    *("sm_100", "sm_103", "sm_120", "sm_121"),
)
"""From Volta to Blackwell, all of which have the same limits for one block of threads."""


@dataclass(frozen=True)
class Limits:
    """What one block of threads may take, and how many blocks there may be.

    Attributes:
        warp_size: threads that run in step; a block of fewer leaves lanes idle.
        threads_per_block: at most.
        threads_z: at most, along ``threadIdx.z``.
        shared_bytes_per_block: of memory that is allocated statically.
        registers_per_block: of 32 bits each; a multiprocessor has no more.
        registers_per_thread: what an instruction can name.
        virtual_threads: along one axis, as many as TVM unrolls; accumulators of more are indexed by a loop, which
            takes them out of the registers.
        grid_x: blocks along ``blockIdx.x``.
        grid_y: blocks along ``blockIdx.y``.
    """

    warp_size: int = 32
    threads_per_block: int = 1024
    threads_z: int = 64
    shared_bytes_per_block: int = 48 << 10
    registers_per_block: int = 1 << 16
    registers_per_thread: int = 255
    virtual_threads: int = 15
    grid_x: int = (1 << 31) - 1
    grid_y: int = (1 << 16) - 1

    def to_json(self) -> dict[str, int]:
        """Returns the plain form, as in a description."""
        return asdict(self)

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Self:
        """Returns the limits that `to_json` made plain."""
        return cls(**plain)


def describe_cuda(arch: object = None, model: object = None) -> dict[str, Any]:
    """Returns the whole description of a GPU as a target, which enters the keys of tasks.

    GPUs of one architecture differ in speed, so that what is measured on one is kept apart by its model's name.

    Args:
        arch: such as ``sm_90``; that of the first GPU of this machine when None.
        model: such as ``NVIDIA H200``; when None, that of the same GPU or, where `arch` is given, any.

    Raises:
        TargetError: the architecture is unknown, or none was given and there is no GPU.
    """
    if arch is None:
        gpu = next((gpu for gpu in present_gpus() if model in (None, gpu.name)), None)
        if gpu is None:
            wanted = "GPU" if model is None else repr(model)
            raise TargetError(f"found no {wanted} on this machine (by nvidia-smi); give an `arch`, such as sm_90")
        arch, model = gpu.architecture, gpu.name
    if arch not in ARCHITECTURES:
        raise TargetError(f"arch: found {arch!r}; allowed are {', '.join(ARCHITECTURES)}")
    named = {} if model is None else {"model": model}
    return {"kind": "cuda", "arch": arch, **named, "limits": Limits().to_json()}
