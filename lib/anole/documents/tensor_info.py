"""The interface of a model: the name, shape and type of each input and output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from anole.codec import LATER


@dataclass(frozen=True)
class TensorInfo:
    """One input or output of a model.

    Attributes:
        shape: with the usual sizes, where it varies.
        varying: the extents that vary, by the names of their ranges, such as ``2 * batch``, and None for all others;
            None for a fixed shape.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    varying: Annotated[tuple[str | None, ...] | None, LATER] = None
