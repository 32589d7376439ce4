"""A problem that tests of the bench share."""

from __future__ import annotations

import numpy as np
import pytest

from anole.bench import Problem
from anole.bench.spaces import make_space


@pytest.fixture
def problem() -> Problem:
    """A problem whose every third valid config fails; the others cost 2, 3, 5, 6, 8, ... seconds."""
    space = make_space({"a": range(6), "b": [1, 2, 4, 8, 16]}, ["a * b < 64"])
    rows = np.arange(len(space.all_valid_indices))
    latencies_s, failures = np.where(rows % 3 == 0, np.nan, 1.0 + rows), np.where(rows % 3 == 0, "compile", "")
    return Problem("small", space, latencies_s, None, failures.tolist(), [[1.0, row] for row in rows.tolist()])
