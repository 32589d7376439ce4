"""Import models from torchvision and from torch factories."""

from __future__ import annotations

import inspect
import io
import linecache
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from traceback import walk_tb
from typing import TYPE_CHECKING, Any

import torch
from torch.export.graph_signature import OutputKind
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from anole.config.source import model_files
from anole.documents.build import TensorInfo
from anole.errors import ExtractError, suggestion
from anole.extract.binding import Binding, bind
from anole.extract.decompositions import RECURRENT, count_layers, decompose
from anole.extract.error_context import convert_to_extract_error
from anole.extract.fresh_import import import_fresh, prefer_sources
from anole.extract.imported import Imported
from anole.extract.weights import randomize_weights
from anole.host.guard import step

if TYPE_CHECKING:
    from anole.config.entries import ModelSpec

_SEED = 0
_MODEL_ERRORS = (Exception, SystemExit)
"""Exceptions that a model's own code may raise."""
_ANCHORS = ("convolution", "linear", "matmul", "bmm", "mm", "addmm")


def import_torch(model: ModelSpec, random_weights: bool = False) -> Imported:
    """Import a torch model through `torch.export`.

    Raises:
        ExtractError: the model cannot be created or run on its inputs, or it has an unsupported operator.
    """
    network = make_network(model, random_weights)
    arguments, binding = example_inputs(model), bind(model, network)
    try:
        program = _trace(network, binding, arguments)
    except _MODEL_ERRORS:
        # Some networks initialize themselves at their first run; if a network does not run, report that instead.
        network = make_network(model, random_weights)
        run_network(model, network, arguments)
        with convert_to_extract_error(
            f"model {model.name}: torch.export cannot trace it", *_MODEL_ERRORS, line=0, more=_failure_hint
        ):
            program = _trace(network, binding, arguments)
    if next(network.buffers(), None) is not None:
        with _running(model, arguments):
            _, state = run_on_copies(network, *binding.arguments([value.clone() for value in arguments.values()]))
        if state:
            _check_state(model, sorted(state), make_network(model, random_weights))
    # The program's inputs are in the order in which torch flattens the arguments.
    kwargs_spec = program.call_spec.in_spec.child(1)
    return import_program(model, program, arguments, (*binding.positional, *kwargs_spec.context))


def import_program(
    model: ModelSpec,
    program: torch.export.ExportedProgram,
    arguments: dict[str, torch.Tensor],
    order: Sequence[str] | None = None,
) -> Imported:
    """Import a program that `decompose` returned and whose inputs are these arguments.

    `order` has the names of the arguments in the program's order, if `arguments` are in another order.

    Raises:
        ExtractError: an operator or an output cannot be imported.
    """
    from tvm.relax.frontend.torch import from_exported_program

    from anole.extract.converters import CONVERTERS

    _check_supported(model, program)
    output = _keep_tensors(program)
    if not output:
        raise ExtractError(f"model {model.name}: returned no tensor")
    with convert_to_extract_error(f"model {model.name}: TVM cannot import it", line=0), step("importing the network"):
        options = {"unwrap_unit_return_tuple": True, "run_ep_decomposition": False}
        module = from_exported_program(program, custom_convert_map=CONVERTERS, **options)
    module = _reorder_params(module, list(arguments), list(arguments if order is None else order))
    results = dict(zip(output_names(len(output)), output, strict=True))
    return Imported(module, _infos(arguments), _infos(results), _anchor_names(program))


def output_names(count: int) -> list[str]:
    """Return the names of a torch network's outputs in builds."""
    return ["output"] if count == 1 else [f"output_{index}" for index in range(count)]


def _reorder_params(module: Any, names: list[str], current_names: list[str]) -> Any:
    """Reorder the parameters of the function ``main``."""
    from tvm import relax

    main = module["main"]
    params = [main.params[current_names.index(name)] for name in names]
    reordered = relax.Function(params, main.body, main.ret_ty, main.is_pure, main.attrs)
    module.update_func(module.get_global_var("main"), reordered)
    return module


def _infos(values: dict[str, torch.Tensor]) -> tuple[TensorInfo, ...]:
    dtypes = {name: str(value.dtype).removeprefix("torch.") for name, value in values.items()}
    return tuple(TensorInfo(name, tuple(value.shape), dtypes[name]) for name, value in values.items())


def _trace(
    network: torch.nn.Module, binding: Binding, arguments: dict[str, torch.Tensor]
) -> torch.export.ExportedProgram:
    args, kwargs = binding.arguments(list(arguments.values()))
    # On failure, torch prints the entire graph.
    with step("torch.export"), redirect_stderr(io.StringIO()):
        try:
            return decompose(torch.export.export(network, args, kwargs))
        except GuardOnDataDependentSymNode:
            # A draft export follows the branches of these arguments and asserts their conditions; folding removes each
            # assertion that holds for all arguments.
            program = decompose(torch.export.draft_export(network, args, kwargs))
            if any(node.target is torch.ops.aten._assert_scalar.default for node in program.graph.nodes):
                raise
            return program


