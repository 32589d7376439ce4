"""Detection of GPUs and CUDA compilers, and the messages if they are missing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from anole.config.reading import parse_spec
from anole.errors import SpecError, TargetError
from anole.project.hardware import describe_target
from anole.task import Dense
from anole_cuda.device import machine as cuda_machine
from anole_cuda.device.architecture import ARCHITECTURES, BlockLimits
from anole_cuda.device.machine import present_gpus
from anole_cuda.settings import describe_cuda
from anole_cuda.target import CudaTarget

DENSE = Dense(1, 8, 8)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make PATH an empty folder, where tests install programs; return it."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def install(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    (folder / name).chmod(0o755)


@pytest.mark.parametrize(
    ("output", "arch"),
    [("9.0, 0, GPU-a", "sm_90"), ("12.0, 0, GPU-a", "sm_120"), ("8.6, 0, GPU-a\n9.0, 1, GPU-b", "sm_86")],
)
def test_the_first_gpu_is_found(machine: Path, output: str, arch: str) -> None:
    install(machine, "nvidia-smi", f"printf '{output}\\n'")
    assert present_gpus()[0].architecture == arch
    assert describe_cuda()["arch"] == arch


@pytest.mark.parametrize("script", [None, "exit 9", "echo 'No devices were found'", "true"])
def test_a_missing_gpu_is_reported(machine: Path, script: str | None) -> None:
    if script is not None:
        install(machine, "nvidia-smi", script)
    assert present_gpus() == ()
    with pytest.raises(TargetError, match=r"found no GPU on this machine .* set `arch`, such as sm_90"):
        describe_cuda()


@pytest.mark.parametrize("arch", ["sm_35", "hopper", 90])
def test_an_unknown_architecture_is_reported(arch: object) -> None:
    with pytest.raises(TargetError, match=r"arch: unknown value .*; use one of sm_70, sm_72"):
        describe_cuda(arch)


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_a_description_is_json_and_complete(arch: str) -> None:
    description = describe_cuda(arch)
    assert json.loads(json.dumps(description)) == description
    assert CudaTarget(description).limits == BlockLimits()


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ({"kind": "cuda", "arch": 90}, "targets.gpu.arch: found 90"),
        ({"kind": "cuda", "arch": "sm_1"}, "targets.gpu: arch: unknown value 'sm_1'; use one of sm_70"),
        (
            {"kind": "cuda", "threads": 2},
            "targets.gpu.threads: is unknown; allowed: kind, arch, model, space, measure, required",
        ),
        ({"kind": "cuda", "space": "wide"}, "targets.gpu.space: found 'wide', which is not a kind of space"),
    ],
    ids=["a number", "unknown", "another's key", "another space"],
)
def test_a_mistake_in_models_yaml_is_located(target: dict[str, object], message: str) -> None:
    models = {"net": {"source": "torchvision:resnet18", "inputs": {"x": [1, 3, 8, 8]}}}
    mapping = {"models": models, "targets": {"gpu": target}, "builds": [{"model": "net", "target": "gpu"}]}
    with pytest.raises(SpecError) as caught:
        describe_target(parse_spec(mapping).targets["gpu"])
    assert message in str(caught.value)


def test_running_without_the_gpu_is_rejected(machine: Path) -> None:
    target = CudaTarget(describe_cuda("sm_90"))
    for ask in (target.peak_gflops, lambda: target.runner(DENSE)):
        with pytest.raises(TargetError, match="cuda sm_90: found no GPU on this machine"):
            ask()
    install(machine, "nvidia-smi", "echo 8.0, 0, GPU-a")
    with pytest.raises(TargetError, match="this machine's GPU is sm_80; set `arch: sm_80`"):
        target.runner(DENSE)


def test_every_gpu_of_the_architecture_is_a_separate_device(machine: Path) -> None:
    install(machine, "nvidia-smi", "printf '9.0, 0, GPU-a\\n8.6, 1, GPU-b\\n9.0, 2, GPU-c\\n'")
    units = CudaTarget(describe_cuda("sm_90")).units()
    assert [(unit.name, dict(unit.environment)) for unit in units] == [
        ("cuda-0", {"CUDA_VISIBLE_DEVICES": "GPU-a"}),
        ("cuda-2", {"CUDA_VISIBLE_DEVICES": "GPU-c"}),
    ]


@pytest.mark.parametrize(("visible", "indices"), [("1", [1]), ("GPU-a1,GPU-b2", [0, 1]), ("GPU-b", [1]), ("", [])])
def test_hidden_gpus_are_ignored(
    machine: Path, monkeypatch: pytest.MonkeyPatch, visible: str, indices: list[int]
) -> None:
    install(machine, "nvidia-smi", "printf '9.0, 0, GPU-a1\\n9.0, 1, GPU-b2\\n'")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert [gpu.index for gpu in present_gpus()] == indices


def test_the_doctor_lists_the_compilers(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(machine, "nvcc", "echo 'Cuda compilation tools, release 13.0, V13.0.88'")
    monkeypatch.setattr(cuda_machine, "nvrtc_version", lambda: "13.2 (cuda-bindings 13.5.0)")
    assert cuda_machine.compilers() == "NVRTC 13.2 (cuda-bindings 13.5.0), nvcc 13.0.88"
    monkeypatch.setattr(cuda_machine, "nvrtc_version", lambda: None)
    assert cuda_machine.compilers() == "nvcc 13.0.88"
    monkeypatch.setattr(cuda_machine, "find_nvcc", lambda: None)
    assert cuda_machine.compilers().startswith("MISSING: neither NVRTC (cuda-bindings) nor nvcc")


def test_an_unsupported_architecture_is_reported_before_anything_is_built(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(cuda_machine, "supported_architectures", lambda: ("sm_75", "sm_90"))
    for name in ("TVM_CUDA_COMPILE_MODE", cuda_machine.COMPILER_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    target = CudaTarget(describe_cuda("sm_70"))
    for ask in (target.compiler_target, lambda: target.build(DENSE, target.default_config(DENSE), tmp_path / "x.so")):
        with pytest.raises(TargetError, match=r"cuda sm_70: NVRTC .* supports only sm_75, sm_90"):
            ask()
    for name, value in (("TVM_CUDA_COMPILE_MODE", "nvcc"), (cuda_machine.COMPILER_VARIABLE, "/usr/bin/own")):
        with monkeypatch.context() as other:
            other.setenv(name, value)
            cuda_machine.check_architecture("sm_70")


def test_the_compiler_lists_its_architectures() -> None:
    assert "sm_90" in cuda_machine.supported_architectures()


def test_gpus_of_one_architecture_are_distinguished_by_model(machine: Path) -> None:
    install(machine, "nvidia-smi", "printf '9.0, 0, GPU-a, NVIDIA H200\\n9.0, 1, GPU-b, NVIDIA H100 PCIe\\n'")
    first = CudaTarget(describe_cuda())
    assert first.description["model"] == "NVIDIA H200" and "model" not in describe_cuda("sm_90")
    assert [unit.name for unit in first.units()] == ["cuda-0"]
    assert [unit.name for unit in CudaTarget(describe_cuda(model="NVIDIA H100 PCIe")).units()] == ["cuda-1"]
    assert len(CudaTarget(describe_cuda("sm_90")).units()) == 2
    absent = CudaTarget(describe_cuda("sm_90", "NVIDIA GH200"))
    assert absent.absence() == (
        "cuda sm_90: this machine's GPU is a NVIDIA H200, not a NVIDIA GH200; set its `model` to run on it"
    )
    with pytest.raises(TargetError, match="found no 'NVIDIA GH200' on this machine"):
        describe_cuda(model="NVIDIA GH200")
    install(machine, "nvidia-smi", "printf '8.0, 0, GPU-a, NVIDIA A100\\n9.0, 1, GPU-b, NVIDIA H200\\n'")
    assert "GPU is a NVIDIA H200" in (absent.absence() or "")
