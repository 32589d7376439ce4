"""The command `anole export`: the files that it writes, and the errors that it reports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from anole.__main__ import main
from anole.documents.build import read_build, write_build
from anole.targets.shared.kernel import find_compiler
from anole_cuda.settings import describe_cuda
from tests.export.conftest import import_file, needs, write_onnx


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["export", *map(str, arguments)])


def rejected_output(folder: Path, *arguments: object) -> str:
    """Return the output of an export that fails and writes nothing."""
    outcome = invoke(*arguments, "--to", folder)
    assert outcome.exit_code == 2 and not folder.exists(), outcome.output
    return outcome.output


@pytest.fixture
def joined(build: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A build; tests run in its project."""
    monkeypatch.chdir(build("joined").parent)
    return build("joined")


def test_an_export_writes_all_user_facing_files(joined: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    for prefix in ("weights", "net2"):
        outcome = invoke(joined, "--to", tmp_path / "out", "--weights", "file", "--level", "tuned", "--prefix", prefix)
        assert outcome.exit_code == 0, outcome.output
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "example.c", "libnet2.a", "libnet2.so", "net2.cmake", "net2.h", "net2.py", "net2.weights",
    ]  # fmt: skip
    header = (tmp_path / "out" / "net2.h").read_text()
    assert '#define NET2_INPUT_0_NAME "x"' in header and "#define NET2_INPUT_0_SHAPE {3, 6}" in header
    assert "network" not in header.replace("The network", "").replace("network's", "")
    with import_file(tmp_path / "out" / "net2.py").Network() as network, pytest.raises(ValueError, match="found shape"):
        network([[1.0]])


@pytest.mark.guard
def test_a_library_that_python_has_imported_is_replaced(joined: Path, tmp_path: Path) -> None:
    for name in ("libnetwork.a", "network.py", "__pycache__/network.cpython-311.pyc"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    outcome = invoke(joined, "--to", tmp_path, "--level", "tuned")
    assert outcome.exit_code == 0, outcome.output
    assert (tmp_path / "network.h").exists() and not (tmp_path / "__pycache__").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--level", "x86-64-v9"], "found level x86-64-v9; this build can have tuned and "),
        (["--prefix", "9net"], "found prefix '9net'; "),
        (["--prefix", "net-work"], "found prefix 'net-work'; "),
    ],
)
def test_wrong_options_are_rejected(arguments: list[str], message: str, joined: Path, tmp_path: Path) -> None:
    assert message in rejected_output(tmp_path / "out", joined, *arguments)


def test_a_folder_with_other_files_is_not_changed(joined: Path, tmp_path: Path) -> None:
    for name in ("libnetwork.a", "network.h", "thesis.tex"):
        (tmp_path / name).touch()
    outcome = invoke(joined, "--to", tmp_path)
    assert outcome.exit_code == 2 and "has thesis.tex, which is not part of an exported library" in outcome.output
    assert len(list(tmp_path.iterdir())) == 3
    assert "is a file; use a folder" in invoke(joined, "--to", tmp_path / "thesis.tex").output


@pytest.mark.guard
def test_builds_for_other_targets_are_rejected(accelerated: Path, joined: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert "this build is for vta; only builds for " in rejected_output(out, accelerated / "net")
    (tmp_path / "gpu").mkdir()
    description = {**describe_cuda(arch="sm_90"), "kind": "cuda"}
    write_build(tmp_path / "gpu", replace(read_build(joined), target_description=description))
    assert "this build is for cuda" in rejected_output(out, tmp_path / "gpu")
    rejected_output(out, tmp_path)


def test_unsupported_operations_are_reported(build: Callable[[str], Path], joined: Path, tmp_path: Path) -> None:
    reported = rejected_output(tmp_path / "out", build("ordered"))
    assert "calls tvm.contrib.sort.argsort of TVM's runtime, which cannot be exported to C" in reported


def test_a_library_that_differs_from_its_build_is_rejected(
    build: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_onnx(tmp_path / "net.onnx", 1)
    reported = rejected_output(tmp_path / "out", build("file", threads=1), "--level", "tuned")
    assert "the library's outputs differ from the build's" in reported


def test_missing_tools_are_reported(joined: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, path in (("cc", find_compiler()), ("as", needs("as"))):
        (tmp_path / name).symlink_to(path)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "found no `ld` on PATH; install binutils" in rejected_output(tmp_path / "out", joined, "--level", "tuned")


def test_a_changed_network_is_rejected(joined: Path, tmp_path: Path) -> None:
    other = replace(read_build(joined), entry={"source": "torch:tiny:branches", "inputs": {"x": [1, 3, 12, 12]}})
    (tmp_path / "other").mkdir()
    write_build(tmp_path / "other", other)
    assert "has changed since it was extracted" in rejected_output(tmp_path / "out", tmp_path / "other")
