"""How the outputs of a convolution are cut into square tiles, which minimal filtering computes one by one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from anole.task import Conv2d


@dataclass(frozen=True)
class OutputTiles:
    """The tiles of all images; those at the lower and right border may jut out.

    Attributes:
        size: outputs along a side.
        taps: rows, and columns, of the filters.
        rows: of tiles, in one image.
        columns: of tiles.
        count: in all images.
        padded_count: with those that fill up the last block of them.
    """

    size: int
    taps: int
    rows: int
    columns: int
    count: int
    padded_count: int

    @classmethod
    def of(cls, w: Conv2d, size: int, in_block: int) -> Self:
        """Returns the tiles of a size, of which so many are computed together."""
        rows, columns = -(-w.out_height // size), -(-w.out_width // size)
        count = w.batch * rows * columns
        return cls(size, w.kernel[0], rows, columns, count, -(-count // in_block) * in_block)

    @property
    def points(self) -> int:
        """Inputs along a side of a tile, and products."""
        return self.size + self.taps - 1

    def number(self, image: Any, row: Any, column: Any) -> Any:
        """Returns a tile's number, from its place."""
        return (image * self.rows + row) * self.columns + column

    def place(self, number: Any) -> tuple[Any, Any, Any]:
        """Returns a tile's image, row and column, from its number."""
        return number // (self.rows * self.columns), number // self.columns % self.rows, number % self.columns
