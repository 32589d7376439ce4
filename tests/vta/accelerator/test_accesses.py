"""Access counts by passages match counts by instruction, and the work of a convolution."""

from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anole_vta.accelerator.accesses import COUNTED, accesses_of
from anole_vta.geometry import Memory
from anole_vta.isa import Alu, Gemm
from anole_vta.simulator.timing import simulate
from anole_vta.templates.program import Program

from ...examples import examples
from ..conftest import GEOMETRIES, convolutions


def counts(program):
    return dict(zip(COUNTED, accesses_of(program).tolist(), strict=True))


@settings(max_examples=examples(60), deadline=None)
@given(convolutions(st.sampled_from(GEOMETRIES)))
def test_counts_of_passages_match_counts_of_instructions(case):
    _, program = case
    plain = Program(program.geometry, tuple(program.instructions), program.uops, program.regions)
    assert counts(program) == counts(plain)


@settings(max_examples=examples(60), deadline=None)
@given(convolutions(st.sampled_from(GEOMETRIES)))
def test_counts_match_the_work_of_a_convolution(case):
    (w, _, g, steps), program = case
    found = counts(program)
    outputs = w.batch * w.out_height * w.out_width * w.out_channels
    n_gemm = outputs // (g.batch * g.block_out) * prod(w.kernel) * (w.in_channels // g.block_in)
    assert found["products"] == outputs * prod(w.kernel) * w.in_channels
    assert found["sums"] == found["products"] + outputs * len(steps)
    assert found["inp_reads"] == found["wgt_reads"] == n_gemm
    assert found["out_reads"] * g.batch * g.block_out == outputs
    # Every written sum is also written in 8 bits.
    loaded = found["acc_writes"] - found["out_writes"]
    assert loaded >= 0 and (loaded > 0) == (len(steps) > 3)
    n_micro = sum(
        each.iter_out * each.iter_in * (each.uop_end - each.uop_begin)
        for each in program.instructions
        if isinstance(each, (Gemm, Alu))
    )
    assert found["uop_reads"] == n_micro == found["out_writes"]
    assert found["instructions"] == len(program.instructions)


@settings(max_examples=examples(30), deadline=None)
@given(convolutions(st.sampled_from(GEOMETRIES)))
def test_bus_traffic_is_at_least_the_counted_bits(case):
    _, program = case
    g, timeline = program.geometry, simulate(program.instructions, program.geometry)
    moved_bits = 8 * g.bus_bytes * (timeline.read_beats + timeline.write_beats)
    counted_bits = counts(program)["dram_bits"] - 128 * len(program.instructions)
    assert 0 < counted_bits <= moved_bits
    # Unused bytes are fewer than two beats per row, so they are few unless elements are narrower than the bus.
    if min(g.element_bytes(memory) for memory in (Memory.UOP, Memory.INP, Memory.WGT, Memory.OUT)) >= g.bus_bytes:
        assert counted_bits == pytest.approx(moved_bits)


def test_counts_are_integers(tmp_path):
    assert accesses_of(Program(GEOMETRIES[0], (), (), {})).dtype == np.int64
