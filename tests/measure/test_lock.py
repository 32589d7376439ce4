"""The device lock: one timer at a time, whatever process it is in."""

from __future__ import annotations

import fcntl
import logging
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from anole.errors import MeasureError
from anole.measure import holder, lock


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANOLE_LOCKS", str(tmp_path))


def held(device: str, mode: int) -> bool:
    handle = os.open(lock.lock_path(device), os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(handle, mode | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def test_a_timed_device_is_nobody_elses() -> None:
    with lock.device_lock("cpu"):
        assert held("cpu", fcntl.LOCK_SH)
        assert not held("other", fcntl.LOCK_EX)
    assert not held("cpu", fcntl.LOCK_EX)


def test_builders_share_but_keep_timers_out() -> None:
    with lock.device_lock("cpu", shared=True):
        assert not held("cpu", fcntl.LOCK_SH)
        assert held("cpu", fcntl.LOCK_EX)


def test_is_released_by_an_error() -> None:
    with pytest.raises(RuntimeError), lock.device_lock("cpu"):
        raise RuntimeError
    assert not held("cpu", fcntl.LOCK_EX)


def test_the_first_idle_device_is_had_alone() -> None:
    with lock.device_lock("a"), lock.idle_device(["a", "b"]) as had:
        assert had == "b"
        assert held("b", fcntl.LOCK_SH)
    assert not held("b", fcntl.LOCK_EX)


def test_one_that_becomes_idle_is_waited_for() -> None:
    def wait() -> str:
        with lock.idle_device(["a", "b"]) as had:
            return had

    with ThreadPoolExecutor() as pool, lock.device_lock("a"):
        with lock.device_lock("b"):
            waiting = pool.submit(wait)
            with pytest.raises(TimeoutError):
                waiting.result(timeout=0.3)
        assert waiting.result(timeout=30) == "b"


def test_a_lock_that_cannot_be_made_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.touch()
    monkeypatch.setenv("ANOLE_LOCKS", str(file))
    with pytest.raises(MeasureError, match="cannot lock the device cpu"), lock.device_lock("cpu"):
        pass


def test_the_place_is_the_same_for_every_user_and_every_folder_of_temporaries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ANOLE_LOCKS")
    usual = lock.lock_path("cpu")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert lock.lock_path("cpu") == usual == Path("/tmp/anole-cpu.lock")


def test_a_symbolic_link_is_not_followed(tmp_path: Path) -> None:
    aim = tmp_path / "aim"
    lock.lock_path("cpu").symlink_to(aim)
    with pytest.raises(MeasureError, match="is a symbolic link; remove it"), lock.device_lock("cpu"):
        pass
    assert not aim.exists()


def test_a_pipe_in_its_place_is_said_and_blocks_nothing() -> None:
    os.mkfifo(lock.lock_path("cpu"))
    with pytest.raises(MeasureError, match="is no regular file; remove it"), lock.device_lock("cpu"):
        pass


def test_a_strict_umask_does_not_lock_other_users_out() -> None:
    before = os.umask(0o077)
    try:
        with lock.device_lock("cpu"):
            assert lock.lock_path("cpu").stat().st_mode & 0o777 == 0o644
    finally:
        os.umask(before)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_users_lock_is_waited_for_too(monkeypatch: pytest.MonkeyPatch) -> None:
    script = (
        "import os; from anole.measure import lock; os.setuid(65534)\n"
        "with lock.device_lock('cpu'): print('held', flush=True)"
    )
    # Other users do not reach pytest's own folders.
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o1777)
        monkeypatch.setenv("ANOLE_LOCKS", folder)
        with lock.device_lock("cpu"):
            command = [sys.executable, "-c", script]
            other = subprocess.Popen(command, stdout=subprocess.PIPE, env=_with_library(Path(folder)))
            with pytest.raises(subprocess.TimeoutExpired):
                other.wait(0.5)
        assert other.communicate(timeout=30)[0] == b"held\n"


@contextmanager
def another_holder(tmp_path: Path, how: str = "") -> Iterator[subprocess.Popen[bytes]]:
    """Runs a process that holds the processor until its standard input is closed."""
    script = (
        "import sys; from anole.measure import lock; from anole.measure.holder import working_on\n"
        f"with working_on('dense 4->5'), lock.device_lock('cpu'{how}): print('held', flush=True); sys.stdin.read()"
    )
    pipe, environment = subprocess.PIPE, _with_library(tmp_path)
    with subprocess.Popen([sys.executable, "-c", script], stdin=pipe, stdout=pipe, env=environment) as other:
        assert other.stdout is not None and other.stdin is not None and other.stdout.readline() == b"held\n"
        try:
            yield other
        finally:
            other.stdin.close()
            other.wait(30)


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Tells after a tenth of a second, and then every third of a second."""
    monkeypatch.setattr(holder, "_TOLD_AFTER_S", 0.1)
    monkeypatch.setattr(holder, "_TOLD_EVERY_S", 0.35)
    monkeypatch.setattr(holder, "_told_at_s", {})
    caplog.set_level(logging.INFO)


def wait_while(other: subprocess.Popen[bytes], seconds: float) -> None:
    """Waits for the processor, which a process gives back after some seconds."""
    assert other.stdin is not None
    threading.Timer(seconds, other.stdin.close).start()
    with lock.device_lock("cpu", shared=True):
        pass


def test_who_is_waited_for_is_told(tmp_path: Path, soon: None, caplog: pytest.LogCaptureFixture) -> None:
    with another_holder(tmp_path) as other:
        wait_while(other, 0.3)
    (told,) = caplog.messages
    since = r"\d\d:\d\d:\d\d"
    assert re.match(rf"waiting for the device cpu: process {other.pid} for dense 4->5 since {since} \(", told)
    assert f"({sys.executable} -c import sys;" in told and told.endswith(f"...) holds {lock.lock_path('cpu')}")
    assert lock.lock_path("cpu").read_bytes() == b""


@pytest.mark.guard
def test_a_long_wait_is_told_again_and_two_short_ones_not_twice(
    tmp_path: Path, soon: None, caplog: pytest.LogCaptureFixture
) -> None:
    with another_holder(tmp_path) as other:
        wait_while(other, 0.95)
    first, *later = caplog.messages
    assert (
        "after" not in first
        and 1 <= len(later) <= 3
        and all(re.search(r", after \d+ s: process ", told) for told in later)
    )
    caplog.clear()
    for _ in range(2):
        with another_holder(tmp_path) as other:
            wait_while(other, 0.15)
    assert len(caplog.messages) <= 2


def test_several_that_build_are_told_by_the_kernel(
    tmp_path: Path, soon: None, caplog: pytest.LogCaptureFixture
) -> None:
    with another_holder(tmp_path, ", shared=True") as one, another_holder(tmp_path, ", shared=True") as two:
        told = holder._listed(lock.lock_path("cpu"))
    assert f"process {one.pid} (" in told and f"process {two.pid} (" in told


def test_what_a_killed_holder_noted_is_believed_no_longer(tmp_path: Path) -> None:
    path = lock.lock_path("cpu")
    with another_holder(tmp_path) as killed:
        killed.kill()
        killed.wait()
    noted = holder.read_holder(path)
    assert noted is not None and noted.pid == killed.pid and noted.work == "dense 4->5"
    handle = lock._locked("cpu", fcntl.LOCK_EX)
    assert f"process {os.getpid()} (" in holder._listed(path)
    os.close(handle)
    with lock.device_lock("cpu", shared=True):
        assert path.read_bytes() == b""


@pytest.mark.parametrize(
    "content",
    [
        b"another program's",
        b'{"anole_holder":',
        b'{"anole_holder": {"pid": 1}}',
        b'{"anole_holder": {"pid": 1, "command": "", "work": "", "since": 1e300}}',
        b'{"anole_holder": [1]}\xff',
    ],
)
def test_what_is_no_note_is_no_error(content: bytes) -> None:
    path = lock.lock_path("cpu")
    path.write_bytes(content)
    assert holder.read_holder(path) is None
    with lock.device_lock("cpu"):
        assert (holder.read_holder(path) is None) == content.startswith(b"another")
        assert f"process {os.getpid()}" in holder._listed(path)
    assert path.read_bytes() == (content if content.startswith(b"another") else b"")


def test_a_file_that_was_removed_while_it_was_waited_for_locks_nothing() -> None:
    path = lock.lock_path("cpu")
    with ThreadPoolExecutor() as pool:
        with lock.device_lock("cpu"):
            waiting = pool.submit(lambda: lock._locked("cpu", fcntl.LOCK_EX))
            with pytest.raises(TimeoutError):
                waiting.result(timeout=0.3)
            path.unlink()
            path.touch()
        handle = waiting.result(timeout=30)
    assert held("cpu", fcntl.LOCK_SH)
    os.close(handle)


def _with_library(locks: Path) -> dict[str, str]:
    library = str(Path(lock.__file__).parents[2])
    path = os.pathsep.join([library, *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path, "ANOLE_LOCKS": str(locks)}
