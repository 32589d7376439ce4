"""The square output tiles of a Winograd convolution."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from anole.record import Config
from anole.space import ALGORITHM
from anole.targets.base import WINOGRAD
from anole.task import Conv2d, Workload

_MAX_FINE_POINTS = 6
"""Side of the largest transformed tile, as in F(4x4, 3x3), whose rounding error is at most about twice that of direct
convolution. The same then holds for an entire network, even if its layers amplify rounding errors; the evaluation
allows three times a reference's error. The rounding error of tiles of eight points is four times as large."""


def finer_tiles(workload: Workload, config: Config) -> Mapping[str, Sequence[Any]] | None:
    """Return the knob values that give smaller Winograd tiles than a config; None if its tiles are small enough."""
    if not isinstance(workload, Conv2d) or config.get(ALGORITHM) != WINOGRAD:
        return None
    largest = _MAX_FINE_POINTS + 1 - workload.kernel[0]
    return {ALGORITHM: [WINOGRAD], "tile_size": [largest]} if config["tile_size"] > largest else None


@dataclass(frozen=True)
class OutputTiles:
    """The tiles of all images; tiles at the lower and right border may extend beyond the image.

    A convolution dilated by d reads, for every d-th output, every d-th input. An image therefore splits into d x d
    subimages of every d-th row and column, each tiled separately and convolved without dilation.

    Attributes:
        size: outputs along a side of a tile.
        taps: rows, and columns, of a filter.
        dilation: row and column stride between neighboring outputs of a tile.
        rows: rows of tiles in a subimage.
        columns: columns of tiles in a subimage.
        count: number of tiles in all images, an expression where the batch size varies.
        blocks: number of blocks, whose tiles are computed together; the last block may be padded.
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
        """The extents of the tile axes, padding of the last block included.

        There is one axis; if the batch size varies, there are two, the blocks and the tiles of each, which keeps the
        inner extent static.
        """
        return (self.blocks * self.in_block,) if isinstance(self.count, int) else (self.blocks, self.in_block)

    def index_at(self, *position: Any) -> Any:
        """Return the index of the tile at a position along the axes."""
        return position[0] if len(position) == 1 else position[0] * self.in_block + position[1]

    def position_of(self, number: Any) -> tuple[Any, ...]:
        """Return the position of a tile along the axes."""
        return (number,) if len(self.axes) == 1 else (number // self.in_block, number % self.in_block)

    @property
    def points(self) -> int:
        """Inputs, and products, along a side of a tile."""
        return self.size + self.taps - 1

    def number(self, image: Any, y: Any, x: Any) -> Any:
        """Return the index of the tile that contains an output."""
        (d_y, d_x), size = self.dilation, self.size
        image = (image * d_y + y % d_y) * d_x + x % d_x
        return (image * self.rows + y // (d_y * size)) * self.columns + x // (d_x * size)

    def within(self, y: Any, x: Any) -> tuple[Any, Any]:
        """Return the row and the column of an output within its tile."""
        return y // self.dilation[0] % self.size, x // self.dilation[1] % self.size

    def first(self, number: Any) -> tuple[Any, Any, Any]:
        """Return the image, row and column of a tile's first output; the next one is `dilation` further."""
        (d_y, d_x), image = self.dilation, number // (self.rows * self.columns)
        row, column = number // self.columns % self.rows, number % self.columns
        y, x = row * (self.size * d_y) + image // d_x % d_y, column * (self.size * d_x) + image % d_x
        return image // (d_y * d_x), y, x


def grid(w: Conv2d, size: Any) -> tuple[Any, Any]:
    """Return the rows and columns of tiles in a subimage, for a size or an array of sizes."""
    return -(-w.out_height // (w.dilation[0] * size)), -(-w.out_width // (w.dilation[1] * size))


def tile_count(w: Conv2d, size: Any) -> Any:
    """Return the number of tiles in all images, for a size or an array of sizes."""
    rows, columns = grid(w, size)
    return w.batch * w.dilation[0] * w.dilation[1] * rows * columns
