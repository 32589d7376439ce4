"""Loads a model in the normal form from which tasks are read and builds are compiled."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anole.config.entries import ModelSpec
    from anole.extract.imported import Imported


EXTRACT_VERSION = 19
"""Raised whenever the same model would give other tasks or another network to compile."""


@contextmanager
def paused_collector() -> Iterator[None]:
    """Collect no cycles of objects meanwhile.

    Importing torch, tracing and converting make millions of objects of which nearly all last; the collector would visit
    them again and again, for a quarter of the time.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@paused_collector()
def load_model(model: ModelSpec, redrawn: bool = False) -> Imported:
    """Import a model and brings it into the normal form from which tasks are read and builds are compiled.

    A model with ranges becomes one network for all of their sizes. `redrawn` replaces the weights of a torch model.

    Raises:
        ExtractError: the model cannot be loaded or imported; the message says why.
    """
    if not model.ranges:
        return _load(model, redrawn)
    from anole.extract.symbolic_shapes import with_symbolic_shapes

    return with_symbolic_shapes(model, lambda fixed: _load(fixed, redrawn))


def _load(model: ModelSpec, redrawn: bool) -> Imported:
    from anole.extract.graph import normalize

    if model.scheme == "onnx":
        from anole.extract.onnx.importer import import_onnx

        return normalize(model, import_onnx(model))
    from anole.extract.torch import import_torch

    return normalize(model, import_torch(model, redrawn))
