"""What is written once and comes again at other places is what would have been written there."""

from __future__ import annotations

from unittest import mock

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from anole.errors import ConfigError
from anole.targets.vta.geometry import DEFAULT, Geometry, Memory
from anole.targets.vta.isa import Finish, Gemm, Load
from anole.targets.vta.simulator.activity import Module
from anole.targets.vta.simulator.streams import Code
from anole.targets.vta.templates import conv2d
from anole.targets.vta.templates.conv2d import SHIFT_AND_CLIP, Bias, Residual, Schedule, lower_conv2d
from anole.targets.vta.templates.program import ProgramWriter
from anole.task import Conv2d

from ....examples import examples

GEOMETRIES = [
    DEFAULT,
    Geometry(batch=2, variant="vta++"),
    # Micro-operations do not stay in so small a buffer.
    Geometry(uop_bytes=1 << 6),
    Geometry(uop_bytes=1 << 6, variant="vta++"),
]


class Anew(ProgramWriter):
    """Writes everything where it is."""

    def passage(self, name, places, write):
        """Writes what `write` does."""
        write()


@settings(max_examples=examples(100), deadline=None)
@given(st.data())
def test_a_convolution_of_passages_is_what_would_be_written_anew(data):
    g = data.draw(st.sampled_from(GEOMETRIES))
    most = st.integers(1, 3)
    kernel = data.draw(most), data.draw(most)
    tile_h, tile_w, tile_co, h_threads, oc_threads = (data.draw(most) for _ in range(5))
    rows, columns = tile_h * h_threads * data.draw(st.integers(1, 5)), tile_w * data.draw(st.integers(1, 5))
    top, left, bottom, right = (data.draw(st.integers(0, 3)) for _ in range(4))
    height, width = rows - 1 + kernel[0] - top - bottom, columns - 1 + kernel[1] - left - right
    assume(height > 0 and width > 0)
    w = Conv2d(
        g.batch * data.draw(most),
        *(height, width),
        g.block_in * data.draw(most),
        g.block_out * tile_co * oc_threads * data.draw(most),
        kernel,
        padding=(top, left, bottom, right),
    )
    schedule = Schedule(tile_h, tile_w, 1, tile_co, h_threads, oc_threads)
    steps = [*([Bias()] if data.draw(st.booleans()) else []), Residual(), *SHIFT_AND_CLIP]
    try:
        program = lower_conv2d(w, schedule, g, steps)
    except ConfigError:
        assume(False)
    with mock.patch.object(conv2d, "ProgramWriter", Anew):
        anew = lower_conv2d(w, schedule, g, steps)
    assert program.instructions == anew.instructions
    assert (program.uops, program.regions) == (anew.uops, anew.regions)


def written(*, places):
    writer = ProgramWriter(DEFAULT, {"data": 1 << 12})

    def write(place):
        writer.wait(Module.COMPUTE, Module.LOAD)
        writer.add(Load(Memory.ACC, 0, place, 1, 2, 2), 0)
        writer.add(Gemm(True, 0, 1))

    for place in places:
        writer.passage("tile", (place,), lambda place=place: write(place))
    return writer


def test_a_passage_comes_again_at_another_place():
    program = written(places=[3, 5, 9]).finish()
    assert isinstance(program.instructions, Code)
    # The last one is followed by tokens of its own.
    first, second, _ = program.instructions.passages
    assert first.passage is second.passage and (first.by, second.by) == ((), (2,))
    assert [each.dram_base for each in program.instructions if isinstance(each, Load) and each.x_size] == [3, 5, 9]
    assert len(program.instructions) == len(list(program.instructions)) and program.instructions[-1] == Finish()


def test_a_token_that_is_left_behind_a_passage_is_not_left_behind_all_of_its_kind():
    writer = written(places=[3, 5])
    writer.signal(Module.COMPUTE, Module.STORE)
    left = [each.dependence.push_next for each in writer.finish().instructions if isinstance(each, Gemm)]
    assert left == [False, True]
