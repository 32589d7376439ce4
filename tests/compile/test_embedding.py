"""Weights that the assembler puts into a library are there when it is loaded, and LLVM need not copy them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax

from anole.compile.embedding import embed_imports
from anole.compile.folder import write_library
from anole.errors import MachineError

WEIGHT = np.random.default_rng(0).standard_normal((64, 100)).astype(np.float32)


@pytest.fixture(scope="module")
def executable() -> relax.VMExecutable:
    """A network that adds a weight."""
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType(WEIGHT.shape, "float32"))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(relax.op.add(x, relax.const(WEIGHT))))
    return tvm.compile(builder.get(), tvm.target.Target("llvm"))


def test_a_loaded_library_has_its_weights(executable: relax.VMExecutable, tmp_path: Path) -> None:
    path = tmp_path / "model.so"
    write_library(path, executable)
    assert path.read_bytes().count(WEIGHT.tobytes()) == 1
    network = relax.VirtualMachine(tvm.runtime.load_module(str(path)), tvm.cpu())
    found = network["main"](tvm.runtime.tensor(np.ones_like(WEIGHT)))
    np.testing.assert_array_equal(found.numpy(), WEIGHT + 1)


def test_the_object_holds_them_as_they_are(executable: relax.VMExecutable, tmp_path: Path) -> None:
    made = Path(embed_imports(executable.mod, False, "", str(tmp_path)))
    assert WEIGHT.tobytes() in made.read_bytes()
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".o", ".s"]


def test_without_a_compiler_the_machine_is_at_fault(
    executable: relax.VMExecutable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(MachineError, match="a C compiler is needed"):
        write_library(tmp_path / "model.so", executable)
