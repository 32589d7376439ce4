"""Temporary files of killed processes: the next process removes them, and no others."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from anole.host.tempdirs import PREFIX, sweep, use_private_temp_folder

LIBRARY = Path(__file__).parents[2] / "lib"
MAKER = """
import os, signal, sys, tempfile, multiprocessing
from multiprocessing import util
from anole.host.tempdirs import use_private_temp_folder

def work():
    tempfile.mkstemp()

if __name__ == "__main__":
    with use_private_temp_folder():
        tempfile.mkdtemp()
        tempfile.mkstemp(prefix="anole-worker-")
        process = multiprocessing.get_context("forkserver").Process(target=work)
        process.start()
        process.join()
        print(tempfile.gettempdir(), util.get_temp_dir(), sep="\\n", flush=True)
        if sys.argv[1:]:
            sys.stdin.read()
"""


@pytest.fixture
def maker() -> Iterator[Path]:
    # The length of the paths of multiprocessing's sockets is limited; other temporary folders may be too long.
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        (Path(folder) / "maker.py").write_text(MAKER)
        (Path(folder) / "temporary").mkdir()
        yield Path(folder) / "maker.py"


def start(maker: Path, *arguments: str) -> subprocess.Popen[str]:
    path = os.pathsep.join([str(LIBRARY), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "TMPDIR": str(maker.parent / "temporary"), "PYTHONPATH": path}
    return subprocess.Popen(
        [sys.executable, maker, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


@pytest.mark.parametrize(
    ("longer", "letter"),
    [(None, ""), (0, "x"), (0, "ö"), (60, "x"), (60, "ö")],
    ids=["short", *(f"{paths} of sockets too long" for paths in ("own", "own ö", "default", "default ö"))],
)
def test_a_process_that_ends_leaves_nothing(maker: Path, longer: int | None, letter: str) -> None:
    maker = maker if longer is None else lengthen(maker, longer, letter)
    output = start(maker).communicate(timeout=60)
    assert output[1] == "" and leftovers(maker) == []


def test_a_folder_for_sockets_of_a_killed_process_is_removed_by_the_next(maker: Path) -> None:
    maker = lengthen(maker, 60, "x")
    killed = start(maker, "wait")
    assert killed.stdout is not None
    own, sockets = (Path(killed.stdout.readline().strip()) for _ in range(2))
    assert own.is_relative_to(maker.parent) and not sockets.is_relative_to(maker.parent) and sockets.exists()
    killed.kill()
    killed.wait()
    start(maker).communicate(timeout=60)
    assert leftovers(maker) == [] and not sockets.exists()


def lengthen(maker: Path, longer: int, letter: str) -> Path:
    """Move the program to a folder where the paths of sockets exceed the limit by `longer` bytes."""
    room = 107 - len("/pymp-12345678/listener-12345678") + longer
    long = maker.parent / (letter * ((room - len(os.fsencode(f"{maker.parent}//temporary"))) // len(letter.encode())))
    long.mkdir()
    maker = maker.rename(long / "maker.py")
    (long / "temporary").mkdir()
    return maker


def leftovers(maker: Path) -> list[Path]:
    return list((maker.parent / "temporary").iterdir())


def test_only_the_folder_of_a_killed_process_is_removed_by_the_next(maker: Path) -> None:
    killed, living = start(maker, "wait"), start(maker, "wait")
    folders = []
    for process in (killed, living):
        assert process.stdout is not None
        folders.append(Path(process.stdout.readline().strip()))
    assert sorted(leftovers(maker)) == sorted(folders)
    # A log, a folder, its child's file, and multiprocessing's folder.
    assert len(list(folders[0].iterdir())) == 4
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert folders[0].exists()
    start(maker).communicate(timeout=60)
    assert leftovers(maker) == [folders[1]]
    assert living.communicate("", timeout=60)[1] == "" and leftovers(maker) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
def test_another_users_folder_stays(tmp_path: Path) -> None:
    other = tmp_path / f"{PREFIX}other"
    other.mkdir()
    os.chown(other, 65534, 65534)
    sweep(tmp_path)
    assert other.exists()


def test_links_and_folders_in_use_or_of_other_programs_stay(tmp_path: Path) -> None:
    aim, temporary = tmp_path / "aim", tmp_path / "temporary"
    abandoned, used = (temporary / f"{PREFIX}{name}" for name in ("abandoned", "used"))
    for folder in (aim / "full", temporary / "anole-12345678" / "full", temporary / "own", abandoned / "full", used):
        folder.mkdir(parents=True)
    (temporary / f"{PREFIX}link").symlink_to(aim)
    (temporary / f"{PREFIX}file").touch()
    handle, before = os.open(used, os.O_RDONLY), set(temporary.iterdir())
    fcntl.flock(handle, fcntl.LOCK_EX)
    sweep(temporary)
    assert before - set(temporary.iterdir()) == {abandoned}
    assert (aim / "full").exists() and (temporary / "anole-12345678" / "full").exists()
    os.close(handle)
    sweep(temporary)
    assert not used.exists()


def test_without_a_temporary_folder_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/no/such/folder")
    monkeypatch.delenv("TMPDIR", raising=False)
    with use_private_temp_folder():
        assert "TMPDIR" not in os.environ
