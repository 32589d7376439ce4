"""The command `anole export`: what it writes, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from anole.__main__ import main
from anole.documents.build import read_build, write_build
from anole.targets.cpu.runtime import find_compiler
from anole.targets.cuda.settings import describe_cuda
from tests.export.conftest import imported, needs, write_onnx


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["export", *map(str, arguments)])


@pytest.fixture
def joined(build: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A build, in whose project the tests run."""
    monkeypatch.chdir(build("joined").parent)
    return build("joined")


def test_a_folder_gets_everything_that_a_user_needs(joined: Path, tmp_path: Path) -> None:
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
    with imported(tmp_path / "out" / "net2.py").Network() as network, pytest.raises(ValueError, match="found shape"):
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
def test_wrong_options_are_refused(arguments: list[str], message: str, joined: Path, tmp_path: Path) -> None:
    outcome = invoke(joined, "--to", tmp_path / "out", *arguments)
    assert outcome.exit_code == 2 and message in outcome.output
    assert not (tmp_path / "out").exists()


def test_a_folder_with_other_files_stays_as_it_is(joined: Path, tmp_path: Path) -> None:
    for name in ("libnetwork.a", "network.h", "thesis.tex"):
        (tmp_path / name).touch()
    outcome = invoke(joined, "--to", tmp_path)
    assert outcome.exit_code == 2 and "holds thesis.tex, which is no part of an exported library" in outcome.output
    assert len(list(tmp_path.iterdir())) == 3
    assert "is a file; give a folder" in invoke(joined, "--to", tmp_path / "thesis.tex").output


@pytest.mark.guard
def test_builds_for_other_targets_are_refused(accelerated: Path, joined: Path, tmp_path: Path) -> None:
    outcome = invoke(accelerated / "net", "--to", tmp_path / "out")
    assert outcome.exit_code == 2 and "found a build for vta; only builds for a cpu can be exported" in outcome.output
    description = {**describe_cuda(arch="sm_90"), "kind": "cuda"}
    (tmp_path / "gpu").mkdir()
    write_build(tmp_path / "gpu", replace(read_build(joined), target_description=description))
    outcome = invoke(tmp_path / "gpu", "--to", tmp_path / "out")
    assert outcome.exit_code == 2 and "found a build for cuda" in outcome.output
    assert invoke(tmp_path, "--to", tmp_path / "out").exit_code == 2
    assert not (tmp_path / "out").exists()


def test_what_has_no_form_in_c_is_named(build: Callable[[str], Path], joined: Path, tmp_path: Path) -> None:
    outcome = invoke(build("ordered"), "--to", tmp_path / "out")
    assert outcome.exit_code == 2
    assert "calls tvm.contrib.sort.argsort of TVM's runtime, which has no form in C" in outcome.output


def test_a_library_that_differs_from_its_build_is_refused(
    build: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_onnx(tmp_path / "net.onnx", 1)
    outcome = invoke(build("file", threads=1), "--to", "out", "--level", "tuned")
    assert outcome.exit_code == 2 and "the library's outputs differ from the build's" in outcome.output
    assert not (tmp_path / "out").exists()


def test_missing_tools_are_named(joined: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, path in (("cc", find_compiler()), ("as", needs("as"))):
        (tmp_path / name).symlink_to(path)
    monkeypatch.setenv("PATH", str(tmp_path))
    outcome = invoke(joined, "--to", tmp_path / "out", "--level", "tuned")
    assert outcome.exit_code == 2 and "found no `ld` on PATH; install binutils" in outcome.output
    assert not (tmp_path / "out").exists()


def test_another_network_than_the_build_has_is_refused(joined: Path, tmp_path: Path) -> None:
    other = replace(read_build(joined), entry={"source": "torch:tiny:branches", "inputs": {"x": [1, 3, 12, 12]}})
    (tmp_path / "other").mkdir()
    write_build(tmp_path / "other", other)
    outcome = invoke(tmp_path / "other", "--to", tmp_path / "out")
    assert outcome.exit_code == 2 and "has changed since it was extracted" in outcome.output
