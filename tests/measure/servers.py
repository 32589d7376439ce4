"""TVM's RPC tracker and servers as separate processes, which tests can kill."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from anole.measure.options import Limits, Retries
from anole.targets.rpc.address import Remote

ROOT = Path(__file__).parents[2]
HOST = "127.0.0.1"
START_S = 60.0

LIMITS = Limits(connect_s=START_S)
QUICK = Retries(first_s=0.1, longest_s=0.5, total_s=60.0)
SHORT = Retries(first_s=0.1, longest_s=0.2, total_s=0.5)


class Process:
    """A Python module that listens on a port."""

    def __init__(self, folder: Path, *module: str) -> None:
        self.port = free_port()
        self._command = [sys.executable, "-m", *(part.format(port=self.port) for part in module)]
        self._log = folder / f"{self.port}.log"
        (folder / "torch.py").write_text("raise ImportError('not needed')\n")
        path = os.pathsep.join([str(folder), str(ROOT / "lib"), *filter(None, [os.environ.get("PYTHONPATH")])])
        self._process: subprocess.Popen[bytes] | None = None
        self._environment = {**os.environ, "PYTHONPATH": path, "TVM_NUM_THREADS": "1"}

    def start(self) -> None:
        """Start it, and wait until it listens."""
        self.launch()
        self.await_listening()

    def launch(self) -> None:
        """Start it."""
        self._process = self._open()

    def await_listening(self) -> None:
        """Wait until it listens."""
        ends_s = time.monotonic() + START_S
        while not listens(self.port):
            assert self.is_running and time.monotonic() < ends_s, self._log.read_text()
            time.sleep(0.05)

    @property
    def process(self) -> psutil.Process:
        assert self._process is not None, "it was not started"
        return psutil.Process(self._process.pid)

    @property
    def n_loaded(self) -> int:
        """Number of candidates that a server has loaded."""
        return self._log.read_text().count("load_module")

    @property
    def is_running(self) -> bool:
        """Whether it was started and not killed since."""
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """Kill it and all processes that it started."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _open(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen(
                self._command, env=self._environment, stdout=log, stderr=log, start_new_session=True
            )


def tracker(folder: Path) -> Process:
    return Process(folder, "tvm.exec.rpc_tracker", "--host", HOST, "--port", "{port}", "--port-end", "65535")


def server(folder: Path, tracker_port: int | None = None, key: str = "") -> Process:
    """Return TVM's own server, registered with a tracker under a key if given."""
    # TVM sets no start method, and with the default of Python 3.14 a session takes seconds to begin.
    (folder / "sitecustomize.py").write_text("import multiprocessing\nmultiprocessing.set_start_method('fork')\n")
    known = ["--tracker", f"{HOST}:{tracker_port}", "--key", key] if tracker_port is not None else []
    return Process(folder, "tvm.exec.rpc_server", "--host", HOST, "--port", "{port}", "--port-end", "65535", *known)


def at(processes: Sequence[Process]) -> Remote:
    """Return the addresses of servers without a tracker."""
    (_, first), *others = [(HOST, process.port) for process in processes]
    return Remote(HOST, first, others=tuple(others))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0
