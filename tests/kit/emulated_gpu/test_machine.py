"""An emulated GPU looks like a real one to programs, and errors explain why none can be emulated."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from anole.errors import MachineError
from kit.emulated_gpu import machine

PROGRAM = """
import torch
import tvm
from anole_cuda.device.machine import present_gpus
from anole_cuda.device.builder import prepare_to_compile
from anole_cuda.settings import describe_cuda
prepare_to_compile()
device = tvm.cuda(0)
print(*present_gpus(), describe_cuda()["arch"], device.exist, device.compute_version, torch.cuda.is_available())
"""


@pytest.mark.skipif(machine.why_unavailable() is not None, reason=str(machine.why_unavailable()))
@pytest.mark.parametrize("arch", [pytest.param("sm_90", marks=pytest.mark.slow), "sm_121"])
def test_programs_find_a_gpu_and_torch_finds_none(arch: str) -> None:
    variables = machine.build_environment(arch)
    found = subprocess.run([sys.executable, "-c", PROGRAM], env=variables, capture_output=True, text=True, check=True)
    version = f"{arch[3:-1]}.{arch[-1]}"
    assert found.stdout.strip() == f"{machine.MODEL} ({arch}) {arch} True {version} False"


@pytest.mark.skipif(machine.why_unavailable() is not None, reason=str(machine.why_unavailable()))
def test_the_exit_status_is_that_of_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parents[3])
    emulated = [sys.executable, "-m", "kit.emulated_gpu"]
    assert subprocess.run([*emulated, "sh", "-c", "exit 7"]).returncode == 7
    missing = subprocess.run([*emulated, "no-such-program"], capture_output=True, text=True)
    assert missing.returncode == 127 and "no-such-program cannot be started" in missing.stderr
    assert "usage: " in subprocess.run(emulated, capture_output=True, text=True).stderr


def test_without_a_compiler_no_gpu_is_emulated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MachineError, match=r"found no g\+\+, which builds the emulated GPU"):
        machine.build_environment()


def test_without_cudas_headers_no_gpu_is_emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "compiler_environment", dict)
    assert machine.why_unavailable() == "found no headers of CUDA"


def test_other_headers_make_another_emulated_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = set()
    for place in ("/cuda-12", "/cuda-13"):
        monkeypatch.setattr(machine, "compiler_environment", {"CUDA_PATH": place}.copy)
        keys.add(machine._key())
    assert len(keys) == 2


def test_build_errors_are_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "bin").mkdir()
    broken = tmp_path / "bin" / "g++"
    broken.write_text("#!/bin/sh\necho no space left >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", f"{broken.parent}:/usr/bin:/bin")
    with pytest.raises(MachineError, match="cannot build the emulated GPU: no space left"):
        machine.build_environment()
    assert not list((tmp_path / "cache" / "anole").iterdir())
