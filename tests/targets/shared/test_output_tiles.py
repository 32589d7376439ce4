"""Every output is in exactly one Winograd tile, also with dilation."""

from __future__ import annotations

from collections import Counter

import pytest

from anole.targets.shared.output_tiles import OutputTiles
from anole.task import Conv2d


@pytest.mark.parametrize("dilation", [(1, 1), (2, 3), (4, 1)], ids=str)
@pytest.mark.parametrize("size", [2, 4])
def test_the_outputs_of_a_tile_are_a_dilation_apart(dilation: tuple[int, int], size: int) -> None:
    padding = (*dilation, *dilation)
    tiles = OutputTiles.of(Conv2d(2, 13, 6, 8, 8, (3, 3), padding=padding, dilation=dilation), size, 8)
    outputs = [(n, y, x) for n in range(2) for y in range(13) for x in range(6)]
    held = Counter((tiles.number(*output), *tiles.within(*output[1:])) for output in outputs)
    assert set(held.values()) == {1} and {number for number, *_ in held} <= set(range(tiles.count))
    for n, y, x in outputs:
        image, first_y, first_x = tiles.first(tiles.number(n, y, x))
        row, column = tiles.within(y, x)
        assert (image, first_y + row * dilation[0], first_x + column * dilation[1]) == (n, y, x)
    assert 0 <= tiles.blocks * tiles.in_block - tiles.count < tiles.in_block == 8
