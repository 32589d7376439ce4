"""A candidate's CUDA source, kernel by kernel."""

from __future__ import annotations

from anole.record import Config
from anole.targets.base import Template
from anole.targets.cuda.device.builder import source
from anole.targets.shared.kernel import define
from anole.task import Workload

from .workloads import TARGET


def source_of(template: Template, workload: Workload, config: Config) -> str:
    """The CUDA C++ of a candidate."""
    return source(template.schedule(define(template, workload, config), workload, config), TARGET.description)


def kernels_of(text: str) -> list[str]:
    """The definitions of the kernels in a source, in the order in which they are launched."""
    return [kernel for kernel in text.split('extern "C" __global__ ')[1:] if "{" in kernel]
