"""The order of the tile loops inside a parallel chunk; needs no compiler."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

TILE_ORDERS = {"fyx": (0, 1, 2), "yfx": (1, 0, 2), "yxf": (1, 2, 0)}
"""The order of the tile loops of filters, rows and columns: positions in (f, y, x)."""


def tile_places(orders: NDArray[np.str_]) -> NDArray[np.int64]:
    """Returns the positions of the loops of f, y and x, 0 being outermost, shape (n, 3); `orders` has shape (n,)."""
    names = sorted(TILE_ORDERS)
    places = np.array([np.argsort(TILE_ORDERS[name]) for name in names])
    return np.asarray(places[np.searchsorted(names, orders)])
