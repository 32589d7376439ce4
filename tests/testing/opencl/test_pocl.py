"""PoCL's process: what it computes, what it says of kernels that misbehave, and that it outlives them."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

import numpy as np
import pytest

from anole.errors import TargetError
from anole.testing.opencl import pocl as module
from anole.testing.opencl.pocl import Method, Pocl, PoclError

from .kernels import INPUT, SIZE, launches_of

REVERSED = "__local float tile[64]; tile[i] = data_ptr[i]; barrier(CLK_LOCAL_MEM_FENCE); out_ptr[i] = tile[63 - i];"


def started(method: Method) -> Iterator[Pocl]:
    pocl = Pocl(method, timeout_s=20.0)
    try:
        pocl.__enter__()
    except TargetError as error:
        pytest.skip(str(error))
    yield pocl
    pocl.__exit__()


@pytest.fixture(scope="module")
def pocl() -> Iterator[Pocl]:
    yield from started(Method.AUTO)


@pytest.mark.parametrize("method", Method)
def test_work_items_meet_at_barriers(method: Method) -> None:
    for pocl in started(method):
        ran = pocl.run(launches_of(REVERSED), INPUT)
        assert ran.output.tolist() == INPUT["data"][::-1].tolist() and not ran.damaged
        assert "PoCL" in pocl.version


def test_launches_run_in_order_and_keep_buffers(pocl: Pocl) -> None:
    body = "out_ptr[i] = isnan(out_ptr[i]) ? data_ptr[i] : out_ptr[i] + 1;"
    assert pocl.run(launches_of(body, SIZE, "first", "second"), INPUT).output.tolist() == list(range(1, 65))


def test_what_is_not_written_is_nan(pocl: Pocl) -> None:
    assert np.isnan(pocl.run(launches_of("if (i) out_ptr[i] = 0;"), INPUT).output).tolist() == [True] + 63 * [False]


@pytest.mark.parametrize(
    ("body", "damaged"),
    [
        ("out_ptr[i + 1] = 0;", ("out",)),
        ("out_ptr[i - 1] = 0;", ("out",)),
        ("data_ptr[i] = -1;", ("data",)),
        ("data_ptr[i - 1] = i - 1; out_ptr[i + 1] = 0;", ("data", "out")),
    ],
)
def test_writes_beside_a_buffer_and_into_an_input_are_found(pocl: Pocl, body: str, damaged: tuple[str, ...]) -> None:
    assert pocl.run(launches_of(body), INPUT).damaged == damaged


def test_a_source_that_does_not_compile_is_an_error_with_its_message(pocl: Pocl) -> None:
    with pytest.raises(PoclError, match="nonsense"):
        pocl.run(launches_of("nonsense;"), INPUT)


def test_a_kernel_that_ends_the_process_is_an_error_and_the_next_runs(pocl: Pocl) -> None:
    with pytest.raises(PoclError, match="its process exited with -"):
        pocl.run(launches_of("*(volatile __global float*)(out_ptr + (1L << 40)) = 0;"), INPUT)
    assert not pocl.run(launches_of("out_ptr[i] = 1;"), INPUT).damaged


def test_a_kernel_that_does_not_end_is_an_error_and_the_next_runs(pocl: Pocl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pocl, "_timeout_s", 2.0)
    with pytest.raises(PoclError, match="not done within 2 s"):
        pocl.run(launches_of("while (((volatile __global float*)out_ptr)[0] != 5) {}", 1), INPUT)
    monkeypatch.undo()
    assert not pocl.run(launches_of("out_ptr[i] = 1;"), INPUT).damaged


def test_without_pyopencl_the_reason_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(TargetError, match=r"found no pyopencl.*pocl-opencl-icd"):
        Pocl().__enter__()


def test_without_a_pocl_that_runs_the_reason_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    if find_spec("pyopencl") is None:
        pytest.skip("found no pyopencl")
    monkeypatch.setenv("POCL_DEVICES", "nonsense")
    with pytest.raises(TargetError, match=r"PoCL does not run here, see Debian's package pocl-opencl-icd: \w+"):
        Pocl().__enter__()
