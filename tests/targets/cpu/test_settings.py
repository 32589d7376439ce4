"""Descriptions of CPU targets: detected and given settings, features, precisions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from anole.errors import TargetError
from anole.host.machine import available_cores
from anole.host.processor import known_processors, processor
from anole.targets.cpu import settings
from anole.targets.cpu.device.precision import missing_features, precisions_of
from anole.targets.cpu.settings import describe_cpu

HASWELL = """vendor_id: GenuineIntel
cpu family: 6
model: 63
model name: Some CPU: @ 3 GHz
flags: fpu cx16 popcnt sse4_1 sse4_2 ssse3 avx avx2 bmi1 bmi2 f16c fma movbe
"""


def test_this_machine_describes_itself_in_plain_values() -> None:
    description = describe_cpu()
    assert description["kind"] == "cpu"
    assert description["mcpu"] in known_processors()
    assert description["threads"] == available_cores() >= 1
    assert all(isinstance(value, (str, int, list)) for value in description.values())
    assert description == describe_cpu()


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return a function that replaces this machine's processor by one of tests/host/processors."""

    def pretended(name: str) -> None:
        text = Path(__file__).parents[2].joinpath(f"host/processors/{name}.txt").read_text()
        monkeypatch.setattr(settings, "processor", lambda: processor(text, "x86_64"))

    return pretended


V3 = ["sse4_2", "avx", "f16c", "fma", "avx2"]
V4 = [*V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"]
AMX = ["avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_int8", "amx_bf16"]
XEON = [*V3, "avx_vnni", *V4[len(V3) :], *AMX]


@pytest.mark.parametrize(
    ("file", "mcpu", "model", "features"),
    [
        ("epyc_zen4", "znver4", "AMD EPYC", [*V4, "avx512_vnni", "avx512_bf16"]),
        ("xeon_amx", "rocketlake", "Intel(R) Xeon(R) Processor", XEON),
    ],
)
def test_a_detected_processor_has_all_its_features(
    pretend: Callable[[str], None], file: str, mcpu: str, model: str, features: list[str]
) -> None:
    """These descriptions are part of the keys of already tuned tasks."""
    pretend(file)
    expected = {"kind": "cpu", "mcpu": mcpu, "model": model, "features": features, "threads": 1}
    assert describe_cpu(threads=1) == expected


def test_a_given_processor_has_no_features_of_this_machine(pretend: Callable[[str], None]) -> None:
    pretend("xeon_amx")
    assert describe_cpu(mcpu="x86-64-v3", threads=1)["features"] == V3
    assert describe_cpu(mcpu="rocketlake", threads=1)["features"] == [*V4, "avx512_vnni"]


@pytest.mark.parametrize(
    ("file", "compiled", "unused"),
    [
        ("haswell", "haswell with sse4_2 avx f16c fma avx2, in vectors of 8 floats", None),
        (
            "xeon_amx",
            f"rocketlake with {' '.join(V3)} avx_vnni {' '.join(V4[len(V3) :])} avx512_vnni avx512_bf16 "
            "amx_tile amx_int8 amx_bf16, in vectors of 16 floats",
            "avx512_fp16: kernels compute in float32 or bf16 or int8",
        ),
    ],
)
def test_the_inventory_lists_the_features_that_kernels_use(
    pretend: Callable[[str], None], file: str, compiled: str, unused: str | None
) -> None:
    pretend(file)
    facts = settings.KIND.inventory().facts
    assert (facts["compiled for"], facts.get("not used")) == (compiled, unused)


def test_settings_override_detected_values() -> None:
    generic = known_processors()[3] if known_processors()[0] == "x86-64-v4" else "generic"
    plain = {"kind": "cpu", "mcpu": generic, "model": "", "features": [], "threads": 1}
    assert describe_cpu(mcpu=generic, threads=1) | {"model": "", "features": []} == plain


def test_a_precision_is_described_if_the_processor_supports_it(pretend: Callable[[str], None]) -> None:
    pretend("epyc_zen4")
    plain = describe_cpu(threads=1)
    assert describe_cpu(threads=1, precision="float32") == plain
    assert describe_cpu(threads=1, precision="bf16") == {**plain, "precision": "bf16"}
    with pytest.raises(TargetError, match="bf16 requires avx512_bf16, avx512vl, which AMD EPYC does not have"):
        describe_cpu(mcpu="x86-64-v3", threads=1, precision="bf16")
    assert describe_cpu(mcpu="x86-64-v3", threads=1, precision="int8")["precision"] == "int8"
    with pytest.raises(TargetError, match="precision int8 requires avx2"):
        describe_cpu(mcpu="x86-64-v2", threads=1, precision="int8")


def test_tiles_suffice_for_a_precision() -> None:
    assert missing_features("bf16", ["avx512f", "amx_tile", "amx_bf16"]) == []
    assert missing_features("bf16", ["avx512f", "amx_tile", "avx512vl"]) == ["avx512_bf16"]
    assert precisions_of(V4) == ("float32", "int8")


def test_weight_types_are_described_on_every_processor() -> None:
    plain = describe_cpu(threads=1)
    assert describe_cpu(threads=1, weights="int4") == {**plain, "weights": "int4"}


def test_settings_beyond_the_machine_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = processor(HASWELL, "x86_64")
    monkeypatch.setattr(settings, "processor", lambda: plain)
    with pytest.raises(TargetError, match=r"mcpu x86-64-v4 requires avx512bw, .* Some CPU: @ 3 GHz does not have"):
        describe_cpu(mcpu="x86-64-v4")
    with pytest.raises(TargetError, match=r"found threads: 100000; this process may use at most \d+"):
        describe_cpu(threads=100_000)
