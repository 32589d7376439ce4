"""The command that exports: from a build to a C library in a folder."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

from anole.compile.folder import new_folder
from anole.documents.build import read_build
from anole.errors import ExportError
from anole.export.check import check_library
from anole.export.folder import PREFIX, WEIGHTS_ENDING, check_folder, user_files
from anole.export.kernels import compile_level, largest, lower_build
from anole.export.levels import choose_levels
from anole.export.library import link_level, link_library, write_sources
from anole.export.source import Network, kernel_list_text, plan_text, tables_text
from anole.export.weights import pack_weights
from anole.targets import get_target
from anole.targets.cpu.target import CpuTarget

_log = logging.getLogger(__name__)

_PREFIX = re.compile(r"[a-z][a-z0-9_]{0,31}")

_MOST_BYTES_INSIDE = 1_500_000_000
"""Code reaches 2 GiB, and a program may have other libraries, too."""


def export_build(
    source: Path,
    folder: Path,
    weights_inside: bool = True,
    levels: Sequence[str] = (),
    prefix: str = PREFIX,
    options: Sequence[str] = (),
    check: bool = True,
) -> Network:
    """Exports a build for a CPU.

    Args:
        source: the build's folder.
        folder: where the library goes, in place of another library.
        weights_inside: whether the weights go into the library, and not into a file.
        levels: names of the levels of instructions; all by default.
        prefix: what the names of functions and files begin with.
        options: further options of the C compiler, such as a sanitizer.
        check: whether the library's outputs are compared with the build's, if this is the build's processor.

    Returns:
        What the library consists of.

    Raises:
        DocumentError: the folder holds no build.
        ExtractError: the model cannot be loaded.
        BuildError: the model has changed since it was built, or the folder cannot be written.
        ExportError: the build cannot become a C library.
        MachineError: a compiler or another tool is missing or failed.
    """
    build = read_build(source)
    if not _PREFIX.fullmatch(prefix):
        raise ExportError(f"found prefix {prefix!r}; it begins the names of functions, so give up to 32 of a-z, 0-9, _")
    target = get_target(build.target_description)
    if not isinstance(target, CpuTarget):
        kind = build.target_description.get("kind")
        raise ExportError(f"{source}: found a build for {kind}; only builds for a cpu can be exported")
    check_folder(folder)
    chosen = choose_levels(target.description, levels)
    lowered = lower_build(build, target)
    with TemporaryDirectory(prefix="anole-") as scratch, new_folder(folder) as made:
        objects = [Path(scratch, f"kernels-{level.identifier}.o") for level in chosen]
        workspaces = [
            compile_level(lowered, target, level, target.threads, path)
            for level, path in zip(chosen, objects, strict=True)
        ]
        network = Network(
            title=f"The network {build.model} as build {build.name}",
            model=build.model,
            inputs=build.inputs,
            outputs=build.outputs,
            kernels=lowered.kernels,
            weights=pack_weights(lowered.kernels.constants),
            weights_inside=weights_inside,
            workspaces=largest(workspaces),
            levels=chosen,
            threads=target.threads,
        )
        write_library(network, objects, Path(scratch), made, prefix, options)
        if check and (absence := target.absence()) is None:
            check_library(build, source, made / f"{prefix}.py")
        elif check:
            _log.warning("%s: not compared with the build: %s", folder, absence)
    names = ", ".join(level.name for level in chosen)
    _log.info("%s: an arena of %d bytes, kernels for %s", folder, network.layout.size_bytes, names)
    return network


def write_library(
    network: Network, kernels: Sequence[Path], scratch: Path, made: Path, prefix: str, options: Sequence[str]
) -> None:
    """Writes the library and what comes with it.

    Args:
        network: the network.
        kernels: the object with the kernels of each level.
        scratch: a folder for sources and objects.
        made: where the library goes.
        prefix: what the names of functions and files begin with.
        options: further options of the compiler, such as a sanitizer.
    """
    if network.weights_inside and len(network.weights.content) > _MOST_BYTES_INSIDE:
        raise ExportError("the weights are too large for a library; put them into a file: --weights file")
    users = user_files(network, version("anole"), prefix)
    weights = (scratch if network.weights_inside else made) / f"{prefix}{WEIGHTS_ENDING}"
    weights.write_bytes(network.weights.content)
    for name, text in users.items():
        (made / name).write_text(text, encoding="utf-8")
    own = {
        "plan.h": plan_text(network),
        "tables.h": tables_text(network),
        "kernel_list.h": kernel_list_text(network.kernels.kernels),
        "api.h": users[f"{prefix}.h"],
    }
    write_sources(scratch, own, prefix)
    levels = [link_level(scratch, level, path) for level, path in zip(network.levels, kernels, strict=True)]
    link_library(
        scratch, levels, made / f"lib{prefix}.so", made / f"lib{prefix}.a", prefix, network.threads,
        weights if network.weights_inside else None, options,
    )  # fmt: skip
