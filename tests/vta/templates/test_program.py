"""Repeated passages equal passages that are written again at other addresses."""

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
    # Such a small buffer does not keep micro-operations.
    Geometry(uop_bytes=1 << 6),
    Geometry(uop_bytes=1 << 6, variant="vta++"),
]


class WithoutRepeats(ProgramWriter):
    """A writer that does not repeat passages."""

    def passages(self, names, bases, write):
        for number in range(len(names)):
            write(number)


@settings(max_examples=examples(100), deadline=None)
@given(convolutions(st.sampled_from(GEOMETRIES)))
def test_a_convolution_with_repeated_passages_equals_one_without(case):
    arguments, program = case
    with mock.patch.object(conv2d, "ProgramWriter", WithoutRepeats):
        expected = lower_conv2d(*arguments)
    assert program.instructions == expected.instructions
    assert (program.uops, program.regions) == (expected.uops, expected.regions)


def written(*, places):
    writer = ProgramWriter(DEFAULT, {"data": 1 << 12})

    def write(number):
        writer.wait(Module.COMPUTE, Module.LOAD)
        writer.add(Load(Memory.ACC, 0, places[number], 1, 2, 2), 0)
        writer.add(Gemm(True, 0, 1))

    writer.passages(["tile"] * len(places), np.array([(place, 0, 0, 0) for place in places]), write)
    return writer


def test_a_passage_repeats_at_another_address():
    code = written(places=[3, 5, 9]).finish().instructions
    assert isinstance(code, Code)
    # The last passage is followed by other tokens.
    assert code.order.tolist() == [0, 0, 1] and code.by[:, 0].tolist() == [0, 2, 0]
    assert [each.dram_base for each in code if isinstance(each, Load) and each.x_size] == [3, 5, 9]
    assert len(code) == len(list(code)) and code[-1] == Finish()


def test_a_token_after_one_passage_does_not_change_equal_passages():
    writer = written(places=[3, 5])
    writer.signal(Module.COMPUTE, Module.STORE)
    left = [each.dependence.push_next for each in writer.finish().instructions if isinstance(each, Gemm)]
    assert left == [False, True]
