"""A small disk that can be filled and made read-only: a tmpfs in a private mount namespace."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from .processes import Running

_NAMESPACE = ["unshare", "--map-root-user", "--mount"]


def why_no_small_disk() -> str | None:
    """Return the reason why this machine cannot mount small disks; None if it can."""
    try:
        done = subprocess.run([*_NAMESPACE, "true"], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return "unshare, of util-linux, is missing"
    return None if done.returncode == 0 else f"no private mounts: {done.stderr.strip()}"


class SmallDisk(AbstractContextManager["SmallDisk"]):
    """A disk mounted on an empty folder in a private namespace; a context manager that removes it.

    Only the commands that it starts see it there; for this process, its path is `seen`.
    """

    def __init__(self, folder: Path, size_bytes: int = 64 << 20) -> None:
        self.folder = folder
        mount = f"mount -t tmpfs -o size={size_bytes} none '{folder}' && echo mounted && exec sleep infinity"
        self._holder = subprocess.Popen([*_NAMESPACE, "sh", "-c", mount], stdout=subprocess.PIPE)
        assert self._holder.stdout is not None and self._holder.stdout.readline() == b"mounted\n"
        self.seen = Path(f"/proc/{self._holder.pid}/root{folder}")

    def __exit__(self, *_: object) -> None:
        self._holder.kill()
        self._holder.communicate()

    def start(self, *command: str, folder: Path | None = None, environment: Mapping[str, str] | None = None) -> Running:
        """Start a command that sees the disk, in a folder, by default the root of the disk."""
        enter = ["nsenter", f"--target={self._holder.pid}", "--user", "--preserve-credentials", "--mount"]
        there = ["sh", "-c", 'cd "$0" && exec "$@"', str(folder or self.folder)]
        return Running([*enter, *there, *command], Path("/"), environment)

    @contextmanager
    def impose(self, fault: int | str) -> Iterator[None]:
        """Within the block, leave only this many bytes free, in entire pages, or make this folder read-only."""
        if isinstance(fault, int):
            space, ballast = os.statvfs(self.seen), self.seen / "ballast"
            with ballast.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, space.f_bavail * space.f_frsize - fault)
            yield
            ballast.unlink()
        else:
            path = self.folder / fault
            self._mount(f"mount --bind '{path}' '{path}' && mount -o remount,bind,ro '{path}'")
            yield
            self._mount(f"umount '{path}'")

    def _mount(self, command: str) -> None:
        running = self.start("sh", "-c", command, folder=Path("/"))
        assert running.wait() == 0, running.output
