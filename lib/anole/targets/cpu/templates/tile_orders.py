"""The order of the tile loops inside a parallel chunk; needs no compiler."""

from __future__ import annotations

from itertools import permutations

import numpy as np
from numpy.typing import NDArray

TILE_ORDERS = ("fyx", "yfx", "yxf")
"""The orders of the tile loops of filters, rows and columns, outermost first, that are worth trying."""

ALL_TILE_ORDERS = tuple(sorted(map("".join, permutations("fyx"))))


def tile_order(name: str) -> tuple[int, ...]:
    """Returns the positions in (f, y, x) of the loops of an order, outermost first."""
    return tuple(map("fyx".index, name))


def tile_places(orders: NDArray[np.str_]) -> NDArray[np.int64]:
    """Returns the positions of the loops of f, y and x, 0 being outermost, shape (n, 3); `orders` has shape (n,)."""
    places = np.array([np.argsort(tile_order(name)) for name in ALL_TILE_ORDERS])
    return np.asarray(places[np.searchsorted(ALL_TILE_ORDERS, orders)])
