"""Encoding of instructions: round trips, and streams of the hardware."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anole_vta.geometry import DEFAULT, Geometry, Memory
from anole_vta.isa import (
    Alu,
    AluOpcode,
    Dependence,
    Finish,
    Gemm,
    Load,
    Store,
    StreamError,
    Uop,
    decode,
    decode_uop,
    encode,
    encode_uop,
)

GEOMETRIES = [DEFAULT, Geometry(variant="vta++"), Geometry(batch=2, block_in=32, block_out=8, variant="vta++")]
STREAMS = sorted((Path(__file__).parent / "data").glob("stream_*.json"))


def bits(n):
    return st.integers(0, (1 << n) - 1)


def instructions(g):
    flags = st.builds(Dependence, *[st.booleans()] * 4)
    uop, acc, inp, wgt = (bits(g.index_bits(m)) for m in (Memory.UOP, Memory.ACC, Memory.INP, Memory.WGT))
    base, size, pad, loop = bits(32), bits(16), bits(4), bits(14)
    extended = g.variant == "vta++"
    memories = st.sampled_from([Memory.UOP, Memory.WGT, Memory.INP, Memory.ACC])
    pad_min = st.booleans() if extended else st.just(False)
    nest = (uop, bits(g.index_bits(Memory.UOP) + 1), loop, loop, acc, acc)
    opcodes = st.sampled_from(list(AluOpcode) if extended else list(AluOpcode)[:5])
    src = inp if extended else acc
    imm = st.integers(-(1 << 15), (1 << 15) - 1)
    return st.one_of(
        st.builds(Load, memories, size, base, size, size, size, pad, pad, pad, pad, pad_min, flags),
        st.builds(Store, size, base, size, size, size, flags),
        st.builds(Gemm, st.booleans(), *nest, inp, inp, wgt, wgt, flags),
        st.builds(Alu, opcodes, *nest, src, src, st.booleans(), imm, st.booleans(), flags),
        st.builds(Finish, flags),
    )


@given(st.data(), st.sampled_from(GEOMETRIES))
def test_instructions_survive_a_round_trip(data, geometry):
    instruction = data.draw(instructions(geometry))
    word = encode(instruction, geometry)
    assert 0 <= word < 1 << 128
    assert decode(word, geometry) == instruction


@given(st.data(), st.sampled_from(GEOMETRIES))
def test_micro_operations_survive_a_round_trip(data, geometry):
    fields = (bits(geometry.index_bits(m)) for m in (Memory.ACC, Memory.INP, Memory.WGT))
    uop = data.draw(st.builds(Uop, *fields))
    assert decode_uop(encode_uop(uop, geometry), geometry) == uop


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.stem)
def test_streams_of_the_hardware_are_reproduced(path):
    rows = json.loads(path.read_text())["rows"]
    for row in rows:
        found, recorded = decode(int(row["hex"], 16), DEFAULT), row["insn"]
        assert f"{encode(found, DEFAULT):032x}" == row["hex"]
        assert list(map(int, found.dependence)) == recorded["dep"]
        if isinstance(found, Gemm):
            assert [found.dst_out, found.dst_in] == recorded["a"] and [found.wgt_out, found.wgt_in] == recorded["w"]
            assert [found.iter_out, found.iter_in] == [recorded["lp0"], recorded["lp1"]]
        if isinstance(found, Alu):
            assert (found.opcode, found.imm, found.use_imm) == (recorded["aop"], recorded["imm"], recorded["ui"])
        if isinstance(found, Load):
            pads = [found.y_pad_0, found.y_pad_1, found.x_pad_0, found.x_pad_1]
            assert pads == [recorded[name] for name in ("yp0", "yp1", "xp0", "xp1")]


@pytest.mark.parametrize(
    ("instruction", "message"),
    [
        (Load(Memory.INP, y_pad_0=16), "LOAD: y_pad_0 is 16; 0 to 15 fit"),
        (Gemm(False, 0, 1, iter_out=16384), "GEMM: iter_out is 16384; 0 to 16383 fit"),
        (Alu(AluOpcode.ADD, 0, 1, imm=40000), "ALU: imm is 40000; -32768 to 32767 fit"),
    ],
)
def test_values_that_do_not_fit_are_refused(instruction, message):
    with pytest.raises(StreamError, match=message):
        encode(instruction, DEFAULT)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        (7, "unknown opcode 7; allowed are 0 to 4"),
        (4 << 7, "LOAD of memory type 4"),
        (1, "STORE from memory type 0; only OUT"),
        (4 | 7 << 64 + 44, "unknown ALU opcode 7"),
    ],
)
def test_invalid_bits_are_refused(word, message):
    with pytest.raises(StreamError, match=message):
        decode(word, DEFAULT)


def test_a_micro_operation_beyond_a_buffer_is_refused():
    with pytest.raises(StreamError, match="index into WGT must be below 1024"):
        encode_uop(Uop(0, 0, 1024), DEFAULT)
