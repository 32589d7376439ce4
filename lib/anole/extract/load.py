"""Load a model in the normal form from which tasks are extracted and builds are compiled."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anole.config.entries import ModelSpec
    from anole.extract.imported import Imported


EXTRACT_VERSION = 21
"""Incremented when a code change makes extraction return different tasks or a different network for the same model."""


@contextmanager
def pause_collector() -> Iterator[None]:
    """Pause the garbage collector.

    Importing torch, tracing and converting create millions of objects, and nearly all stay alive; visiting them
    repeatedly would take a quarter of the time.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@pause_collector()
def load_model(model: ModelSpec, random_weights: bool = False) -> Imported:
    """Import a model and normalize it.

    A model with ranges becomes one network for all sizes. `random_weights` randomizes the weights of a torch model.

    Raises:
        ExtractError: the model cannot be loaded or imported; the message says why.
    """
    if not model.ranges:
        return _load(model, random_weights)
    from anole.extract.symbolic_shapes import with_symbolic_shapes

    return with_symbolic_shapes(model, lambda fixed: _load(fixed, random_weights))


def _load(model: ModelSpec, random_weights: bool) -> Imported:
    from anole.extract.graph import normalize

    if model.scheme == "onnx":
        from anole.extract.onnx.importer import import_onnx

        return normalize(model, import_onnx(model))
    from anole.extract.torch import import_torch

    return normalize(model, import_torch(model, random_weights))
