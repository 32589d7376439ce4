"""The runtime's thread pool: every chunk is computed once, for any callers, within the system's CPU limits."""

from __future__ import annotations

import _ctypes
import ctypes
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anole.errors import MachineError
from anole.targets.cpu import runtime
from anole.targets.cpu.runtime import compile_runtime

from ....examples import examples
from ....waiting import becomes_true

HERE = Path(__file__).parent
SOURCES = Path(runtime.__file__).parent
GROUPS = Path("/sys/fs/cgroup/cpu")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_file(tmp_path_factory.mktemp("loops") / "loops.so", "-shared", "-DANOLE_THREADS=4")


def compile_file(path: Path, *options: str) -> Path:
    command = [runtime.find_compiler(), "-std=c11", "-O2", "-g", "-fPIC", f"-I{SOURCES}", *options]
    subprocess.run([*command, str(HERE / "loops.c"), "-o", str(path), "-lpthread"], check=True)
    return path


@contextmanager
def load_copy(library: Path, folder: Path, threads: str | None = "4") -> Iterator[ctypes.CDLL]:
    """Load a copy of the library, which has a separate pool."""
    copy = folder / f"{time.monotonic_ns()}.so"
    copy.write_bytes(library.read_bytes())
    with pytest.MonkeyPatch.context() as patch:
        if threads is not None:
            patch.setenv("ANOLE_NUM_THREADS", threads)
        found = ctypes.CDLL(str(copy))
        found.run.argtypes = [ctypes.c_int64, ctypes.c_void_p, *[ctypes.c_int] * 4]
        try:
            yield found
        finally:
            _ctypes.dlclose(found._handle)


@pytest.fixture
def loops(library: Path, tmp_path: Path) -> Iterator[ctypes.CDLL]:
    """Return the library with a pool of four threads."""
    with load_copy(library, tmp_path) as found:
        yield found


def visits(
    loops: ctypes.CDLL, extent: int, chunks: int = 0, nested: int = 0, slow_us: int = 0
) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    counts = np.zeros(extent * max(nested, 1), np.int32)
    assert loops.run(extent, counts.ctypes.data, chunks, nested, slow_us, -1) == 0
    return counts


def workers() -> int:
    names = [Path(task, "comm") for task in Path("/proc/self/task").iterdir()]
    return sum(name.read_text().strip() == "anole-worker" for name in names)


@settings(max_examples=examples(30))
@given(
    threads=st.integers(1, 6),
    sizes=st.lists(st.tuples(st.integers(0, 300), st.integers(0, 40)), min_size=1, max_size=20),
)
def test_every_iteration_is_computed_once(
    library: Path, tmp_path_factory: pytest.TempPathFactory, threads: int, sizes: list[tuple[int, int]]
) -> None:
    with load_copy(library, tmp_path_factory.mktemp("copy"), str(threads)) as loops:
        for extent, chunks in sizes:
            assert (visits(loops, extent, chunks) == 1).all()


def test_nested_loops_are_computed(loops: ctypes.CDLL) -> None:
    assert (visits(loops, 20, nested=30) == 1).all()


def test_concurrent_callers_do_not_disturb_each_other(loops: ctypes.CDLL) -> None:
    def wrong(_: int) -> list[int]:
        return [extent for extent in range(1, 400) if (visits(loops, extent) != 1).any()]

    with ThreadPoolExecutor(4) as callers:
        assert list(callers.map(wrong, range(4))) == [[]] * 4


def test_a_worker_that_slept_works_again(loops: ctypes.CDLL) -> None:
    for _ in range(3):
        assert (visits(loops, 64, slow_us=100) == 1).all()
        time.sleep(0.02)


def test_a_child_process_starts_new_workers(loops: ctypes.CDLL) -> None:
    visits(loops, 10)
    child = os.fork()
    if not child:
        right = (visits(loops, 100, slow_us=10) == 1).all() and becomes_true(lambda: workers() == 3)
        os._exit(0 if right else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert (visits(loops, 10) == 1).all()


def test_a_failed_chunk_fails_only_its_own_loop(loops: ctypes.CDLL) -> None:
    counts = np.zeros(50, np.int32)
    assert loops.run(50, counts.ctypes.data, 0, 0, 0, 30) == -1
    assert (visits(loops, 50) == 1).all()


def test_the_workers_end_with_the_library(library: Path, tmp_path: Path) -> None:
    before = workers()
    with load_copy(library, tmp_path) as loops:
        visits(loops, 10)
        assert loops.threads() == 4
        assert becomes_true(lambda: workers() == before + 3)
    assert workers() == before


def test_there_are_no_more_threads_than_processors_for_them(library: Path) -> None:
    assert threads_of_a_process(library, f"os.sched_setaffinity(0, {{{min(os.sched_getaffinity(0))}}})") == 1


def threads_of_a_process(library: Path, first: str) -> int:
    """Return the number of threads of a loop in a process that first runs the given code."""
    code = f"""
import ctypes, os, pathlib
{first}
loops = ctypes.CDLL({str(library)!r})
loops.run(ctypes.c_int64(0), None, 0, 0, 0, -1)
print(loops.threads())
"""
    environment = {name: value for name, value in os.environ.items() if name != "ANOLE_NUM_THREADS"}
    found = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return int(found.stdout)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two processors")
def test_a_caller_bound_to_one_processor_has_workers_on_others(library: Path, tmp_path: Path) -> None:
    with load_copy(library, tmp_path, threads=None) as loops:

        def call() -> None:
            os.sched_setaffinity(threading.get_native_id(), {min(os.sched_getaffinity(0))})
            visits(loops, 10)

        with ThreadPoolExecutor(1) as caller:
            caller.submit(call).result()
        assert loops.threads() > 1


def test_a_quota_of_one_processor_leaves_one_thread(library: Path) -> None:
    group = GROUPS / f"anole-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError:
        pytest.skip("control groups cannot be created here")
    try:
        (group / "cpu.cfs_quota_us").write_text("100000")
        joins = f"pathlib.Path({str(group / 'tasks')!r}).write_text(str(os.getpid()))"
        assert threads_of_a_process(library, joins) == 1
    finally:
        group.rmdir()


def test_the_object_is_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = compile_runtime(2, tmp_path)
    monkeypatch.setenv("PATH", "")
    assert compile_runtime(2, tmp_path) == made
    assert [path.name for path in tmp_path.iterdir()] == [made.name]
    with pytest.raises(MachineError, match="a C compiler is required"):
        compile_runtime(3, tmp_path)


@pytest.mark.slow
def test_there_are_no_data_races(tmp_path: Path) -> None:
    program = compile_file(tmp_path / "stress", "-DSTRESS", "-DANOLE_THREADS=4", "-fsanitize=thread")
    environment = {**os.environ, "ANOLE_NUM_THREADS": "4", "TSAN_OPTIONS": "halt_on_error=1"}
    done = subprocess.run([str(program)], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
