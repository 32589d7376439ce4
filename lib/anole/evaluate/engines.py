"""Engines that run a network: a compiled build, and the references that it is compared with."""

from __future__ import annotations

import contextlib
import io
import logging
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from anole.config.entries import ModelSpec
from anole.errors import BuildError, cause

if TYPE_CHECKING:
    import onnxruntime
    import torch
    from tvm.runtime.vm import VirtualMachine

Arrays = list[NDArray[Any]]

_log = logging.getLogger(__name__)

# ONNX Runtime's Python API has no constants for these options.
_WEIGHTS_FOLDER = "session.model_external_initializers_file_folder_path"
"""The folder of the weights of a model in memory."""
_EXACT_PRODUCTS = "session.x64quantprecision"
"""Whether products of uint8 and int8 are exact without VNNI; the faster instruction saturates at 16 bits."""
_ACTIVATION_PRECISION = "session.qdq_matmulnbits_accuracy_level"
"""The lowest precision to which activations may be cast before they are multiplied by a dequantized weight."""


@dataclass(frozen=True)
class Engine:
    """A network, ready to run on fixed inputs.

    Attributes:
        run: runs the network once; its return value is engine-specific.
        convert_outputs: converts the return value of `run` to arrays.
        set_inputs: replaces the inputs by others with the same shapes; None if they cannot be replaced.
        precision: the type of its convolutions and matrix products.
    """

    name: str
    run: Callable[[], Any]
    convert_outputs: Callable[[Any], Arrays]
    set_inputs: Callable[[Sequence[NDArray[Any]]], None] | None = None
    precision: str = "float32"

    def compute(self) -> Arrays:
        """Run the network once and return its outputs."""
        return self.convert_outputs(self.run())

    def compute_each(self, samples: Sequence[Sequence[NDArray[Any]]]) -> list[Arrays]:
        """Run the network once on each sample, then restore the inputs of the first one."""
        assert self.set_inputs is not None
        outputs = []
        for inputs in samples:
            self.set_inputs(inputs)
            # An engine may reuse the memory of its outputs in the next run.
            outputs.append([np.array(array) for array in self.compute()])
        self.set_inputs(samples[0])
        return outputs


def build_engine(folder: Path, inputs: Sequence[NDArray[Any]], runs_on: str, threads: int | None = None) -> Engine:
    """Return an engine for a compiled build; see `load_machine` for arguments and errors."""
    import tvm

    machine = load_machine(folder, runs_on, threads)
    device = tvm.device(runs_on)
    arguments, main = [tvm.runtime.tensor(array, device) for array in inputs], machine["main"]

    def run() -> Any:
        result = main(*arguments)
        device.sync()
        return result

    def set_inputs(new_inputs: Sequence[NDArray[Any]]) -> None:
        arguments[:] = [tvm.runtime.tensor(array, device) for array in new_inputs]

    def outputs(result: Any) -> Arrays:
        return [result.numpy()] if isinstance(result, tvm.runtime.Tensor) else [tensor.numpy() for tensor in result]

    return Engine("build", run, outputs, set_inputs)


def load_machine(folder: Path, runs_on: str, threads: int | None = None) -> VirtualMachine:
    """Return the virtual machine of a compiled build; its entry point is ``main``.

    Args:
        folder: the build's folder.
        runs_on: TVM's name of the device type, such as ``cpu``.
        threads: number of CPU threads that TVM must have; None for any.

    Raises:
        BuildError: the library cannot be loaded, or TVM was already started with a different number of threads.
    """
    import tvm
    from tvm.runtime.vm import VirtualMachine

    n_threads = int(tvm.get_global_func("runtime.NumThreads")())
    if threads is not None and n_threads != threads:
        raise BuildError(f"{folder}: built for {threads} threads; TVM was started with {n_threads} in this process")
    try:
        return VirtualMachine(tvm.runtime.load_module(str(folder / "model.so")), tvm.device(runs_on))
    except Exception as error:
        raise BuildError(f"{folder}: model.so cannot be loaded: {error}") from error


@contextlib.contextmanager
def reference_engines(
    model: ModelSpec, inputs: Sequence[NDArray[Any]], threads: int, runs_on: str = "cpu"
) -> Iterator[list[Engine]]:
    """Yield torch in eager mode for torch models, and ONNX Runtime for ONNX files and models that can be exported.

    If torch runs on a GPU, torch models are not exported. ONNX Runtime always runs on the CPU.

    Raises:
        ExtractError: the model cannot be loaded.
    """
    if model.scheme == "onnx":
        from anole.extract.onnx.selection import serialize_part

        yield [onnxruntime_engine(Path(model.location), inputs, threads, serialize_part(model))]
        return
    network, arguments = torch_network(model, inputs, threads, runs_on)
    engines = [torch_engine(network, arguments)]
    if arguments[0].is_cuda:
        yield engines
        return
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch, "model.onnx")
        try:
            export_onnx(network, arguments, path)
            engines.append(onnxruntime_engine(path, inputs, threads))
        except Exception as error:
            _log.warning("%s: no ONNX Runtime reference: %s", model.name, cause(error, line=0))
        yield engines