def _failure_hint(error: BaseException) -> str:
    """Return text for an error message: the line of a network's code that failed, and a remedy if there is one."""
    location = ""
    for frame, line in walk_tb(error.__traceback__):
        name = frame.f_globals.get("__name__", "")
        if name.partition(".")[0] not in {"anole", "torch", *sys.stdlib_module_names}:
            location = f"; at line {line} of {name}: `{linecache.getline(frame.f_code.co_filename, line).strip()}`"
    if isinstance(error, GuardOnDataDependentSymNode):
        location += (
            "; Python code cannot use values that depend on the inputs: use torch.where, or compute a value that is "
            "the same for all inputs as a Python number in the constructor"
        )
    return location


def _keep_tensors(program: torch.export.ExportedProgram) -> list[torch.Tensor]:
    """Remove a program's outputs that are not tensors, such as None, or that update buffers and inputs.

    Returns:
        The remaining outputs as fake tensors.
    """
    node, specs = program.graph.output_node(), program.graph_signature.output_specs
    pairs = [
        (output, spec)
        for output, spec in zip(node.args[0], specs, strict=True)
        if spec.kind is OutputKind.USER_OUTPUT and isinstance(getattr(output, "meta", {}).get("val"), torch.Tensor)
    ]
    node.args, specs[:] = (tuple(output for output, _ in pairs),), [spec for _, spec in pairs]
    program.graph.eliminate_dead_code()
    return [output.meta["val"] for output, _ in pairs]


def _check_state(model: ModelSpec, buffers: Sequence[str], network: torch.nn.Module) -> None:
    """Raise ExtractError if a network's outputs depend on what earlier calls wrote to these buffers."""
    inputs = example_inputs(model)
    changed = {name: value.logical_not() if value.dtype is torch.bool else 1 - value for name, value in inputs.items()}
    # A network may write to its inputs and return its buffers, so clone both.
    calls = [
        [output.double().clone() for output in run_network(model, network, {k: v.clone() for k, v in args.items()})]
        for args in (inputs, changed, inputs)
    ]
    if not all(torch.allclose(*pair, 1e-5, 1e-6, equal_nan=True) for pair in zip(calls[0], calls[2], strict=True)):
        raise ExtractError(
            f"model {model.name}: its outputs depend on what earlier calls wrote to {', '.join(buffers)}, and a build "
            "keeps no state: make each of these buffers an input, and return its new value as an output, as "
            "`anole.compile` does"
        )


def _check_supported(model: ModelSpec, program: torch.export.ExportedProgram) -> None:
    """Raise ExtractError if TVM cannot import a program's operators or outputs."""
    from anole.extract.converters import unsupported_operators

    outputs = torch.utils._pytree.tree_leaves(program.graph.output_node().args)
    if any(output.meta["val"].is_complex() for output in outputs if isinstance(output, torch.fx.Node)):
        raise ExtractError(
            f"model {model.name}: found a complex output; return its real and imaginary part, "
            "such as torch.view_as_real(output)"
        )
    if layers := unsupported_operators(program):
        listed = ", ".join(name + (f" (in {layer})" if layer else "") for name, layer in layers.items())
        raise ExtractError(
            f"model {model.name}: TVM cannot import it: found no converter for {listed}; "
            "write these layers with other torch operators"
        )


def make_network(model: ModelSpec, random_weights: bool = False) -> torch.nn.Module:
    """Return the network in inference mode; random weights are the same in every process.

    Networks from torchvision get random weights. `random_weights` randomizes the weights of any network.

    Raises:
        ExtractError: the network is unknown or cannot be created.
    """
    # The fast path of nn.TransformerEncoder returns zeros at padded positions; torch.export and training do not.
    torch.backends.mha.set_fastpath_enabled(False)
    torch.manual_seed(_SEED)
    is_untrained = model.scheme == "torchvision"
    network = (_build_torchvision(model) if is_untrained else _call_factory(model)).eval()
    if is_untrained or random_weights:
        with step("randomizing weights"):
            # The weights are the same for all sizes of a range.
            inputs = tuple(example_inputs(model.at(model.sizes)).values())
            randomize_weights(network, inputs, bind(model, network).call)
    return network


def example_inputs(model: ModelSpec) -> dict[str, torch.Tensor]:
    """Return random inputs of a model, the same in every process.

    Raises:
        ExtractError: the model's entry has no shapes, or a shape does not fit into memory.
    """
    if not model.inputs:
        raise ExtractError(f"model {model.name}: found no `inputs`; a torch model requires the shape of each")
    generator = torch.Generator().manual_seed(_SEED)
    with convert_to_extract_error(f"model {model.name}: `inputs` cannot be created", RuntimeError, MemoryError, line=0):
        return {name: _random_input(shape, model.dtypes.get(name), generator) for name, shape in model.inputs.items()}


