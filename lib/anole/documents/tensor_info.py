"""The interface of a model: the name, shape and type of each input and output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from anole.codec import LATER


@dataclass(frozen=True)
class TensorInfo:
    """One input or output of a model.

    Attributes:
        shape: the extents; typical sizes for variable extents.
        varying: for each extent, an expression in the names of ranges, such as ``2 * batch``, or None if fixed;
            None for a fixed shape.
        indexed: the size of the smallest table that an integer input indexes; None if it indexes none.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    varying: Annotated[tuple[str | None, ...] | None, LATER] = None
    indexed: Annotated[int | None, LATER] = None
