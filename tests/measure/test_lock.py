"""The device lock: one timer at a time, whatever process it is in."""

from __future__ import annotations

import fcntl
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from anole.errors import MeasureError
from anole.measure import lock


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock.tempfile, "gettempdir", lambda: str(tmp_path))


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
    monkeypatch.setattr(lock.tempfile, "gettempdir", lambda: str(file))
    with pytest.raises(MeasureError, match="cannot lock the device cpu"), lock.device_lock("cpu"):
        pass
