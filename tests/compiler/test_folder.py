"""A build's folder is replaced completely or not at all."""

from __future__ import annotations

import errno
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import tvm
from tvm import relax

from anole.compiler.folder import embed_imports, replace_folder, write_library
from anole.errors import BuildError, MachineError


def test_a_new_folder_replaces_the_old_one(tmp_path: Path) -> None:
    for text in ("old", "new"):
        with replace_folder(tmp_path / "build") as made:
            (made / text).write_text(text)
    assert [path.name for path in tmp_path.iterdir()] == ["build"]
    assert [path.name for path in (tmp_path / "build").iterdir()] == ["new"]


@pytest.mark.parametrize("error", [ValueError("no config"), KeyboardInterrupt()])
def test_an_error_leaves_the_folder_unchanged(tmp_path: Path, error: BaseException) -> None:
    with replace_folder(tmp_path / "build") as made:
        (made / "old").touch()
    with pytest.raises(type(error)), replace_folder(tmp_path / "build") as made:
        (made / "new").touch()
        raise error
    assert [path.name for path in tmp_path.iterdir()] == ["build"]
    assert (tmp_path / "build/old").exists()


def test_only_leftovers_of_killed_processes_are_removed(tmp_path: Path) -> None:
    (tmp_path / ".build.killed/new").mkdir(parents=True)
    (tmp_path / ".other.12345678").mkdir()
    with replace_folder(tmp_path / "build") as mine, replace_folder(tmp_path / "build") as theirs:
        assert len({mine.parent, theirs.parent} & set(tmp_path.iterdir())) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == [".other.12345678", "build"]


def test_an_unwritable_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BuildError, match="file/build: cannot be written"), replace_folder(tmp_path / "file/build"):
        pass


def test_a_full_disk_is_not_reported_as_a_missing_compiler(tmp_path: Path) -> None:
    full = Mock(export_library=Mock(side_effect=OSError(errno.ENOSPC, "No space left on device")))
    with pytest.raises(BuildError, match=r"build: cannot be written: .*No space"), replace_folder(tmp_path / "build"):
        write_library(tmp_path / "model.so", full)


WEIGHT = np.random.default_rng(0).standard_normal((64, 100)).astype(np.float32)


@pytest.fixture(scope="module")
def executable() -> relax.VMExecutable:
    """A compiled network that adds a weight."""
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


def test_the_object_file_contains_the_weights(executable: relax.VMExecutable, tmp_path: Path) -> None:
    object_file = Path(embed_imports(executable.mod, False, "", str(tmp_path)))
    assert WEIGHT.tobytes() in object_file.read_bytes()
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".o", ".s"]


@pytest.mark.parametrize(
    ("name", "value", "error", "message"),
    [
        ("CXX", "/nowhere/g++", BuildError, r"a C\+\+ compiler is required: .*/nowhere/g\+\+"),
        ("PATH", "/nowhere", MachineError, "a C compiler is required"),
    ],
)
def test_a_missing_compiler_is_reported(
    executable: relax.VMExecutable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    name: str, value: str, error: type[Exception], message: str,
) -> None:  # fmt: skip
    monkeypatch.setenv(name, value)
    with pytest.raises(error, match=message):
        write_library(tmp_path / "model.so", executable)