def torch_network(
    model: ModelSpec, inputs: Sequence[NDArray[Any]], threads: int, runs_on: str = "cpu"
) -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    """Return a torch network that takes one tensor for each input of models.yaml, and these inputs as tensors.

    Both are on a GPU if `runs_on` is ``cuda`` and this machine has a GPU. TF32 is off.
    """
    import torch

    from anole.evaluate.torch_wrappers import ByName
    from anole.extract.torch import make_network

    torch.set_num_threads(threads)
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    device = "cuda" if runs_on == "cuda" and torch.cuda.is_available() else "cpu"
    network = ByName(model, make_network(model)).to(device)
    return network, tuple(torch.from_numpy(array).to(device) for array in inputs)


def torch_engine(network: torch.nn.Module, arguments: tuple[torch.Tensor, ...], name: str = "torch") -> Engine:
    """Return an engine for a torch network, on its arguments' device."""
    import torch

    from anole.extract.torch import tensors_of

    # A network may write to its inputs, which share memory with other engines' inputs.
    inputs = [tensor.clone() for tensor in arguments]

    def run() -> Any:
        with torch.inference_mode():
            result = network(*inputs)
        if inputs[0].is_cuda:
            torch.cuda.synchronize()
        return result

    def set_inputs(new_inputs: Sequence[NDArray[Any]]) -> None:
        inputs[:] = [torch.tensor(array, device=old.device) for array, old in zip(new_inputs, inputs, strict=True)]

    return Engine(name, run, lambda result: [tensor.cpu().numpy() for tensor in tensors_of(result)], set_inputs)


def export_onnx(
    network: torch.nn.Module,
    arguments: tuple[torch.Tensor, ...],
    path: Path,
    names: Sequence[str] | None = None,
    keywords: Mapping[str, torch.Tensor] | None = None,
    outputs: Sequence[str] | None = None,
) -> None:
    """Export a network to ONNX without progress reports, optionally with new names of its inputs and outputs.

    `names` lists the names of `arguments`, then of `keywords`, which are passed by name.
    """
    import torch

    loggers = [logging.getLogger(name) for name in ("onnx_ir", "onnxscript", "torch.onnx")]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            options = {"kwargs": keywords, "input_names": names, "output_names": outputs, "verbose": False}
            torch.onnx.export(network, arguments, str(path), **options)
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def onnxruntime_engine(path: Path, inputs: Sequence[NDArray[Any]], threads: int, part: bytes | None = None) -> Engine:
    """Return an ONNX Runtime engine on the CPU for a file, or for `part`, a subgraph with weights in the same folder.

    Raises:
        BuildError: ONNX Runtime cannot load the file.
    """
    import onnx
    import onnxruntime

    try:
        session = onnxruntime_session(part or str(path), threads, path.parent)
        proto = onnx.load_from_string(part) if part else onnx.load(path, load_external_data=False)
    except Exception as error:
        # Each kind of failure in ONNX Runtime raises its own type, without a common base class.
        raise BuildError(f"{path}: ONNX Runtime {onnxruntime.__version__} cannot load it: {error}") from error
    feeds: dict[str, NDArray[Any]] = {}

    def set_inputs(new_inputs: Sequence[NDArray[Any]]) -> None:
        feeds.update({input_.name: array for input_, array in zip(session.get_inputs(), new_inputs, strict=True)})

    def outputs(results: Any) -> Arrays:
        return list(map(np.asarray, results))

    set_inputs(inputs)
    precision = precision_of(node.op_type for node in proto.graph.node)
    return Engine("onnxruntime", lambda: session.run(None, feeds), outputs, set_inputs, precision)


def precision_of(operators: Iterable[str]) -> str:
    """Return the precision of the convolutions and matrix products in a file, judging by its operators."""
    names = set(operators)
    if any(part in name for name in names for part in ("QLinear", "QGemm", "Quantize", "Integer")):
        return "int8"
    return "float32" + ", weights in few bits" * bool(names & {"DequantizeLinear", "MatMulNBits"})


def onnxruntime_session(
    model: str | bytes, threads: int, folder: Path = Path(), joins: bool = True
) -> onnxruntime.InferenceSession:
    """Return an ONNX Runtime session on the CPU with exact 8-bit products, where ONNX Runtime can compute them.

    `model` is the path of a file, or a file's content, whose weights may be in other files of `folder`. `joins` allows
    ONNX Runtime to fuse operators.
    """
    import onnxruntime

    def create(*entries: tuple[str, str]) -> onnxruntime.InferenceSession:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.log_severity_level = 4 if entries else 3
        if not joins:
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        for name, value in ((_WEIGHTS_FOLDER, str(folder.resolve())), (_ACTIVATION_PRECISION, "1"), *entries):
            options.add_session_config_entry(name, value)
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])

    try:
        return create((_EXACT_PRODUCTS, "1"))
    except Exception:
        # The option fails if two weights share a zero point; CPUs with VNNI do not need it.
        return create()
