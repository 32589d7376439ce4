"""The Python interface: compile a torch module or an ONNX file, load a build, and call it like the module."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anole.api.compiled import Compiled
from anole.api.sources import of_module, of_text
from anole.api.workspace import Workspace
from anole.documents import layout
from anole.errors import SpecError

if TYPE_CHECKING:
    import torch


def compile(
    model: torch.nn.Module | Path | str,
    *args: Any,
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Mapping[str, Mapping[int, Any]] | None = None,
    dims: Mapping[str, int | str] | None = None,
    samples: Mapping[str, Any] | None = None,
    target: Mapping[str, Any] | None = None,
    precision: str | None = None,
    weights: str | None = None,
    threads: int | None = None,
    trials: int = 0,
    project: Path | str | None = None,
    progress: bool = True,
) -> Compiled:
    """Compile a network for this machine and load it.

    The stages of the workflow run in a project folder, so what it has already extracted, tuned or compiled, also for
    other networks with the same layers, is not repeated. ``snakemake`` in that folder continues from there.

    Args:
        model: a torch module, an ONNX file, or a source as in models.yaml, such as ``torchvision:resnet50``.
        *args: the arguments of an example call of the module. Tensors become inputs; others are constants.
        kwargs: the keyword arguments of that call.
        dynamic_shapes: the module's dimensions that vary, as in torch.export, by the name of the input and the axis:
            ``{"x": {0: torch.export.Dim("batch", min=1, max=16)}}``.
        dims: the sizes of an ONNX file's dynamic dimensions by name; a size may be a range such as ``"1..16"``.
        samples: for each input, by name, an array of own samples along a new first axis, to evaluate the build on.
        target: the target's entry in models.yaml, of the kind ``cpu``; by default ``{"kind": "cpu"}``.
        precision: the target's setting, such as ``"bfloat16"``.
        weights: the target's setting, such as ``"int4"``.
        threads: the target's number of threads.
        trials: configs to measure for each distinct layer; with 0, layers have default configs.
        project: the project folder; by default ``$XDG_CACHE_HOME/anole``, or ``~/.cache/anole``.
        progress: whether to show the stages' progress.

    Raises:
        AnoleError: an argument is not allowed, or a stage fails; the message is the command line's.
    """
    workspace = Workspace(project)
    settings = {"precision": precision, "weights": weights, "threads": threads}
    chosen = {"kind": "cpu", **(target or {}), **{name: value for name, value in settings.items() if value is not None}}
    if chosen["kind"] != "cpu":
        raise SpecError("target.kind", f"found {chosen['kind']!r}; allowed: cpu, which runs here", "anole.compile")
    with workspace.locked():
        if isinstance(model, (str, Path)):
            if args or kwargs or dynamic_shapes:
                raise SpecError("", "arguments and dynamic_shapes are for modules; a file has `dims`", str(model))
            source = of_text(str(model), dims or {})
        else:
            source = of_module(workspace.folder, model, args, kwargs or {}, dynamic_shapes or {})
        entry = dict(source.entry)
        if samples:
            samples = source.call.complete(samples) if source.call is not None else samples
            entry |= workspace.save_samples(samples, entry.get("inputs", {}))
        build = workspace.add(source.name, entry, chosen, trials)
        return Compiled(workspace.run(layout.build_path(build), progress), source.call)


def load(folder: Path | str) -> Compiled:
    """Load a build from its folder: one that `Compiled.save` wrote, or any in a project's ``builds/``.

    Raises:
        DocumentError: the folder is not a build, or its files have changed.
        BuildError: this machine cannot run it.
    """
    return Compiled(folder)
