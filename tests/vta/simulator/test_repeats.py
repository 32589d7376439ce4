"""Fast-forwarded cycle counts, against those of complete simulations."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anole.task import Conv2d
from anole_vta.geometry import DEFAULT, Geometry, Memory
from anole_vta.isa import Alu, AluOpcode, Dependence, Finish, Gemm, Load, Store, StreamError
from anole_vta.simulator.activity import Activities
from anole_vta.simulator.event_simulator import EventSimulator
from anole_vta.simulator.repeats import FastForwardSimulator
from anole_vta.simulator.streams import Streams, code_of
from anole_vta.simulator.timing import cycles_of, simulate
from anole_vta.templates.conv2d import SHIFT_AND_CLIP, Bias, Schedule, lower_conv2d

from ...examples import examples
from ..conftest import convolutions


def powers(first, last):
    return st.sampled_from([1 << exponent for exponent in range(first, last + 1)])


geometries = st.builds(
    Geometry,
    block_in=powers(3, 4),
    block_out=powers(3, 4),
    uop_bytes=powers(7, 12),
    inp_bytes=powers(12, 14),
    wgt_bytes=powers(14, 17),
    acc_bytes=powers(13, 15),
    bus_bytes=powers(3, 6),
    burst_beats=powers(1, 6),
    queue_entries=powers(0, 7),
)


programs = convolutions(geometries).map(lambda case: case[1])


@pytest.mark.guard
@settings(max_examples=examples(80), deadline=None)
@given(programs)
def test_a_convolution_takes_the_cycles_of_its_complete_simulation(program):
    complete = simulate(list(program.instructions), program.geometry)
    assert cycles_of(program.instructions, program.geometry) == complete.cycles
    # The cycles do not depend on the passages.
    assert cycles_of(list(program.instructions), program.geometry) == complete.cycles


class Watched(EventSimulator):
    """A simulator that records its states."""

    def __init__(self, *args):
        super().__init__(*args)
        self.states = {}

    def _on_passage_end(self, cycle, passage):
        at = self.progress(cycle, passage + 1)
        self.states[at] = self.state(at)


class Compared(FastForwardSimulator):
    """A simulator that asserts that it only resumes from states of a complete simulation."""

    def resume(self, at, state):
        assert self.states[at] == state
        super().resume(at, state)
        assert self.state(at) == state


@settings(max_examples=examples(40), deadline=None)
@given(programs)
def test_skips_lead_to_states_of_the_complete_simulation(program):
    streams = Streams(code_of(program.instructions), Activities(program.geometry))
    complete, skipper = (kind(streams, program.geometry) for kind in (Watched, Compared))
    cycles, skipper.states = complete.run(), complete.states
    assert skipper.run() == cycles


tiles = st.tuples(st.integers(0, 40), st.integers(1, 3), st.integers(0, 9), st.integers(9, 12))
often, seldom = st.sampled_from([False, True]), st.sampled_from([False] * 7 + [True])
flags = st.builds(Dependence, seldom, seldom, often, often)
instructions = st.one_of(
    st.builds(
        lambda memory, tile, border, dependence: Load(memory, 0, *tile, *border, dependence=dependence),
        st.sampled_from([Memory.UOP, Memory.INP, Memory.WGT, Memory.ACC]),
        tiles,
        st.tuples(*(st.integers(0, 2) for _ in range(4))),
        flags,
    ),
    st.builds(lambda tile, dependence: Store(0, *tile, dependence=dependence), tiles, flags),
    st.builds(lambda n, dependence: Gemm(False, 0, n, dependence=dependence), st.integers(0, 60), flags),
    st.builds(lambda n, dependence: Alu(AluOpcode.ADD, 0, n, dependence=dependence), st.integers(0, 60), flags),
)


def outcome(run):
    try:
        return run()
    except StreamError as error:
        return str(error)


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(st.tuples(st.lists(instructions, max_size=12), st.integers(1, 60)), min_size=1, max_size=4), geometries)
def test_any_repeated_stream_takes_the_cycles_or_deadlocks_like_its_complete_simulation(parts, geometry):
    program = [each for part, times in parts for each in part * times] + [Finish()]
    complete = outcome(lambda: simulate(program, geometry).cycles)
    assert outcome(lambda: cycles_of(program, geometry)) == complete


LAYER = Conv2d(1, 28, 28, 64, 64, (3, 3), padding=(1, 1, 1, 1))


@pytest.mark.parametrize("threads", [(1, 1), (2, 1), (1, 2), (2, 2)])
@pytest.mark.parametrize("queue_entries", [8, 512])
def test_most_passages_of_small_tiles_are_skipped(threads, queue_entries):
    geometry = replace(DEFAULT, queue_entries=queue_entries)
    program = lower_conv2d(LAYER, Schedule(1, 4, 1, 1, *threads), geometry)
    skipper = FastForwardSimulator(Streams(code_of(program.instructions), Activities(geometry)), geometry)
    assert skipper.run() == simulate(program.instructions, geometry).cycles
    assert skipper.skipped > 0.7 * len(program.instructions.order)


def test_instructions_after_the_last_repetition_are_not_skipped():
    """Whether the queue has room for an instruction depends on its module, before the dispatch."""
    geometry = Geometry(block_in=32, block_out=64, queue_entries=512)
    w = Conv2d(1, 56, 56, 64, 64, (3, 3), padding=(1, 1, 1, 1))
    program = lower_conv2d(w, Schedule(1, 2), geometry, (Bias(), *SHIFT_AND_CLIP))
    assert cycles_of(program.instructions, geometry) == 7814120
