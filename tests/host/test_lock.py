"""The device lock: only one process at a time may use a device for timing."""

from __future__ import annotations

import fcntl
import logging
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from anole.errors import MeasureError
from anole.host import lock


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANOLE_LOCKS", str(tmp_path))


def is_held(device: str, mode: int) -> bool:
    handle = os.open(lock.lock_path(device), os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(handle, mode | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


@pytest.mark.parametrize("shared", [True, False])
def test_builders_share_a_device_and_a_timer_holds_it_alone(shared: bool) -> None:
    path = lock.lock_path("cpu")
    path.write_bytes(b"another program's")
    with pytest.raises(RuntimeError), lock.lock_device("cpu", shared=shared):
        assert is_held("cpu", fcntl.LOCK_SH) is not shared and is_held("cpu", fcntl.LOCK_EX)
        assert not is_held("other", fcntl.LOCK_EX)
        raise RuntimeError
    assert not is_held("cpu", fcntl.LOCK_EX) and path.read_bytes() == b"another program's"


def test_the_first_idle_device_is_held_exclusively() -> None:
    with lock.lock_device("a"), lock.lock_idle_device(["a", "b"]) as device:
        assert device == "b"
        assert is_held("b", fcntl.LOCK_SH)
    assert not is_held("b", fcntl.LOCK_EX)


def test_idle_device_waits_for_a_device() -> None:
    def wait() -> str:
        with lock.lock_idle_device(["a", "b"]) as device:
            return device

    with ThreadPoolExecutor() as pool, lock.lock_device("a"):
        with lock.lock_device("b"):
            waiting = pool.submit(wait)
            with pytest.raises(TimeoutError):
                waiting.result(timeout=0.3)
        assert waiting.result(timeout=30) == "b"


def test_the_lock_path_is_the_same_for_every_user_and_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ANOLE_LOCKS")
    default = lock.lock_path("cpu")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert lock.lock_path("cpu") == default == Path("/tmp/anole-cpu.lock")


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda path: path.symlink_to(path.with_name("aim")), "it is a symbolic link; remove it$"),
        (os.mkfifo, " is not a regular file; remove it$"),
        (Path.mkdir, " is not a regular file; remove it$"),
        (lambda path: (path.parent.rmdir(), path.parent.touch()), r"\[Errno 20\]"),
    ],
    ids=["link", "pipe", "folder", "no folder"],
)
def test_an_unusable_lock_file_is_reported(tmp_path: Path, make: Callable[[Path], object], problem: str) -> None:
    path = lock.lock_path("cpu")
    make(path)
    message = f"^cannot lock the device cpu: {path}.*{problem}"
    with pytest.raises(MeasureError, match=message), lock.lock_device("cpu"):
        pass
    assert not (tmp_path / "aim").exists()


def test_a_strict_umask_does_not_lock_other_users_out() -> None:
    before = os.umask(0o077)
    try:
        with lock.lock_device("cpu"):
            assert lock.lock_path("cpu").stat().st_mode & 0o777 == 0o644
    finally:
        os.umask(before)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_users_lock_is_waited_for_too(monkeypatch: pytest.MonkeyPatch) -> None:
    script = (
        "import os; from anole.host import lock; os.setuid(65534)\n"
        "with lock.lock_device('cpu'): print('held', flush=True)"
    )
    # Other users have no access to pytest's folders.
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o1777)
        monkeypatch.setenv("ANOLE_LOCKS", folder)
        with lock.lock_device("cpu"):
            command = [sys.executable, "-c", script]
            other = subprocess.Popen(command, stdout=subprocess.PIPE, env=_with_library(Path(folder)))
            with pytest.raises(subprocess.TimeoutExpired):
                other.wait(0.5)
        assert other.communicate(timeout=30)[0] == b"held\n"


@contextmanager
def run_holder(tmp_path: Path, how: str = "") -> Iterator[subprocess.Popen[bytes]]:
    """Run a process that holds the processor until its standard input is closed."""
    script = (
        "import sys; from anole.host import lock\n"
        f"with lock.lock_device('cpu'{how}): print('held', flush=True); sys.stdin.read()"
    )
    pipe, environment = subprocess.PIPE, _with_library(tmp_path)
    with subprocess.Popen([sys.executable, "-c", script], stdin=pipe, stdout=pipe, env=environment) as other:
        assert other.stdout is not None and other.stdin is not None and other.stdout.readline() == b"held\n"
        try:
            yield other
        finally:
            other.stdin.close()
            other.wait(30)


def test_the_holder_is_logged_from_time_to_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(lock, "_LOG_AFTER_S", 0.05)
    monkeypatch.setattr(lock, "_logged_at_s", {})
    caplog.set_level(logging.INFO)
    for every_s, min_lines, max_lines in ((60.0, 1, 1), (60.0, 0, 0), (0.1, 2, 6)):
        monkeypatch.setattr(lock, "_LOG_EVERY_S", every_s)
        caplog.clear()
        with run_holder(tmp_path) as other:
            assert other.stdin is not None
            threading.Timer(0.3, other.stdin.close).start()
            with lock.lock_device("cpu", shared=True):
                pass
        assert min_lines <= len(caplog.messages) <= max_lines
        # The last line may be logged while the device changes hands.
        for message in caplog.messages[:1]:
            command = f"{Path(sys.executable).name} -c import sys; from anole.host import lock with"
            assert message.startswith(f"waiting for the device cpu: process {other.pid} ({command}")
            assert message.endswith(f") holds {lock.lock_path('cpu')}")


def test_several_holders_are_described_until_they_end(tmp_path: Path) -> None:
    with run_holder(tmp_path, ", shared=True") as one, run_holder(tmp_path, ", shared=True") as two:
        described = lock._holders(lock.lock_path("cpu"))
    assert f"process {one.pid} (" in described and f"process {two.pid} (" in described
    assert lock._holders(lock.lock_path("cpu")) == lock._holders(tmp_path / "none") == "another process"


def test_a_lock_file_that_is_replaced_during_the_wait_is_opened_again() -> None:
    path = lock.lock_path("cpu")
    with ThreadPoolExecutor() as pool:
        with lock.lock_device("cpu"):
            waiting = pool.submit(lambda: lock._wait_for_lock("cpu", shared=False))
            with pytest.raises(TimeoutError):
                waiting.result(timeout=0.3)
            path.unlink()
            path.touch()
        handle = waiting.result(timeout=30)
    assert is_held("cpu", fcntl.LOCK_SH)
    os.close(handle)


def _with_library(locks: Path) -> dict[str, str]:
    library = str(Path(lock.__file__).parents[2])
    path = os.pathsep.join([library, *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path, "ANOLE_LOCKS": str(locks)}
