"""Workers: whatever the called function does, it only costs its own call."""

from __future__ import annotations

import errno
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from anole.errors import BuildError, DeviceLostError, MachineError, MeasureError, TargetError
from anole.host.process import CallFailed, CallTimedOut, Worker, WorkerDied, WorkerTimeout

from ..waiting import becomes_true, has_ended
from .holding import make_holding


def make_misbehaving() -> Callable[..., object]:
    def handle(action: str, argument: object = None) -> object:
        match action:
            case "echo":
                return argument
            case "lose the device":
                raise DeviceLostError(str(argument))
            case "run out of time":
                raise TimeoutError(str(argument))
            case "raise":
                raise ValueError(f"first line\nno good: {argument}")
            case "crash":
                os.kill(os.getpid(), signal.SIGSEGV)
            case "exit":
                os._exit(3)
            case "fail in the system":
                number = int(str(argument))
                raise OSError(number, os.strerror(number), "/tmp/candidate.so")
            case "find a broken build":
                raise BuildError("model.so cannot be loaded: file too short")
            case "miss the target":
                raise TargetError(str(argument))
            case "say on a full disk":
                os.write(2, b"LLVM ERROR: IO failure on output stream: No space left on device\n")
                os._exit(1)
            case "say and exit":
                os.write(2, b"terminate called: out of tiles\n")
                os._exit(1)
            case "hang":
                time.sleep(600)
            case "child":
                return subprocess.Popen(["sleep", "600"]).pid
            case "child and hang":
                Path(str(argument)).write_text(str(subprocess.Popen(["sleep", "600"]).pid))
                time.sleep(600)
            case "environment":
                return os.environ.get(str(argument))
            case "pid":
                return os.getpid()
        return None

    return handle


def fail_to_make() -> Callable[..., object]:
    raise OSError("no such device")


def make_without_hardware() -> Callable[..., object]:
    raise TargetError("no such GPU")


@pytest.mark.parametrize(("grace_s", "is_released"), [(60.0, True), (0.0, False)])
@pytest.mark.parametrize("n_calls", [0, 1])
def test_a_process_with_a_grace_period_releases_its_resources(
    grace_s: float, is_released: bool, n_calls: int, tmp_path: Path
) -> None:
    note = tmp_path / "note"
    with Worker(partial(make_holding, note), grace_s=grace_s) as worker:
        worker.launch()
        for _ in range(n_calls):
            worker.call(timeout_s=60)
    assert note.exists() is is_released


def test_a_process_that_does_not_end_in_time_is_killed() -> None:
    with Worker(make_misbehaving, grace_s=0.2) as worker:
        worker.submit("hang")
        pid = worker.pid
    assert has_ended(pid)


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker(make_misbehaving, environment={"ANOLE_TEST": "seen"}) as worker:
        yield worker


def test_a_call_returns_the_result_and_sees_the_environment(worker: Worker) -> None:
    assert worker.call("echo", [1, "two"], timeout_s=10) == [1, "two"]
    assert worker.call("environment", "ANOLE_TEST", timeout_s=10) == "seen"


_HERE = "^cannot build or run anything here: .*"


@pytest.mark.parametrize(
    ("action", "argument", "error", "message"),
    [
        ("raise", 7, CallFailed, "^ValueError: no good: 7$"),
        ("crash", None, WorkerDied, "SIGSEGV"),
        ("exit", None, WorkerDied, "exited with 3"),
        ("say and exit", None, WorkerDied, "terminate called: out of tiles"),
        ("lose the device", 7, DeviceLostError, "^7$"),
        ("run out of time", 7, CallTimedOut, "^7$"),
        ("miss the target", "no compiler", TargetError, "^no compiler$"),
        # Errors of Anole itself are not searched for faults of the machine.
        ("find a broken build", None, CallFailed, "^BuildError: model.so cannot be loaded: file too short$"),
        ("say on a full disk", None, MachineError, _HERE + "exited with 1: LLVM ERROR: IO failure .*; free some space"),
        ("fail in the system", errno.ENOSPC, MachineError, _HERE + "No space .*free some space where temporary files"),
        ("fail in the system", errno.EROFS, MachineError, _HERE + "Read-only .*set TMPDIR to another folder"),
        ("fail in the system", errno.EMFILE, MachineError, _HERE + "Too many open .*raise the limit of open files"),
        ("fail in the system", errno.ENOMEM, MachineError, _HERE + "allocate memory.*fewer candidates in parallel"),
        ("fail in the system", errno.ENOENT, MachineError, _HERE + "No such file .*candidate.so"),
    ],
)
def test_a_failed_call_says_why_and_the_next_one_works(
    worker: Worker, action: str, argument: object, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        worker.call(action, argument, timeout_s=10)
    assert type(caught.value) is error
    assert worker.call("echo", 1, timeout_s=10) == 1


def test_a_hanging_call_is_killed_with_its_descendants(worker: Worker, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    with pytest.raises(WorkerTimeout):
        worker.call("child and hang", str(note), timeout_s=1.0)
    assert becomes_true(lambda: has_ended(int(note.read_text())))
    assert worker.call("echo", 1, timeout_s=10) == 1


def test_missing_hardware_is_a_target_error_at_each_attempt() -> None:
    with Worker(make_without_hardware) as worker:
        for _ in range(2):
            with pytest.raises(TargetError, match=r"^no such GPU$"):
                worker.submit("pid")


def test_a_worker_is_replaced_after_some_calls_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with Worker(make_misbehaving, calls_before_restart=2) as worker:
        first, second, child, third = (worker.call(what, timeout_s=10) for what in ("pid", "pid", "child", "pid"))
        assert first == second != third and len(list(tmp_path.iterdir())) == 1
    assert becomes_true(lambda: all(map(has_ended, (first, child, third)))) and not list(tmp_path.iterdir())


def test_a_worker_that_fails_to_start_is_a_measure_error() -> None:
    with Worker(fail_to_make) as worker, pytest.raises(MeasureError, match="no such device"):
        worker.call("echo", 1, timeout_s=10)


def test_a_worker_that_cannot_be_pickled_leaves_no_process() -> None:
    worker = Worker(lambda: abs)
    with pytest.raises((AttributeError, pickle.PicklingError), match="lambda"):
        worker.call(1, timeout_s=10)
    worker.kill()


def test_a_worker_dies_with_its_master(tmp_path: Path) -> None:
    script = tmp_path / "master.py"
    script.write_text(
        "import os, signal, sys\n"
        f"sys.path.insert(0, {str(Path(__file__).parents[2])!r})\n"
        "from tests.host.test_process import make_misbehaving\n"
        "from anole.host.process import Worker\n"
        "if __name__ == '__main__':\n"
        "    worker = Worker(make_misbehaving)\n"
        "    open(sys.argv[1], 'w').write(str(worker.call('pid', timeout_s=30)))\n"
        "    worker.submit('hang')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    note = tmp_path / "pid"
    master = subprocess.run([sys.executable, script, note], timeout=60, check=False)
    assert master.returncode == -signal.SIGKILL
    assert becomes_true(lambda: has_ended(int(note.read_text())))


def test_prepare_imports_modules_before_a_worker_starts(tmp_path: Path) -> None:
    (tmp_path / "slow_module.py").write_text("open(__file__ + '.imported', 'w').close()")
    code = f"""
import os, time
from anole.host.process import prepare

prepare(["slow_module"])
while not os.path.exists({str(tmp_path / "slow_module.py.imported")!r}):
    time.sleep(0.05)
"""
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}, check=True, timeout=60)
