"""The processor as LLVM names it, and the number of available cores."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from anole.errors import MachineError
from anole.host import machine
from anole.host import processor as module
from anole.host.processor import features_of, known_processors, llvm_attributes, processor

PROCESSORS = Path(__file__).parent / "processors"

V2 = "cx16 popcnt sse4_1 sse4_2 ssse3"
V3 = f"{V2} avx avx2 bmi1 bmi2 f16c fma movbe"
V4 = f"{V3} avx512f avx512bw avx512cd avx512dq avx512vl"
ICELAKE = f"{V4} avx512_vnni avx512_vbmi2 avx512_bitalg avx512ifma avx512vbmi"
ZEN5 = f"{ICELAKE} avx512_bf16 avx_vnni"


def cpuinfo(vendor: str, family: int, model: int, flags: str) -> str:
    return (
        f"processor\t: 0\nvendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\n"
        f"model name\t: Some CPU: @ 3 GHz\nflags\t\t: fpu {flags}\n\nprocessor\t: 1\nmodel name\t: Other\n"
    )


@pytest.mark.parametrize(
    ("vendor", "family", "model", "flags", "mcpu"),
    [
        ("AuthenticAMD", 23, 0x01, V3, "znver1"),
        ("AuthenticAMD", 23, 0x31, V3, "znver2"),
        ("AuthenticAMD", 25, 0x21, V3, "znver3"),
        ("AuthenticAMD", 25, 0x11, f"{ICELAKE} avx512_bf16", "znver4"),
        ("AuthenticAMD", 25, 0x61, f"{ICELAKE} avx512_bf16", "znver4"),
        ("AuthenticAMD", 26, 0x02, ZEN5, "znver5"),
        ("AuthenticAMD", 26, 0x02, V4, "x86-64-v4"),
        ("AuthenticAMD", 26, 0x02, V3, "x86-64-v3"),
        ("AuthenticAMD", 99, 0x02, V4, "x86-64-v4"),
        ("GenuineIntel", 6, 0x3F, V3, "haswell"),
        ("GenuineIntel", 6, 0x55, V4, "skylake-avx512"),
        ("GenuineIntel", 6, 0x55, f"{V4} avx512_vnni", "cascadelake"),
        ("GenuineIntel", 6, 0x55, f"{V4} avx512_vnni avx512_bf16", "cooperlake"),
        ("GenuineIntel", 6, 0x6A, ICELAKE, "icelake-server"),
        ("GenuineIntel", 6, 0x8F, f"{ZEN5} avx512_fp16", "sapphirerapids"),
        ("GenuineIntel", 6, 0x8F, V3, "x86-64-v3"),
        ("GenuineIntel", 6, 0x2A, V2, "x86-64-v2"),
        ("GenuineIntel", 15, 0x3F, "", "x86-64"),
        ("Unknown", 1, 1, V3, "x86-64-v3"),
    ],
)
def test_mcpu_needs_no_missing_flags(vendor: str, family: int, model: int, flags: str, mcpu: str) -> None:
    found = processor(cpuinfo(vendor, family, model, flags), "x86_64")
    assert found.mcpu == mcpu
    assert not found.missing_features(mcpu)
    assert found.name == "Some CPU: @ 3 GHz"


ARM = "processor\t: 0\nFeatures\t: fp asimd sve\nCPU implementer\t: 0x41\nCPU part\t: 0xd4f\n"


def describe(file: str) -> str:
    return (PROCESSORS / f"{file}.txt").read_text()


@pytest.mark.parametrize(
    ("text", "name", "mcpu", "attributes"),
    [
        (describe("xeon_amx"), "Intel(R) Xeon(R) Processor", "rocketlake", "+avxvnni +avx512bf16 +avx512fp16"),
        (describe("epyc_zen4"), "AMD EPYC", "znver4", ""),
        (describe("haswell"), "Intel(R) Xeon(R) CPU E5-2680 v3 @ 2.50GHz", "haswell", ""),
        (describe("nameless_vm"), "x86_64", "x86-64-v3", ""),
        ("", "x86_64", "x86-64", ""),
        # A processor with masked features.
        (cpuinfo("AuthenticAMD", 26, 2, f"{V4} avx512_vnni amx_tile"), "Some CPU: @ 3 GHz", "x86-64-v4", "+avx512vnni"),
    ],
    ids=["AMX", "Zen 4", "Haswell", "no name", "nothing", "masked"],
)
def test_recorded_processors_are_identified(
    text: str, name: str, mcpu: str, attributes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.processor", lambda: "")
    found = processor(text, "x86_64")
    assert (found.name, found.mcpu) == (name, mcpu)
    assert llvm_attributes(found.mcpu, found.features) == attributes.split()


def test_features_are_in_a_fixed_order_and_only_those_that_matter() -> None:
    found = processor(cpuinfo("AuthenticAMD", 26, 2, "fma sse4_2 avx2 vaes avx512f"), "x86_64")
    assert found.features == ["sse4_2", "fma", "avx2", "avx512f"]
    arm = processor(ARM, "aarch64")
    assert (arm.mcpu, arm.name, arm.features) == ("generic", "0x41 0xd4f", ["asimd", "sve"])


@pytest.mark.parametrize("mcpu", known_processors("x86_64") + known_processors("aarch64"))
def test_a_name_needs_no_attributes_for_its_own_features(mcpu: str) -> None:
    assert llvm_attributes(mcpu, features_of(mcpu)) == []


@pytest.mark.parametrize("file", sorted(path.stem for path in PROCESSORS.iterdir()))
def test_a_claimed_processor_has_no_more_flags_than_the_real_one(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = PROCESSORS / f"{file}.txt"
    monkeypatch.delenv("ANOLE_CPUINFO", raising=False)
    real, meant = processor(), processor(path.read_text())
    monkeypatch.setenv("ANOLE_CPUINFO", str(path))
    claimed = processor()
    assert (claimed.name, claimed.vendor, claimed.model) == (meant.name, meant.vendor, meant.model)
    assert claimed.flags == meant.flags & real.flags
    assert not claimed.missing_features(claimed.mcpu) and not real.missing_features(claimed.mcpu)


@pytest.mark.parametrize("may", [True, False])
def test_amx_is_no_feature_if_the_system_denies_tiles(may: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANOLE_CPUINFO", raising=False)
    assert platform.machine() != "x86_64" or module._may_use_tiles() == ("amx_tile" in processor().flags)
    described = processor((PROCESSORS / "xeon_amx.txt").read_text(), "x86_64")
    monkeypatch.setattr(module, "_parse", lambda *_: described)
    monkeypatch.setattr(module, "_may_use_tiles", lambda: may)
    amx = {flag for flag in described.flags if flag.startswith("amx_")}
    assert described.flags - processor().flags == (set() if may else amx) and amx


def test_the_number_of_cores_can_be_overridden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANOLE_CORES", "64")
    assert machine.available_cores() == machine.available_threads() == 64
    monkeypatch.delenv("ANOLE_CORES")
    assert machine.available_threads() == len(machine.affinity()) >= machine.available_cores()
    facts = machine.host_facts()
    assert facts["memory_bytes"] > 1 << 28 and facts["cores"] == machine.available_cores()


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5", "²"])
def test_an_invalid_number_of_cores_is_rejected(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANOLE_CORES", text)
    with pytest.raises(MachineError) as caught:
        machine.available_cores()
    assert str(caught.value) == f"ANOLE_CORES: found {text!r}; it must be a positive integer"


def test_llvm_knows_every_name_and_every_attribute() -> None:
    attributes = llvm_attributes("x86-64", features_of("sapphirerapids"))
    assert len(attributes) == len(features_of("sapphirerapids"))
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from tvm.target import Target, codegen\n"
        "for triple in ('x86_64-linux-gnu', 'aarch64-linux-gnu'):\n"
        "    print(*codegen.llvm_get_cpu_archlist(Target({'kind': 'llvm', 'mtriple': triple})))\n"
        f"target = {{'kind': 'llvm', 'mtriple': 'x86_64-linux-gnu', 'mcpu': 'x86-64', 'mattr': {attributes}}}\n"
        "print(*codegen.llvm_get_cpu_features(Target(target)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    x86, arm, features = done.stdout.strip().splitlines()[-3:]
    assert set(known_processors("x86_64")) <= set(x86.split())
    assert set(known_processors("aarch64")) <= set(arm.split())
    assert {attribute.removeprefix("+") for attribute in attributes} <= set(features.split())


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu.max": "150000 100000\n"}, 1.5),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
        ({"cpu/cpu.cfs_quota_us": "400000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 4.0),
        ({}, None),
    ],
)
def test_a_quota_is_read_in_both_versions(tmp_path: Path, files: dict[str, str], cores: float | None) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert machine._cgroup_quota(tmp_path) == cores


def test_hyper_threads_and_quotas_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANOLE_CORES", raising=False)
    monkeypatch.setattr(machine, "affinity", lambda: {0, 1, 2, 3, 8, 9})
    monkeypatch.setattr(machine, "_core_of", lambda cpu: str(cpu % 8))
    for quota, cores in ((None, 4), (2.5, 2), (0.5, 1)):
        monkeypatch.setattr(machine, "_cgroup_quota", lambda root, quota=quota: quota)
        assert machine.available_cores() == cores


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="no thread can be bound")
def test_a_bound_thread_does_not_bind_the_process() -> None:
    code = (
        # TVM may have bound the thread that starts this process.
        "import os, threading; from anole.host.machine import affinity; "
        f"os.sched_setaffinity(0, {machine.affinity()}); before = affinity(); "
        "threading.Thread(target=threading.Event().wait, daemon=True).start(); "
        "os.sched_setaffinity(0, {min(before)}); print(affinity() == before, len(before))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split()[0] == "True" and int(done.stdout.split()[1]) > 1


def test_a_missing_cpuinfo_file_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANOLE_CPUINFO", str(tmp_path / "absent.txt"))
    with pytest.raises(MachineError, match=r"ANOLE_CPUINFO: cannot read .*absent\.txt"):
        processor()
