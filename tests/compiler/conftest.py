"""A project folder with tiny networks in it, which is the working directory, and its models extracted."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import tvm
from tvm import ir, tirx

from anole.compiler.lower import Choice, lower
from anole.config.entries import ModelSpec
from anole.extract.graph import find_layers
from anole.extract.load import load_model
from anole.extract.torch import example_inputs, make_network, run_network
from anole.targets import get_target
from anole.targets.base import Target
from anole.targets.cpu.settings import describe_cpu
from anole.task import Task, Workload

from ..extract.conftest import project as project

SHAPES = {
    "residual": (1, 3, 16, 16),
    "branches": (1, 3, 12, 12),
    "joined": (3, 6),
    "varied": (2, 6, 11, 12),
    "gated": (1, 4, 9, 19),
    "summed": (1, 4, 6, 8),
    "enlarged": (2, 4, 6, 9),
    "norm_last": (2, 16, 32),
    "norm_first": (2, 16, 32),
    "twins": (1, 8, 10, 10),
}


def by_default(target: Any, workload: Workload) -> Choice:
    """Return the program of a workload's default config."""
    return Choice(target.template(workload), target.default_config(workload))


def random_config(seed: int, target: Any, workload: Workload) -> Choice:
    space = target.space(workload)
    return Choice(target.template(workload), space.config(space.sample(1, np.random.default_rng(seed))[0]))


def lower_network(imported: Any, target: Any, choose: Callable[[Any, Workload], Choice] = by_default) -> tvm.IRModule:
    """Lower a network with a config for each task; all of them must be schedulable."""
    workloads = dict.fromkeys(layer.workload for layer in find_layers(imported))
    chosen = {workload: choose(target, workload) for workload in workloads}
    module, failures = lower(imported.module, chosen, target.schedule_default)
    assert not failures
    return module


def calls_of(module: tvm.IRModule) -> list[ir.Call]:
    """Return the calls of functions in a lowered network, in order."""
    values = [binding.value for block in module["main"].body.blocks for binding in block.bindings]
    return [value for value in values if isinstance(value, ir.Call) and "call_tir" in value.op.name]


def functions(module: tvm.IRModule) -> dict[str, tirx.PrimFunc]:
    """Return the functions of a lowered network by name."""
    found = module.functions_items()
    return {str(variable.name_hint): func for variable, func in found if isinstance(func, tirx.PrimFunc)}


@dataclass(frozen=True)
class Network:
    """A tiny network, its module in normal form, and its expected outputs."""

    model: ModelSpec
    imported: Any
    inputs: list[Any]
    expected: list[Any]
    target: Target = field(default_factory=lambda: get_target(describe_cpu()))

    @property
    def tasks(self) -> dict[Any, Task]:
        """The task of each distinct workload, in order."""
        workloads = dict.fromkeys(layer.workload for layer in find_layers(self.imported))
        return {
            workload: Task(workload, self.target.description, self.target.template_version(workload))
            for workload in workloads
        }

    def check(self, outputs: list[Any], rtol: float = 1e-3) -> None:
        """Assert that outputs match the expected ones."""
        for found, expected in zip(outputs, self.expected, strict=True):
            np.testing.assert_allclose(found, expected, rtol=rtol, atol=1e-4)


@pytest.fixture(scope="session")
def network(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Network]:
    """A factory of tiny networks by name: from torch, or from an ONNX export if the name ends in ``.onnx``."""
    folder = tmp_path_factory.mktemp("networks")
    shutil.copy(Path(__file__).parents[1] / "tiny_networks.py", folder / "tiny.py")

    @cache
    def make(name: str) -> Network:
        function = name.removesuffix(".onnx")
        model = ModelSpec(name, f"torch:tiny:{function}", {"x": SHAPES[function]})
        with pytest.MonkeyPatch.context() as monkeypatch:
            monkeypatch.chdir(folder)
            arguments = example_inputs(model)
            expected = run_network(model, make_network(model), arguments)
            if name.endswith(".onnx"):
                inputs = tuple(arguments.values())
                torch.onnx.export(make_network(model), inputs, name, input_names=["x"], dynamo=True, verbose=False)
                model = ModelSpec(name, f"onnx:{name}", {})
            imported = load_model(model)
        inputs = [tensor.numpy() for tensor in arguments.values()]
        return Network(model, imported, inputs, [tensor.numpy() for tensor in expected])

    return make
