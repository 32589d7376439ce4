"""What is nearest is what torch takes."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from anole.extract.converters import nearest_places

along_a_side = st.one_of(
    st.tuples(st.integers(1, 500), st.none()),
    st.tuples(st.none(), st.floats(0.3, 5.0).map(lambda factor: round(factor, 2))),
)


@settings(deadline=None)
@given(st.integers(4, 200), along_a_side)
def test_the_nearest_is_the_one_that_torch_takes(inputs: int, asked: tuple[int | None, float | None]) -> None:
    size, factor = asked
    data = torch.arange(float(inputs)).view(1, 1, inputs, 1)
    expected = torch.nn.functional.interpolate(
        data, size=size and (size, 1), scale_factor=factor and (factor, 1.0)
    ).flatten()
    found = nearest_places(inputs, len(expected), factor)
    np.testing.assert_array_equal(found, expected.long().numpy())
