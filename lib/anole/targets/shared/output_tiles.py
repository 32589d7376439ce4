"""The square output tiles of a convolution by minimal filtering."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from anole.record import Config
from anole.space import ALGORITHM
from anole.targets.base import WINOGRAD
from anole.task import Conv2d, Workload

_FINE_POINTS = 6
"""The points along a side of the largest tiles that round at most about twice as much as direct convolution, such as
those of F(4x4, 3x3). Then so does a whole network, however its layers amplify rounding; evaluating allows three times
the error of a reference. Tiles of eight points round four times as much as these."""


def finer_tiles(workload: Workload, config: Config) -> Mapping[str, Sequence[Any]] | None:
    """Return knobs' values that give a convolution smaller Winograd tiles than a config; None if its tiles are fine."""
    if not isinstance(workload, Conv2d) or config.get(ALGORITHM) != WINOGRAD:
        return None
    largest = _FINE_POINTS + 1 - workload.kernel[0]
    return {ALGORITHM: [WINOGRAD], "tile_size": [largest]} if config["tile_size"] > largest else None


@dataclass(frozen=True)
class OutputTiles:
    """The tiles of all images; those at the lower and right border may extend beyond the image.

    A convolution dilated by d reads, for every d-th output, every d-th input. So an image is d x d images of every d-th
    row and column, each with tiles of its own and convolved without dilation; without dilation, it is one.

    Attributes:
        size: outputs along a side of a tile.
        taps: number of rows, and of columns, of the filters.
        dilation: every which row and column of an image is in the same tile.
        rows: rows of tiles in one image of every so many rows.
        columns: columns of tiles in one image of every so many columns.
        count: number of tiles in all images, an expression where the number of images varies.
        blocks: number of blocks of tiles that are computed together; the last one may be filled up.
        in_block: number of tiles of a block.
    """

    size: int
    taps: int
    dilation: tuple[int, int]
    rows: int
    columns: int
    count: Any
    blocks: Any
    in_block: int

    @classmethod
    def of(cls, w: Conv2d, size: int, in_block: int) -> Self:
        """Return the tiles of the given size; `in_block` of them are computed together."""
        rows, columns = grid(w, size)
        count = tile_count(w, size)
        return cls(size, w.kernel[0], w.dilation, rows, columns, count, (count + in_block - 1) // in_block, in_block)

    @property
    def axes(self) -> tuple[Any, ...]:
        """The axes along which tiles are numbered: one, with those that fill up the last block.

        Where the number of images varies, these are the blocks and the tiles of each, so that the latter are known.
        """
        return (self.blocks * self.in_block,) if isinstance(self.count, int) else (self.blocks, self.in_block)

    def joined(self, *places: Any) -> Any:
        """Return the number of the tile at a place along the axes."""
        return places[0] if len(places) == 1 else places[0] * self.in_block + places[1]

    def parted(self, number: Any) -> tuple[Any, ...]:
        """Return the place of a tile along the axes."""
        return (number,) if len(self.axes) == 1 else (number // self.in_block, number % self.in_block)

    @property
    def points(self) -> int:
        """Inputs along a side of a tile; also the number of products along a side."""
        return self.size + self.taps - 1

    def number(self, image: Any, y: Any, x: Any) -> Any:
        """Return the number of the tile that an output is in."""
        (d_y, d_x), size = self.dilation, self.size
        image = (image * d_y + y % d_y) * d_x + x % d_x
        return (image * self.rows + y // (d_y * size)) * self.columns + x // (d_x * size)

    def within(self, y: Any, x: Any) -> tuple[Any, Any]:
        """Return the row and the column of an output within its tile."""
        return y // self.dilation[0] % self.size, x // self.dilation[1] % self.size

    def first(self, number: Any) -> tuple[Any, Any, Any]:
        """Return the image, the row and the column of a tile's first output; the next is a dilation further."""
        (d_y, d_x), image = self.dilation, number // (self.rows * self.columns)
        row, column = number // self.columns % self.rows, number % self.columns
        y, x = row * (self.size * d_y) + image // d_x % d_y, column * (self.size * d_x) + image % d_x
        return image // (d_y * d_x), y, x


def grid(w: Conv2d, size: Any) -> tuple[Any, Any]:
    """Return the rows and columns of tiles of this size, or of each of n sizes, in every so many rows and columns."""
    return -(-w.out_height // (w.dilation[0] * size)), -(-w.out_width // (w.dilation[1] * size))


def tile_count(w: Conv2d, size: Any) -> Any:
    """Return the number of tiles of this size, or of each of n sizes, in all images."""
    rows, columns = grid(w, size)
    return w.batch * w.dilation[0] * w.dilation[1] * rows * columns
