"""Runs a library once beside its build: the model, or Anole, may have changed since the build was compiled."""

from __future__ import annotations

import logging
import runpy
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import tvm
from numpy.typing import NDArray
from tvm.runtime.vm import VirtualMachine

from anole.documents.build import Build
from anole.errors import BuildError, ExportError
from anole.evaluate.comparison import draw_inputs, relative_error

_log = logging.getLogger(__name__)

_MOST_ERROR = 1e-4
"""As in evaluations: levels of instructions differ by rounding, other weights by more."""


def check_library(build: Build, source: Path, wrapper: Path) -> None:
    """Compares a library's outputs with those of its build, where this processor can run the library.

    Args:
        build: the build's description.
        source: the build's folder.
        wrapper: the library's wrapper for Python.

    Raises:
        BuildError: the build cannot be loaded.
        ExportError: the library fails, or computes something else.
    """
    # An import would write bytecode into the folder that users get.
    python, inputs = SimpleNamespace(**runpy.run_path(str(wrapper))), draw_inputs(build)
    try:
        network = python.Network()
    except python.NetworkError as error:
        _log.warning("%s: not compared with the build: %s", build.name, error)
        return
    with network:
        try:
            found = network(*inputs)
        except python.NetworkError as error:
            raise ExportError(f"build {build.name}: the library fails: {error}") from error
        expected = _outputs(source, inputs)
        if all(mine.tobytes() == theirs.tobytes() for mine, theirs in zip(found, expected, strict=True)):
            _log.info("%s: its outputs are the build's, bit by bit", build.name)
            return
        distance = relative_error(found, expected)
        if distance > _MOST_ERROR:
            raise ExportError(
                f"build {build.name}: the library's outputs differ from the build's by {distance:.1e}: the weights or "
                "Anole have changed since it was compiled; compile it again"
            )
        _log.warning("%s: outputs at level %s differ from the build's by %.1e", build.name, network.level, distance)


def _outputs(source: Path, inputs: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """Returns what a build computes."""
    try:
        machine = VirtualMachine(tvm.runtime.load_module(str(source / "model.so")), tvm.cpu())
    except Exception as error:
        raise BuildError(f"{source}: model.so cannot be loaded: {error}") from error
    found = machine["main"](*(tvm.runtime.tensor(array, tvm.cpu()) for array in inputs))
    return [found.numpy()] if isinstance(found, tvm.runtime.Tensor) else [each.numpy() for each in found]
