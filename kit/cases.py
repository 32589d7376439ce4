"""Run operator cases against Anole in separate processes, which isolates crashes and hangs.

A case is a network with one operator. It is imported, compiled with default configs and run, and its outputs are
compared with expected ones. Outcomes: ``right``; ``wrong``: unexpected values, shapes or types; ``refused``: an
`AnoleError`; ``crashed``: another exception, an exit or a timeout; ``outside``: out of scope for Anole.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import re
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import onnx

if TYPE_CHECKING:
    from anole.extract.imported import Imported

LIMIT_S = 60.0
"""The time limit of a case."""


class Outcome(NamedTuple):
    """The outcome of a case, with a reason."""

    outcome: Literal["right", "wrong", "refused", "crashed", "outside"]
    reason: str = ""


RunCase = Callable[[str, Path], Outcome]
"""A function that runs a case, given its name and a scratch folder."""


def run_cases(names: Iterable[str], run_case: RunCase, limit_s: float = LIMIT_S) -> Iterator[tuple[str, Outcome]]:
    """Yield the names of cases with their outcomes, in order."""
    worker: _Worker | None = None
    try:
        for name in names:
            worker = worker or _Worker(run_case)
            answer = worker.ask(name, limit_s)
            if answer is None:
                answer, worker = Outcome("crashed", worker.end(limit_s)), None
            yield name, answer
    finally:
        if worker is not None:
            worker.end(0)


class _Worker:
    """A process that runs cases."""

    def __init__(self, run_case: RunCase) -> None:
        # Fork is safe, as the parent starts no threads, and avoids importing modules again.
        context = multiprocessing.get_context("fork")
        self._pipe, worker_pipe = context.Pipe()
        self._process = context.Process(target=_serve, args=(worker_pipe, run_case), daemon=True)
        self._process.start()
        worker_pipe.close()

    def ask(self, name: str, limit_s: float) -> Outcome | None:
        """Return the outcome of a case, or None if the process ended or the time limit passed."""
        self._pipe.send(name)
        try:
            return self._pipe.recv() if self._pipe.poll(limit_s) else None
        except EOFError:
            return None

    def end(self, limit_s: float) -> str:
        """Kill the process, and describe why it did not answer."""
        self._process.join(1 if limit_s else 0)
        code = self._process.exitcode
        self._process.kill()
        self._process.join()
        return f"did not finish within {limit_s:g} s" if code is None else f"the process ended with status {code}"


def _serve(pipe: Connection, run_case: RunCase) -> None:
    from anole.errors import AnoleError

    os.environ["TVM_NUM_THREADS"] = "1"
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    # Importers print to standard output, which is the caller's CSV.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    with tempfile.TemporaryDirectory() as folder:
        while True:
            try:
                name = pipe.recv()
            except EOFError:
                return
            try:
                outcome = run_case(name, Path(folder))
            except AnoleError as error:
                outcome = Outcome("refused", one_line(error))
            except Exception as error:
                outcome = Outcome("crashed", f"{type(error).__name__}: {one_line(error)}")
            pipe.send(outcome)


def compute(imported: Imported, arrays: Mapping[str, Any]) -> list[Any]:
    """Compile a network with default configs for one thread of the local CPU, and return its outputs.

    Raises:
        BuildError: the network cannot be compiled.
    """
    import tvm
    from tvm import relax

    from anole.compiler.lower import Choice, lower
    from anole.errors import BuildError
    from anole.extract.graph import for_target, workloads_of
    from anole.targets import get_device
    from anole.targets.cpu.settings import describe_cpu

    target = get_device(describe_cpu(threads=1))
    imported = for_target(imported, target)
    choices = {
        workload: Choice(target.template(workload), target.default_config(workload))
        for workload in workloads_of(imported.module)
    }
    try:
        lowered, _ = lower(imported.module, choices, target.schedule_default)
        with target.compiler_target() as compiler_target:
            executable = tvm.compile(lowered, compiler_target, tir_pipeline=target.compiler_pipeline())
    except Exception as error:
        raise BuildError(f"TVM cannot compile it: {one_line(error)}") from error
    result = relax.VirtualMachine(executable, tvm.cpu())["main"](
        *(tvm.runtime.tensor(np.ascontiguousarray(arrays[info.name]).reshape(info.shape)) for info in imported.inputs)
    )
    outputs = [result] if isinstance(result, tvm.runtime.Tensor) else list(result)
    return [output.numpy() for output in outputs]


def run_model(proto: onnx.ModelProto, arrays: Mapping[str, Any], path: Path) -> list[Any]:
    """Compile a model with default configs for one thread of the local CPU, and return its outputs.

    Raises:
        AnoleError: the model cannot be imported or compiled.
    """
    from anole.config.entries import ModelSpec
    from anole.extract.load import load_model

    onnx.save(proto, path)
    return compute(load_model(ModelSpec("case", f"onnx:{path}", {})), arrays)


def one_line(error: Exception) -> str:
    """Return the first 200 characters of an error message as one line, without the name of the model."""
    text = " ".join(line.strip() for line in str(error).splitlines() if line.strip())
    return re.sub(r"model case: |\S*/case\.onnx", "", text)[:200]
