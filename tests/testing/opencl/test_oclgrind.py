"""Oclgrind's reports: each kind of mistake is counted as what it is, and a right kernel is clean."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from anole.errors import TargetError
from anole.testing.opencl import oclgrind
from anole.testing.opencl.oclgrind import OclgrindError, Report, absence, check

from .kernels import INPUT, SIZE, launches_of

needs_oclgrind = pytest.mark.skipif(absence() is not None, reason=absence() or "")
KINDS = ("races", "invalid_accesses", "divergences", "uninitialised")
TILE = "__local float tile[64]; "


def checked(body: str, threads: int = SIZE) -> Report:
    return check(launches_of(body, threads), INPUT)


def found(report: Report) -> set[str]:
    return {kind for kind in KINDS if getattr(report, kind)}


@needs_oclgrind
def test_a_right_kernel_is_clean_and_its_output_is_exact() -> None:
    report = checked(TILE + "tile[i] = data_ptr[i] / 3; barrier(CLK_LOCAL_MEM_FENCE); out_ptr[i] = tile[63 - i];")
    assert report.is_clean and report.first == ()
    assert report.output.tolist() == (INPUT["data"][::-1] / np.float32(3)).tolist()


@needs_oclgrind
def test_launches_run_in_order_and_keep_buffers() -> None:
    body = "out_ptr[i] = isnan(out_ptr[i]) ? data_ptr[i] : out_ptr[i] + 1;"
    assert check(launches_of(body, SIZE, "first", "second"), INPUT).output.tolist() == list(range(1, 65))


@needs_oclgrind
@pytest.mark.parametrize(
    ("body", "kinds"),
    [
        (TILE + "tile[i] = data_ptr[i]; out_ptr[i] = tile[i ^ 1];", {"races", "uninitialised"}),
        ("out_ptr[i / 2] = data_ptr[i];", {"races"}),
        ("out_ptr[0] = 1;", {"races"}),
        ("out_ptr[i + 1] = 1;", {"invalid_accesses"}),
        ("out_ptr[i] = data_ptr[i - 1];", {"invalid_accesses", "uninitialised"}),
        (TILE + "tile[i + 1] = 1; out_ptr[i] = 1;", {"invalid_accesses"}),
        ("float own[4]; own[i & 7] = 1; out_ptr[i] = 1;", {"invalid_accesses"}),
        ("if (i < 32) barrier(CLK_LOCAL_MEM_FENCE); out_ptr[i] = 1;", {"divergences"}),
        (TILE + "out_ptr[i] = tile[i];", {"uninitialised"}),
        ("float own[4]; out_ptr[i] = own[i & 3] > 0 ? 1 : 2;", {"uninitialised"}),
    ],
)
def test_a_mistake_is_counted_as_what_it_is(body: str, kinds: set[str]) -> None:
    report = checked(body)
    assert found(report) == kinds and not report.is_clean and len(report.first) == len(kinds)


@needs_oclgrind
@pytest.mark.parametrize("n", [2, 4])
def test_a_vector_that_is_not_aligned_is_invalid_as_in_cuda(n: int) -> None:
    zeros = "for (int k = 0; k < 64; ++k) tile[k] = 0;"
    for body in (f"vstore{n}(vload{n}(0, data_ptr + AT), 0, tile);", f"vstore{n}(vload{n}(0, tile + AT), 0, out_ptr);"):
        kernel = f"{TILE} {zeros} {body} out_ptr[{n}] = tile[0];"
        assert checked(kernel.replace("AT", str(n)), 1).is_clean
        assert found(checked(kernel.replace("AT", "1"), 1)) == {"invalid_accesses"}


@needs_oclgrind
def test_a_source_that_does_not_compile_is_an_error_with_its_message() -> None:
    with pytest.raises(OclgrindError, match="nonsense"):
        checked("nonsense;")


@needs_oclgrind
def test_a_kernel_that_does_not_end_is_an_error() -> None:
    with pytest.raises(OclgrindError, match="not done within 1 s"):
        check(launches_of("while (out_ptr[0] != 5) {}", 1), INPUT, timeout_s=1.0)


def stub(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    tool = folder / "oclgrind-kernel"
    tool.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    tool.chmod(0o755)
    monkeypatch.setattr(oclgrind, "absence", lambda: None)
    monkeypatch.setenv("PATH", str(folder), prepend=":")


def test_a_message_that_is_not_known_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dumped = 'for i in $(seq 0 63); do echo "  data_ptr[$i] = 0"; echo "  out_ptr[$i] = 0"; done'
    stub(tmp_path, monkeypatch, f"{dumped}; printf '\\nUnheard of\\n\\tKernel: run\\n' >&2")
    with pytest.raises(OclgrindError, match="said something unknown: Unheard of"):
        checked("")


def test_buffers_that_are_not_whole_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stub(tmp_path, monkeypatch, 'echo "  out_ptr[0] = 0"')
    with pytest.raises(OclgrindError, match="not the whole buffers"):
        checked("")


def test_without_oclgrind_the_reason_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    absence.cache_clear()
    monkeypatch.setenv("PATH", "")
    try:
        with pytest.raises(TargetError, match=r"found no oclgrind-kernel.*package oclgrind"):
            checked("")
    finally:
        absence.cache_clear()
