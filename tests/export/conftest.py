"""Tiny networks as exported C libraries, and programs that are linked with them."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from anole.config.entries import ModelSpec
from anole.documents.build import read_build
from anole.export.source import Network
from anole.export.stage import export_build
from anole.targets.cpu.settings import describe_cpu
from anole.targets.shared.kernel import find_compiler

from ..extract.onnx.models import model_of
from ..targets.cpu.templates.cases import AMX_FEATURES
from ..tiny_builds import RANGED, compile_untuned

HERE = Path(__file__).parent
MODELS = {
    name: ModelSpec(name, f"torch:tiny:{name}", inputs, dtypes=dtypes)
    for name, inputs, dtypes in (
        ("joined", {"x": (3, 6)}, {}),
        ("residual", {"x": (1, 3, 16, 16)}, {}),
        ("mixed", {"x": (3, 6), "rows": (2, 3)}, {"rows": "int64"}),
        ("ordered", {"x": (3, 6)}, {}),
        ("nothing", {"x": (2, 3, 4)}, {}),
        ("twins", {"input": (1, 8, 10, 10)}, {}),
        ("varied", {"x": (2, 6, 11, 12)}, {}),
    )
} | {
    "ranged": ModelSpec.from_json(
        "ranged", {"source": "torch:tiny:varied", "inputs": {"x": [{"n": "1..4"}, 6, 11, 12]}}
    ),
    **RANGED,
    "file": ModelSpec("file", "onnx:net.onnx", {"x": (1, 3, 8, 8)}),
    "bytes": ModelSpec("bytes", "onnx:bytes.onnx", {"x": (1, 32, 8, 8)}),
}


@dataclass(frozen=True)
class Exported:
    """A library and the build that it was exported from."""

    build: Path
    folder: Path
    network: Network

    @property
    def inputs(self) -> list[np.ndarray]:
        """Random inputs, the same in every call."""
        rng = np.random.default_rng(3)
        return [(3 * rng.random(info.shape)).astype(info.dtype) for info in read_build(self.build).inputs]

    @property
    def expected(self) -> list[np.ndarray]:
        """The outputs of the build."""
        return import_file(self.build / "load.py").Model()(*self.inputs)

    def python(self) -> Any:
        """Return the module that wraps the library."""
        (path,) = self.folder.glob("*.py")
        return import_file(path)

    def program(self, made: Path, *options: str, source: Path = HERE / "program.c") -> Path:
        """Compile a program with the static library."""
        command = [find_compiler(), "-std=c11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", f"-I{self.folder}"]
        libraries = [*map(str, self.folder.glob("*.a")), "-lm", "-lpthread"]
        subprocess.run([*command, str(source), "-o", str(made), *options, *libraries], check=True)
        return made


def write_onnx(path: Path, seed: int = 0, channels: int = 3, is_quantized: bool = False) -> None:
    """Write a convolution, optionally with quantized data and weights, and an activation."""
    weight = np.random.default_rng(seed).standard_normal((5, channels, 3, 3)).astype(np.float32)
    nodes = "z = Conv (x, w) y = Relu (z)"
    constants: dict[str, Any] = {"w": weight}
    if is_quantized:
        zeros = {"a0": np.array(0, np.uint8), "b0": np.array(0, np.int8)}
        constants = {"q": (30 * weight).astype(np.int8), "s": np.array(0.03, np.float32), **zeros}
        nodes = """
            a = QuantizeLinear (x, s, a0)
            x1 = DequantizeLinear (a, s, a0)
            w = DequantizeLinear (q, s, b0)
            z = Conv (x1, w)
            y = Relu (z)
        """
    onnx.save(model_of(f"(float[1,{channels},8,8] x) => (float[1,5,6,6] y) {{{nodes}}}", **constants), path)


def needs(tool: str) -> str:
    """Return the path of a tool, or skip the test."""
    found = shutil.which(tool)
    if found is None:
        pytest.skip(f"there is no {tool} on PATH")
    return found


def import_file(path: Path) -> Any:
    """Return the module in a file."""
    found = importlib.util.spec_from_file_location(path.stem, path)
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


Export = Callable[..., Exported]


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Return a function that builds a tiny network by its name, in a common working directory."""
    home = tmp_path_factory.mktemp("builds")
    shutil.copy(HERE.parent / "tiny_networks.py", home / "tiny.py")
    write_onnx(home / "net.onnx")
    write_onnx(home / "bytes.onnx", channels=32, is_quantized=True)

    @cache
    def made(name: str, threads: int = 2) -> Path:
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(home)
            described = describe_cpu(threads=threads)
            described["features"] += AMX_FEATURES if name == "bytes" else []
            described |= {"precision": "bf16"} if name == "residual" else {}
            compile_untuned(MODELS[name], home / name, described)
        return home / name

    return made


@pytest.fixture(scope="session")
def export(build: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Export:
    """Return a function that exports a tiny network by its name."""

    def made(name: str, **settings: Any) -> Exported:
        folder = tmp_path_factory.mktemp("exported") / name
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(build(name).parent)
            return Exported(build(name), folder, export_build(build(name), folder, **settings))

    return made


@pytest.fixture(scope="session")
def varied(export: Export) -> Exported:
    """A network with two outputs and attention, with weights in a file and kernels for all levels."""
    return export("varied", weights_inside=False)


@pytest.fixture(scope="session")
def program(varied: Exported, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return varied.program(tmp_path_factory.mktemp("program") / "program")
