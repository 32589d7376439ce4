"""Runners of CPU candidates, local and remote: load, check and time them, with weights read from memory."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import cycle, repeat
from pathlib import Path
from typing import Any

import tvm
from numpy.typing import NDArray
from tvm import rpc

from anole.errors import TargetError
from anole.record import Config
from anole.targets.base import Template
from anole.targets.rpc.runner import Conditions, SessionRunner, convert_session_errors
from anole.targets.shared.reference import Example
from anole.task import Workload

_COLD_BYTES = 48 << 20
"""Bytes read before a weight copy is reused; in a network, other layers' weights evict it from the cache."""

_MAX_COPIES = 64

_MAX_TOTAL_BYTES = 256 << 20
"""Maximum total size of the copies of all layouts."""


class CpuRunner:
    """A runner of candidates of one workload on the same inputs.

    As in a network, the data is warm, because the previous layer has just written it, and the weights come from memory:
    every run reads a different copy, which is reused after `cold_bytes`; with 0 bytes, the weights stay warm. If both
    operands are activations, both are warm.
    """

    def __init__(self, template: Template, workload: Workload, cold_bytes: int = _COLD_BYTES) -> None:
        self._example = Example.draw(workload)
        cold_bytes = cold_bytes if workload.constant_weight else 0
        self._weights = WeightCopies(template, workload, self._example.weight, cold_bytes)
        self._data = tvm.runtime.tensor(self._example.data)
        self._more = [tvm.runtime.tensor(operand) for operand in self._example.more]

    def load(self, artifact: Path, config: Config) -> LoadedKernel:
        """Load a shared library that the builder wrote."""
        kernel = tvm.runtime.load_module(str(artifact))["main"]
        out = tvm.runtime.tensor(self._example.unwritten())
        fixed = [repeat(argument) for argument in (*self._more, out)]
        return LoadedKernel(kernel, zip(repeat(self._data), self._weights.of(config), *fixed), out, self._example)


class LoadedKernel:
    """One candidate with its arguments for each run; the last argument is the output."""

    def __init__(self, kernel: Any, arguments: Iterator[tuple[Any, ...]], out: Any, example: Example) -> None:
        self._kernel, self._arguments, self._out, self._example = kernel, arguments, out, example

    def relative_error(self) -> float:
        """Run the candidate once and return the relative L2 distance from the reference."""
        self._kernel(*next(self._arguments))
        return self._example.relative_error(self._out.numpy())

    def __call__(self, number: int) -> float:
        """Run the candidate `number` times back to back and return the mean seconds of one run."""
        return mean_s(self._kernel, self._arguments, number)


def mean_s(kernel: Any, arguments: Iterator[tuple[Any, ...]], number: int) -> float:
    """Run a kernel `number` times back to back, each with the next arguments; return the mean seconds of one run."""
    start_s = time.perf_counter()
    for _ in range(number):
        kernel(*next(arguments))
    return (time.perf_counter() - start_s) / number


class WeightCopies:
    """Copies of one weight in the layouts that configs read.

    Kernels with the same layout take turns with its copies, so none reads a copy that another has just read. Before a
    copy is reused, `cold_bytes` or 64 other copies are read.
    """

    def __init__(self, template: Template, workload: Workload, weight: NDArray[Any], cold_bytes: int) -> None:
        self._template, self._workload, self._weight = template, workload, weight
        self._cold_bytes = cold_bytes
        self._copies: dict[tuple[int, ...], Iterator[Any]] = {}

    def of(self, config: Config) -> Iterator[Any]:
        """Return an endless iterator over the copies in a config's layout; the least recently read copy is next."""
        shape = self._template.packed_shape(self._workload, config)
        if shape not in self._copies:
            packed = self._template.pack_weight(self._workload, config, self._weight)
            n_copies = 1 + min(-(-self._cold_bytes // packed.nbytes), _MAX_COPIES)
            max_layouts = max(1, _MAX_TOTAL_BYTES // (n_copies * packed.nbytes))
            while len(self._copies) >= max_layouts:
                del self._copies[next(iter(self._copies))]
            self._copies[shape] = cycle([tvm.runtime.tensor(packed) for _ in range(n_copies)])
        return self._copies[shape]


_COLD_WEIGHTS = Conditions({"f_preproc": "cache_flush_cpu_non_first_arg"})
"""As on the local CPU, data is warm and constant weights are read from memory in every run."""

_NO_CORE_PREFERENCE = 1


def remote_runner(template: Template, workload: Workload, threads: int, session: rpc.RPCSession) -> SessionRunner:
    """Return a runner of candidates on a server's CPU; raise TargetError if it has a different thread count."""
    with convert_session_errors(session):
        session.get_function("runtime.config_threadpool")(_NO_CORE_PREFERENCE, threads)
        server_threads = int(session.get_function("runtime.NumThreads")())
    if server_threads != threads:
        raise TargetError(
            f"the server runs kernels with {server_threads} of the target's {threads} threads; "
            f"start it with TVM_NUM_THREADS={threads}"
        )
    conditions = _COLD_WEIGHTS if workload.constant_weight else Conditions()
    return SessionRunner(template, workload, session, session.cpu(0), conditions)