def _random_input(shape: Sequence[int], dtype: str | None, generator: torch.Generator) -> torch.Tensor:
    """Return standard normal values, or for integer dtypes zeros and ones, which are valid indices of every table."""
    if dtype is None:
        return torch.randn(shape, generator=generator)
    return torch.randint(0, 2, shape, generator=generator).to(getattr(torch, dtype))


def run_network(
    model: ModelSpec, network: torch.nn.Module, arguments: dict[str, torch.Tensor]
) -> tuple[torch.Tensor, ...]:
    """Run a network and return its outputs in order.

    Raises:
        ExtractError: the network does not accept the inputs, or returns no tensors.
    """
    with _running(model, arguments):
        return _tensors(model, bind(model, network).call(network, list(arguments.values())))


@contextmanager
def _running(model: ModelSpec, arguments: dict[str, torch.Tensor]) -> Iterator[None]:
    """Raise ExtractError for a failure of a network that runs on these inputs."""
    shapes = ", ".join(f"{name}: {list(value.shape)}" for name, value in arguments.items())
    failure = convert_to_extract_error(
        f"model {model.name}: does not run on inputs {{{shapes}}}", *_MODEL_ERRORS, line=0, more=_failure_hint
    )
    with failure, step("running the network"), torch.no_grad():
        yield


def run_on_copies(
    module: torch.nn.Module, args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[Any, dict[str, torch.Tensor]]:
    """Run a module on copies of its buffers, which it may also replace.

    Returns:
        The result, and the value before the call of each buffer that the module wrote, by name.
    """
    buffers = dict(module.named_buffers())
    copies = {name: buffer.clone() for name, buffer in buffers.items()}
    after = dict(copies)
    result = torch.func.functional_call(module, after, tuple(args), kwargs)
    return result, {name: buffers[name] for name, copy in copies.items() if after[name] is not copy or copy._version}


def _tensors(model: ModelSpec, output: Any) -> tuple[torch.Tensor, ...]:
    outputs = tuple(tensors_of(output))
    if not outputs:
        raise ExtractError(f"model {model.name}: returned a {type(output).__name__} without any tensor")
    return outputs


def _build_torchvision(model: ModelSpec) -> torch.nn.Module:
    from torchvision.models import get_model_builder, list_models

    names = list_models()
    if model.location not in names:
        raise ExtractError(
            f"model {model.name}: found source torchvision:{model.location}, which is not a torchvision model; "
            f"{suggestion(model.location, names)}"
        )
    with convert_to_extract_error(f"model {model.name}: torchvision cannot create {model.location}", line=0):
        builder = get_model_builder(model.location)
        # A detector or a segmentation model would otherwise download weights for its backbone.
        no_weights = {name: None for name in inspect.signature(builder).parameters if name.startswith("weights")}
        network: torch.nn.Module = builder(**no_weights)
    return network


def _call_factory(model: ModelSpec) -> torch.nn.Module:
    name, _, attribute = model.location.partition(":")
    if not name or not attribute:
        raise ExtractError(f"model {model.name}: found source {model.source}; expected torch:package.module:factory")
    with prefer_sources(Path.cwd()), step(f"the factory {name}:{attribute}"):
        with convert_to_extract_error(
            f"model {model.name}: cannot import {name} (searched {Path.cwd()} first)", *_MODEL_ERRORS, line=0
        ):
            module = import_fresh(name, model_files(model.source, Path.cwd()))
        factory = getattr(module, attribute, None)
        if not callable(factory):
            description = "nothing" if factory is None else f"a {type(factory).__name__}"
            raise ExtractError(f"model {model.name}: found {description} at {name}:{attribute}; expected a callable")
        with convert_to_extract_error(f"model {model.name}: {name}:{attribute}() failed", *_MODEL_ERRORS, line=0):
            network = factory()
    if not isinstance(network, torch.nn.Module):
        raise ExtractError(
            f"model {model.name}: {name}:{attribute}() returned a {type(network).__name__}; expected a torch.nn.Module"
        )
    return network


def _anchor_names(program: Any) -> tuple[str, ...]:
    """Return the names of the modules whose operators may become anchors, in execution order."""
    from anole.extract.converters import layer_of

    names = []
    for node in program.graph.nodes:
        operator = getattr(node.target, "__name__", "").partition(".")[0]
        is_recurrent = node.target in RECURRENT
        if node.op == "call_function" and (operator in _ANCHORS or is_recurrent):
            names += [layer_of(node) or node.name] * (count_layers(node) if is_recurrent else 1)
    return tuple(names)


def tensors_of(output: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors in a network's output, in the order of torch.export."""
    leaves = torch.utils._pytree.tree_leaves(output)
    return (leaf.detach() for leaf in leaves if isinstance(leaf, torch.Tensor))
