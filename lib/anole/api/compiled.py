"""A compiled network in this process: call it like the module, save it, and compare its speed."""

from __future__ import annotations

import io
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from rich.console import Console

from anole.documents import layout
from anole.documents.build import TensorInfo, check_build_files, read_build
from anole.documents.evaluation import Latency, SampleError, read_evaluation
from anole.errors import BuildError
from anole.report.progress_view import render_latencies
from anole.report.run import describe_build, mismatch
from anole.targets import get_target

if TYPE_CHECKING:
    from anole.api.call_format import CallFormat
    from anole.targets.base import Device

_CALL = "call.pickle"
"""The file of a saved build with the format of the module's calls."""

_ALIGNMENT = 64
"""TVM's kernels read tensors at multiples of this number of bytes; others are copied."""


@dataclass(frozen=True)
class Benchmark:
    """A build's latencies compared with each reference; as text, the table that the workflow prints.

    `exact_error` is the error against the same network in double precision, if it was judged by that.
    """

    build: str
    precision: str
    latencies: Sequence[Latency]
    exact_error: float | None
    sample_errors: Sequence[SampleError] = ()

    def __str__(self) -> str:
        console = Console(width=120, record=True, file=io.StringIO())
        of_build = {"build": self.build, "precision": self.precision, "exact_error": self.exact_error}
        rows = [of_build | asdict(latency) for latency in self.latencies]
        console.print(render_latencies(rows))
        return "\n".join(map(str.rstrip, [*console.export_text().splitlines(), *map(str, self.sample_errors)]))


