"""The export of a build to a C library in a folder."""

from __future__ import annotations

import logging
import re
import runpy
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

from numpy.typing import NDArray

from anole.compiler.folder import replace_folder
from anole.documents.build import Build, TensorInfo, read_build
from anole.errors import ExportError
from anole.evaluate.comparison import relative_error, timing_inputs
from anole.evaluate.engines import build_engine
from anole.export.folder import PREFIX, WEIGHTS_ENDING, check_folder, user_files
from anole.export.kernels import Workspaces, compile_level, lower_build
from anole.export.levels import choose_levels
from anole.export.library import link_level, link_library, write_sources
from anole.export.memory import pack_weights
from anole.export.sequence import Operand
from anole.export.source import Network, kernel_list_text, plan_text, tables_text
from anole.ir.ranges import checked_sizes
from anole.targets import get_device

_log = logging.getLogger(__name__)

_PREFIX_PATTERN = re.compile(r"[a-z][a-z0-9_]{0,31}")

_MAX_EMBEDDED_BYTES = 1_500_000_000
"""Max size of embedded weights: x86-64 code can address 2 GiB, which a program's other libraries share."""

_MAX_RELATIVE_ERROR = 1e-4
"""As in the evaluate stage. Instruction-set levels differ only by rounding; changed weights cause larger errors."""


def export_build(
    source: Path,
    folder: Path,
    weights_inside: bool = True,
    levels: Sequence[str] = (),
    prefix: str = PREFIX,
    options: Sequence[str] = (),
    check: bool = True,
) -> Network:
    """Export a build for a CPU, and return the contents of the library.

    Args:
        source: the build's folder.
        folder: the library's folder; a library in it is replaced.
        weights_inside: whether to embed the weights in the library instead of writing them to a file.
        levels: names of the instruction-set levels; all by default.
        prefix: the prefix of the names of functions and files.
        options: further options of the C compiler, such as a sanitizer.
        check: whether to compare the library's outputs with the build's, if this machine can run it.

    Raises:
        DocumentError: the folder does not contain a build.
        ExtractError: the model cannot be loaded.
        BuildError: the model has changed since it was built, or the folder cannot be written.
        ExportError: the build cannot be exported to C.
        MachineError: a compiler or another tool is missing or failed.
    """
    build = read_build(source)
    if not _PREFIX_PATTERN.fullmatch(prefix):
        raise ExportError(f"found prefix {prefix!r}; use 1 to 32 of a-z, 0-9 and _, starting with a letter")
    target = get_device(build.target_description)
    check_folder(folder)
    chosen_levels = choose_levels(target.description, levels)
    lowered = lower_build(build, target)
    with TemporaryDirectory(prefix="anole-") as scratch, replace_folder(folder) as output:
        objects = [Path(scratch, f"kernels-{level.identifier}.o") for level in chosen_levels]
        workspaces = Workspaces()
        for level, path in zip(chosen_levels, objects, strict=True):
            compile_level(lowered, target, level, path, workspaces)
        network = Network(
            title=f"The network {build.model} as build {build.name}",
            model=build.model,
            inputs=_with_largest_sizes(build.inputs, lowered.kernels.inputs),
            outputs=_with_largest_sizes(build.outputs, lowered.kernels.outputs),
            kernels=lowered.kernels,
            weights=pack_weights(lowered.kernels.constants),
            weights_inside=weights_inside,
            workspaces=workspaces,
            levels=chosen_levels,
            threads=target.threads,
            ranges=build.ranges or {},
        )
        write_library(network, objects, Path(scratch), output, prefix, options)
        if check and (absence := target.absence()) is None:
            check_library(build, source, output / f"{prefix}.py")
        elif check:
            _log.warning("%s: not compared with the build: %s", folder, absence)
    names = ", ".join(level.name for level in chosen_levels)
    _log.info("%s: an arena of %d bytes, kernels for %s", folder, network.layout.size_bytes, names)
    return network


def _with_largest_sizes(infos: Sequence[TensorInfo], operands: Sequence[Operand]) -> tuple[TensorInfo, ...]:
    return tuple(replace(info, shape=operand.shape) for info, operand in zip(infos, operands, strict=True))


def write_library(
    network: Network, kernels: Sequence[Path], scratch: Path, output: Path, prefix: str, options: Sequence[str]
) -> None:
    """Write the library and its user-facing files, from an object file with the kernels of each level."""
    if network.weights_inside and len(network.weights.content) > _MAX_EMBEDDED_BYTES:
        raise ExportError("the weights are too large to embed in a library; write them to a file with --weights file")
    user_texts = user_files(network, version("anole"), prefix)
    weights = (scratch if network.weights_inside else output) / f"{prefix}{WEIGHTS_ENDING}"
    weights.write_bytes(network.weights.content)
    for name, text in user_texts.items():
        (output / name).write_text(text, encoding="utf-8")
    sources = {
        "plan.h": plan_text(network),
        "tables.h": tables_text(network),
        "kernel_list.h": kernel_list_text(network.kernels.kernels),
        "api.h": user_texts[f"{prefix}.h"],
    }
    write_sources(scratch, sources, prefix)
    levels = [link_level(scratch, level, path) for level, path in zip(network.levels, kernels, strict=True)]
    weights_file = weights if network.weights_inside else None
    link_library(scratch, levels, output, prefix, network.threads, weights_file, options)


def check_library(build: Build, source: Path, wrapper: Path) -> None:
    """Compare the outputs of a library, called through its Python wrapper, with its build in the folder `source`.

    The model, or Anole, may have changed since the build was compiled. Nothing is compared if this CPU cannot run
    the library.

    Raises:
        BuildError: the build cannot be loaded.
        ExportError: the library fails, or its outputs differ from the build's.
    """
    # An import would write bytecode into the exported folder.
    python = SimpleNamespace(**runpy.run_path(str(wrapper)))
    try:
        network = python.Network()
    except python.NetworkError as error:
        _log.warning("%s: not compared with the build: %s", build.name, error)
        return
    with network:
        for fixed in (build, *(build.at(sizes) for sizes in checked_sizes(build.ranges or {}))):
            inputs = timing_inputs(fixed)
            try:
                outputs = network(*inputs)
            except python.NetworkError as error:
                raise ExportError(f"build {fixed.name}: the library fails: {error}") from error
            _compare(fixed, outputs, build_engine(source, inputs, "cpu").compute(), network.level)


def _compare(build: Build, outputs: Sequence[NDArray[Any]], expected: Sequence[NDArray[Any]], level: str) -> None:
    """Compare a library's outputs at an instruction-set level with its build's; raise ExportError if they differ."""
    if all(output.tobytes() == reference.tobytes() for output, reference in zip(outputs, expected, strict=True)):
        _log.info("%s: the library's outputs are bit-identical to the build's", build.name)
        return
    distance = relative_error(outputs, expected)
    if distance > _MAX_RELATIVE_ERROR:
        raise ExportError(
            f"build {build.name}: the library's outputs differ from the build's by {distance:.1e}: the weights or "
            "Anole have changed since it was compiled; compile it again"
        )
    _log.warning("%s: outputs at level %s differ from the build's by %.1e", build.name, level, distance)
