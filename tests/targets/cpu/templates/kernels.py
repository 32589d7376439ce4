"""Schedules, builds and runs kernels of the CPU's templates for tests."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from anole.record import Config
from anole.space import Space
from anole.targets.base import Template
from anole.targets.cpu.device import builder
from anole.targets.cpu.device.runner import CpuRunner
from anole.targets.cpu.device.vector_unit import VectorUnit
from anole.targets.cpu.settings import describe_cpu
from anole.targets.shared.kernel import define
from anole.task import Workload

PROCESSOR = {**describe_cpu(), "threads": 2}
UNIT = VectorUnit.of(PROCESSOR)
AVX512, AVX2, NEON = VectorUnit(16, 32), VectorUnit(8, 16), VectorUnit(4, 32)
UNITS = {"avx512": AVX512, "avx2": AVX2, "neon": NEON}


def drawn(space: Space, seed: int = 0, **values: Any) -> Config:
    """A random valid config of those with some values."""
    restricted = space.restricted({name: [value] for name, value in values.items()})
    return restricted.config(restricted.sample(1, np.random.default_rng(seed))[0])


def text_of(template: Template, workload: Workload, config: Config) -> str:
    """A scheduled kernel."""
    return str(template.schedule(define(template, workload, config), workload, config).script())


def error_of(template: Template, workload: Workload, config: Config) -> float:
    """How far a built kernel's answer is from the reference."""
    with TemporaryDirectory() as folder:
        artifact = Path(folder) / "kernel.so"
        builder.build(template, workload, config, PROCESSOR, artifact)
        return CpuRunner(template, workload, cold_bytes=0).load(artifact, config).relative_error()
