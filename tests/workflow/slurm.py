"""A real slurm cluster of two nodes on this host, started and stopped by tests."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

NODES = ("zen1", "zen2")
PARTITION = "amd"
FEATURE = "zen"

# Snakemake's job step looks for it here, and hides the variable that could name another path.
_CONF = Path("/etc/slurm/slurm.conf")
_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "srun", "scancel", "scontrol")
_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
_STARTS_S = 30.0


def why_slurm_cannot_start() -> str | None:
    """Return why slurm cannot be started here; None if it can."""
    missing = [program for program in _PROGRAMS if shutil.which(program, path=_PATH) is None]
    if missing:
        return f"slurm is not installed: there is no {missing[0]}"
    if os.geteuid() != 0:
        return "slurm's daemons need root to run jobs"
    return f"{_CONF} belongs to another slurm" if _CONF.exists() else None


class Slurm:
    """A context manager with a controller, its authentication, and one daemon for each node."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._daemons: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        self.folder.chmod(0o755)
        _CONF.parent.mkdir(exist_ok=True)
        _CONF.write_text(self._conf())
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for daemon in reversed(self._daemons):
            daemon.terminate()
        for daemon in self._daemons:
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()
        _CONF.unlink()

    def ask(self, *command: str) -> str:
        """Return the output of a slurm command."""
        done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, "PATH": _PATH})
        return done.stdout.strip()

    def running(self) -> dict[str, str]:
        """Return the running job of each busy node."""
        rows = self.ask("squeue", "--noheader", "--states=running", "--format=%N %A").splitlines()
        return dict(row.split() for row in rows)

    def drain(self, node: str) -> None:
        """Prevent new jobs from starting on a node."""
        self.ask("scontrol", "update", f"nodename={node}", "state=drain", "reason=test")

    def resume(self, node: str) -> None:
        """Let jobs start on a drained node again."""
        self.ask("scontrol", "update", f"nodename={node}", "state=resume")

    def kill(self, job: str) -> None:
        self.ask("scancel", "--signal=KILL", "--full", job)

    def _start(self) -> None:
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        names = {"key-file": "key", "socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
        files = [f"--{name}={self.folder}/munge.{ending}" for name, ending in names.items()]
        self._run("munged", "--foreground", "--force", *files)
        until((self.folder / "munge.socket").exists, "munged's socket")
        self._run("slurmctld", "-D", "-i")
        for node in NODES:
            self._run("slurmd", "-D", "-N", node)
        until(lambda: self.ask("sinfo", "--noheader", "--format=%t").split() == ["idle"], "idle nodes")

    def _run(self, *command: str) -> None:
        program = shutil.which(command[0], path=_PATH)
        assert program is not None
        output = (self.folder / f"{len(self._daemons)}.out").open("wb")
        self._daemons.append(subprocess.Popen([program, *command[1:]], stdout=output, stderr=output))

    def _conf(self) -> str:
        ports = _free_ports(1 + len(NODES))
        host, cores = platform.node(), len(os.sched_getaffinity(0))
        memory_mb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20
        address = f"NodeHostname={host} NodeAddr=127.0.0.1"
        size = f"CPUs={cores} RealMemory={memory_mb // len(NODES)} Feature={FEATURE}"
        nodes = [f"NodeName={node} {address} Port={port} {size}" for node, port in zip(NODES, ports[1:], strict=True)]
        settings = {
            "ClusterName": "anole",
            "SlurmctldHost": f"{host}(127.0.0.1)",
            "SlurmctldPort": ports[0],
            "SlurmUser": "root",
            "SlurmdUser": "root",
            "AuthInfo": f"socket={self.folder}/munge.socket",
            "ProctrackType": "proctrack/linuxproc",
            "TaskPlugin": "task/none",
            "SelectType": "select/cons_tres",
            "SelectTypeParameters": "CR_Core_Memory",
            "AccountingStorageType": "accounting_storage/none",
            "MinJobAge": 600,
            "ReturnToService": 2,
            "StateSaveLocation": f"{self.folder}/state",
            "SlurmdSpoolDir": f"{self.folder}/%n",
            "SlurmctldPidFile": f"{self.folder}/slurmctld.pid",
            "SlurmdPidFile": f"{self.folder}/%n.pid",
            "SlurmctldLogFile": f"{self.folder}/slurmctld.log",
            "SlurmdLogFile": f"{self.folder}/%n.log",
            "PartitionName": f"{PARTITION} Nodes={','.join(NODES)} Default=YES",
        }
        for name in ("state", *NODES):
            (self.folder / name).mkdir()
        partition = settings.pop("PartitionName")
        lines = [f"{name}={value}" for name, value in settings.items()]
        return "\n".join([*lines, *nodes, f"PartitionName={partition}", ""])


def until(holds: Callable[[], bool], what: str, seconds: float = _STARTS_S) -> None:
    """Wait until a condition holds.

    Raises:
        TimeoutError: it does not hold in time.
    """
    end_s = time.monotonic() + seconds
    while not _holds_safely(holds):
        if time.monotonic() > end_s:
            raise TimeoutError(f"{what}: not within {seconds:.0f} s")
        time.sleep(0.2)


def _holds_safely(holds: Callable[[], bool]) -> bool:
    try:
        return holds()
    except subprocess.CalledProcessError:
        return False


def _free_ports(n: int) -> Sequence[int]:
    sockets = [socket.socket() for _ in range(n)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
