"""Workloads for the CPU's tests: small ones of all shapes."""

from __future__ import annotations

from hypothesis import strategies as st

from anole.task import Conv2d


@st.composite
def _winograd_convolutions(draw: st.DrawFn) -> Conv2d:
    taps = draw(st.sampled_from([3, 3, 5]))
    return Conv2d(
        batch=draw(st.integers(1, 4)),
        height=draw(st.integers(taps, 15)),
        width=draw(st.integers(taps, 15)),
        in_channels=draw(st.sampled_from([1, 2, 3, 7, 8, 16, 17, 24, 32])),
        out_channels=draw(st.sampled_from([1, 5, 8, 13, 16, 31, 32, 48])),
        kernel=(taps, taps),
        padding=draw(st.tuples(*[st.integers(0, 3)] * 4)),
    )


winograd_convolutions = _winograd_convolutions()
"""Those that Winograd can compute: images of any size and padding, also of prime numbers of channels."""
