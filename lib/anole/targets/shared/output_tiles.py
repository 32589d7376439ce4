"""The square output tiles of a convolution by minimal filtering."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from anole.task import Conv2d


@dataclass(frozen=True)
class OutputTiles:
    """The tiles of all images; those at the lower and right border may extend beyond the image.

    Attributes:
        size: outputs along a side of a tile.
        taps: number of rows, and of columns, of the filters.
        rows: rows of tiles in one image.
        columns: columns of tiles in one image.
        count: number of tiles in all images.
        padded_count: number of tiles including those that fill up the last block.
    """

    size: int
    taps: int
    rows: int
    columns: int
    count: int
    padded_count: int

    @classmethod
    def of(cls, w: Conv2d, size: int, in_block: int) -> Self:
        """Returns the tiles of the given size; `in_block` of them are computed together."""
        rows, columns = -(-w.out_height // size), -(-w.out_width // size)
        count = w.batch * rows * columns
        return cls(size, w.kernel[0], rows, columns, count, -(-count // in_block) * in_block)

    @property
    def points(self) -> int:
        """Inputs along a side of a tile; also the number of products along a side."""
        return self.size + self.taps - 1

    def number(self, image: Any, row: Any, column: Any) -> Any:
        """Returns a tile's number from its image, row and column."""
        return (image * self.rows + row) * self.columns + column

    def place(self, number: Any) -> tuple[Any, Any, Any]:
        """Returns a tile's image, row and column from its number."""
        return number // (self.rows * self.columns), number // self.columns % self.rows, number % self.columns
