"""Candidates compile faster than with a network's settings, to the same loops."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import tvm

from anole.targets import get_device
from anole.targets.cpu.device.builder import candidate_context
from anole.targets.cpu.settings import describe_cpu
from anole.targets.shared.kernel import define
from anole.task import BatchMatmul, Conv2d, Dense, Workload

TARGET = get_device(describe_cpu())
WORKLOADS = [
    Conv2d(1, 14, 14, 32, 64, (3, 3), padding=(1, 1, 1, 1)),
    Conv2d(1, 14, 14, 32, 32, (3, 3), padding=(1, 1, 1, 1), groups=32),
    Dense(2, 64, 100),
    BatchMatmul(2, 12, 8, 24),
]


@pytest.fixture(params=WORKLOADS, ids=lambda workload: workload.label)
def workload(request: pytest.FixtureRequest) -> Workload:
    return request.param


def assembly(workload: Workload, config: Mapping[str, Any], context: tvm.transform.PassContext) -> str:
    template = TARGET.template(workload)
    func = template.schedule(define(template, workload, config), workload, config)
    with context:
        target, pipeline = TARGET.compiler_target(), TARGET.compiler_pipeline()
        library = tvm.compile(tvm.IRModule({"main": func}), target, tir_pipeline=pipeline)
    return str(library.mod.inspect_source("s"))


def loop_instructions(assembly: str) -> str:
    """Return the instructions of the parallel loops and of their launch, with LLVM's labels renumbered."""
    kept: list[str] = []
    inside = False
    for line in assembly.splitlines():
        inside = (inside and not line.startswith(".Lfunc_end")) or line.startswith((".L__tvm_parallel", "main_compute"))
        instruction = line.partition("#")[0].strip()
        if inside and instruction and not re.match(r"\.(loc|cfi|file|Ltmp|Lfunc|L__unnamed)", instruction):
            kept.append(instruction)
    labels: dict[str, str] = {}
    text = re.sub(r"\.L(?!__)\w+", lambda label: labels.setdefault(label[0], f"label{len(labels)}"), "\n".join(kept))
    return re.sub(r"(\.L__tvm_parallel_lambda)\.\d+", r"\1", text)


@pytest.mark.examples(1)
def test_a_candidate_has_the_same_loops_as_in_a_network(workload: Workload) -> None:
    space = TARGET.space(workload)
    for vector in space.sample(3, np.random.default_rng(0)):
        config = space.config(vector)
        plain = assembly(workload, config, tvm.transform.PassContext())
        lean = assembly(workload, config, candidate_context())
        assert loop_instructions(lean) == loop_instructions(plain)
        assert len(lean) < len(plain)


def test_loops_of_different_configs_differ() -> None:
    workload = WORKLOADS[0]
    space = TARGET.space(workload)
    one, other = (space.config(vector) for vector in space.sample(2, np.random.default_rng(0)))
    texts = {loop_instructions(assembly(workload, config, candidate_context())) for config in (one, other)}
    assert len(texts) == 2
    assert all("main_compute_:" in text and len(text.splitlines()) > 50 for text in texts)
