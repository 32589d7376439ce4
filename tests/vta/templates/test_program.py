"""What is written once and comes again at other places is what would have been written there."""

from __future__ import annotations

from unittest import mock

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from anole_vta.geometry import DEFAULT, Geometry, Memory
from anole_vta.isa import Finish, Gemm, Load
from anole_vta.simulator.activity import Module
from anole_vta.simulator.streams import Code
from anole_vta.templates import conv2d
from anole_vta.templates.conv2d import lower_conv2d
from anole_vta.templates.program import ProgramWriter

from ...examples import examples
from ..conftest import convolutions

GEOMETRIES = [
    DEFAULT,
    Geometry(batch=2, variant="vta++"),
    # Micro-operations do not stay in so small a buffer.
    Geometry(uop_bytes=1 << 6),
    Geometry(uop_bytes=1 << 6, variant="vta++"),
]


class Anew(ProgramWriter):
    """Writes everything where it is."""

    def passages(self, names, places, write):
        """Write what `write` does."""
        for number in range(len(names)):
            write(number)


@settings(max_examples=examples(100), deadline=None)
@given(convolutions(st.sampled_from(GEOMETRIES)))
def test_a_convolution_of_passages_is_what_would_be_written_anew(drawn):
    arguments, program = drawn
    with mock.patch.object(conv2d, "ProgramWriter", Anew):
        anew = lower_conv2d(*arguments)
    assert program.instructions == anew.instructions
    assert (program.uops, program.regions) == (anew.uops, anew.regions)


def written(*, places):
    writer = ProgramWriter(DEFAULT, {"data": 1 << 12})

    def write(number):
        writer.wait(Module.COMPUTE, Module.LOAD)
        writer.add(Load(Memory.ACC, 0, places[number], 1, 2, 2), 0)
        writer.add(Gemm(True, 0, 1))

    writer.passages(["tile"] * len(places), np.array([(place, 0, 0, 0) for place in places]), write)
    return writer


def test_a_passage_comes_again_at_another_place():
    code = written(places=[3, 5, 9]).finish().instructions
    assert isinstance(code, Code)
    # The last one is followed by tokens of its own.
    assert code.order.tolist() == [0, 0, 1] and code.by[:, 0].tolist() == [0, 2, 0]
    assert [each.dram_base for each in code if isinstance(each, Load) and each.x_size] == [3, 5, 9]
    assert len(code) == len(list(code)) and code[-1] == Finish()


def test_a_token_that_is_left_behind_a_passage_is_not_left_behind_all_of_its_kind():
    writer = written(places=[3, 5])
    writer.signal(Module.COMPUTE, Module.STORE)
    left = [each.dependence.push_next for each in writer.finish().instructions if isinstance(each, Gemm)]
    assert left == [False, True]