class Compiled:
    """A build, loaded into this process. Threads may call it concurrently; they share its weights.

    Attributes:
        folder: the build's folder.
        inputs, outputs: the name, shape and type of each input and output.
        tasks: the distinct layers, each with its config.
    """

    def __init__(self, folder: Path | str, call: CallFormat | None = None) -> None:
        import tvm

        self.folder = Path(folder)
        self._build = build = read_build(self.folder)
        check_build_files(self.folder, build)
        target = get_target(build.target_description)
        if build.runs_on != "cpu":
            raise BuildError(f"{folder}: is for {build.target}; only builds for a CPU run in this process: `anole run`")
        if (absence := target.absence()) is not None:
            raise BuildError(f"{folder}: {absence}")
        for name, value in cast("Device", target).environment().items():
            os.environ.setdefault(name, value)
        self.inputs, self.outputs, self.tasks = build.inputs, build.outputs, build.tasks
        saved = self.folder / _CALL
        self._call: CallFormat | None = call or (pickle.loads(saved.read_bytes()) if saved.exists() else None)
        n_threads = int(tvm.get_global_func("runtime.NumThreads")())
        if build.threads not in (None, n_threads):
            problem = f"built for {build.threads} threads, but TVM uses {n_threads} here; a new process is faster"
            warnings.warn(f"{folder}: {problem}", stacklevel=3)
        self._library = tvm.runtime.load_module(str(self.folder / "model.so"))
        self._of_thread, self._lock = threading.local(), threading.Lock()
        self.reset()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the outputs for a call with the compiled module's arguments, or with one array for each input.

        Inputs are torch tensors or NumPy arrays, which are not copied if they are contiguous and aligned. Outputs have
        the type of the inputs, and the structure that the module returns; otherwise, several outputs are a tuple.
        Buffers that the module writes are kept for the next call.

        Raises:
            BuildError: the arguments do not fit.
        """
        arrays = self._call.tensors(args, kwargs) if self._call is not None else self._in_order(args, kwargs)
        sizes: dict[str, int] = {}
        tensors = [self._to_tvm(info, array, sizes) for info, array in zip(self.inputs, arrays, strict=False)]
        results = self._run(tensors)
        if arrays and isinstance(arrays[0], np.ndarray):
            outputs: list[Any] = [np.from_dlpack(output) for output in results]
        else:
            from torch.utils.dlpack import from_dlpack

            outputs = [from_dlpack(output) for output in results]
        if self._call is not None:
            from anole.api.call_format import fill

            return fill(self._call.result, outputs)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def reset(self) -> None:
        """Set the buffers that the module writes to their values at compilation."""
        initial = [value for _, value in self._call.state] if self._call is not None else []
        infos = self.inputs[len(self.inputs) - len(initial) :]
        with self._lock:
            self._state = [self._to_tvm(info, value, {}) for info, value in zip(infos, initial, strict=True)]

    def benchmark(self, rounds: int = 8) -> Benchmark:
        """Check the build, and time it in turns with torch and ONNX Runtime, on one random input.

        Raises:
            AnoleError: the build is wrong, or its project, which holds the model, is gone.
        """
        project = layout.project_of_build(self.folder.absolute())
        with tempfile.TemporaryDirectory() as scratch:
            output = Path(scratch, "evaluation.json")
            options = [str(self.folder.absolute()), "--output", str(output), "--rounds", str(rounds)]
            command = [sys.executable, "-m", "anole", "evaluate", *options]
            run = subprocess.run(command, cwd=project, check=False, text=True, capture_output=True)
            if run.returncode:
                lines = [line for line in run.stderr.splitlines() if line.startswith("anole: ")] or [run.stderr[-500:]]
                raise BuildError(lines[-1].removeprefix("anole: "))
            found = read_evaluation(output)
            evidence = found.exact_error, found.sample_errors or ()
            return Benchmark(found.build, self._build.precision, found.latencies, *evidence)

    def save(self, folder: Path | str) -> None:
        """Copy the build into a new folder, for `anole.load`, ``anole run`` and its own ``load.py``.

        Raises:
            BuildError: the folder exists.
        """
        if Path(folder).exists():
            raise BuildError(f"{folder}: already exists; give another folder")
        shutil.copytree(self.folder, folder)
        if self._call is not None:
            (Path(folder) / _CALL).write_bytes(pickle.dumps(self._call))

    def __repr__(self) -> str:
        return f"build {self._build.name}\n{describe_build(self.folder)}"

    def _run(self, tensors: Sequence[Any]) -> Sequence[Any]:
        """Return the outputs for these inputs; calls with state run one after another."""
        if not self._state:
            result = self._main()(*tensors)
            return [result] if hasattr(result, "numpy") else list(result)
        with self._lock:
            results = list(self._main()(*tensors, *self._state))
            n_results = len(results) - len(self._state)
            self._state = results[n_results:]
        return results[:n_results]

    def _main(self) -> Any:
        """Return the entry point of this thread's virtual machine."""
        if not hasattr(self._of_thread, "main"):
            import tvm
            from tvm.runtime.vm import VirtualMachine

            self._of_thread.main = VirtualMachine(self._library, tvm.device("cpu"))["main"]
        return self._of_thread.main

    def _in_order(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        names = [info.name for info in self.inputs]
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        if len(args) + len(kwargs) != len(names) or set(given) != set(names):
            by_name = ", ".join(kwargs) or "none"
            raise BuildError(f"found {len(args)} inputs in order and {by_name} by name; expected {', '.join(names)}")
        return [given[name] for name in names]

    def _to_tvm(self, info: TensorInfo, array: Any, sizes: dict[str, int]) -> Any:
        """Return an input as TVM's tensor; stores the sizes of its ranges in `sizes`."""
        import tvm

        shape, dtype = tuple(array.shape), str(array.dtype).removeprefix("torch.")
        expected = mismatch(shape, info, self._build.ranges or {}, sizes)
        if expected is not None or dtype != info.dtype:
            expected = expected or f"shape {list(shape)}"
            raise BuildError(
                f"input {info.name}: found {dtype} of shape {list(shape)}; expected {info.dtype} of {expected}"
            )
        if not isinstance(array, np.ndarray):
            array = array.detach().contiguous()
            is_aligned, is_writable = array.data_ptr() % _ALIGNMENT == 0, True
        else:
            array = np.ascontiguousarray(array).reshape(shape)
            is_aligned, is_writable = array.ctypes.data % _ALIGNMENT == 0, array.flags.writeable
        if is_aligned and is_writable and dtype != "bool":
            return tvm.runtime.from_dlpack(array)
        return tvm.runtime.tensor(np.asarray(array))
