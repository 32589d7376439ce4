"""The functional simulator: results of single instructions, and errors for invalid programs."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anole_vta.geometry import DEFAULT, Geometry, Memory
from anole_vta.isa import Alu, AluOpcode, Finish, Gemm, Load, Store, StreamError, alu_uop, encode_uop
from anole_vta.simulator.functional import FunctionalSimulator

from ...examples import examples

INT32 = np.iinfo(np.int32)


def one_by_one(machine, uops, alu):
    """Compute an ALU instruction like the hardware, one step after the other."""
    operations = {
        AluOpcode.MIN: min,
        AluOpcode.MAX: max,
        AluOpcode.ADD: lambda x, y: (x + y + (1 << 31)) % (1 << 32) - (1 << 31),
    }
    acc = machine.acc.astype(object)
    for o in range(alu.iter_out):
        for i in range(alu.iter_in):
            for dst, src in uops:
                d, s = dst + o * alu.dst_out + i * alu.dst_in, src + o * alu.src_out + i * alu.src_in
                for lane in np.ndindex(acc.shape[1:]):
                    x, y = (acc[s][lane], alu.imm) if alu.use_imm else (acc[d][lane], acc[s][lane])
                    acc[d][lane] = operations[alu.opcode](int(x), int(y))
    return acc.astype(np.int32)


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_alu_steps_see_results_of_earlier_steps(data):
    machine = FunctionalSimulator(Geometry(block_in=32, block_out=4, acc_bytes=1 << 13), np.zeros(0, np.uint8))
    factor = st.integers(0, 3)
    n_uops = data.draw(st.integers(1, 3))
    opcode = data.draw(st.sampled_from([AluOpcode.MIN, AluOpcode.MAX, AluOpcode.ADD]))
    loops = (data.draw(st.integers(1, 4)), data.draw(st.integers(1, 4)))
    alu = Alu(opcode, 0, n_uops, *loops, *(data.draw(factor) for _ in range(4)), data.draw(st.booleans()), -3)
    uops = data.draw(st.lists(st.tuples(factor, factor), min_size=n_uops, max_size=n_uops))
    machine.uop[:n_uops] = [encode_uop(alu_uop(*uop, machine.geometry), machine.geometry) for uop in uops]
    rng = np.random.default_rng(0)
    machine.acc[:] = rng.integers(INT32.min, INT32.max, machine.acc.shape, np.int32)
    expected = one_by_one(machine, uops, alu)
    machine.step(alu)
    np.testing.assert_array_equal(machine.acc, expected)


@pytest.mark.parametrize(
    ("opcode", "variant", "x", "y", "expected"),
    [
        (AluOpcode.SHR, "vta", -5, 1, -3),
        (AluOpcode.SHR, "vta", -5, -2, -20),
        (AluOpcode.SHR, "vta", 7, 40, 0),
        (AluOpcode.CLP, "vta", 7, 40, 280),
        (AluOpcode.CLP, "vta++", -300, 127, -127),
        (AluOpcode.MOV, "vta++", 5, -9, -9),
        (AluOpcode.MUL, "vta++", 0x1FF, 3, -3),
        (AluOpcode.ADD, "vta", INT32.max, 1, INT32.min),
    ],
)
def test_operations(opcode, variant, x, y, expected):
    machine = FunctionalSimulator(Geometry(variant=variant), np.zeros(0, np.uint8))
    machine.acc[0] = x
    machine.step(Alu(opcode, 0, 1, use_imm=True, imm=y))
    assert (machine.acc[0] == expected).all()
    assert (machine.out[0] == np.int32(expected).astype(np.int8)).all()


def test_an_opcode_of_the_other_variant_is_refused():
    with pytest.raises(StreamError, match="vta has no ALU opcode 5"):
        FunctionalSimulator(DEFAULT, np.zeros(0, np.uint8)).step(Alu(AluOpcode.MOV, 0, 1, use_imm=True))


def test_a_reset_leaves_the_outputs_alone():
    machine = FunctionalSimulator(DEFAULT, np.zeros(0, np.uint8))
    machine.acc[:], machine.out[:] = 7, 9
    machine.step(Gemm(True, 0, 1, 4, 1, 2))
    assert (machine.acc[:8:2] == 0).all() and (machine.acc[1:8:2] == 7).all() and (machine.out == 9).all()


def test_an_alu_reads_accumulators_beyond_the_indices_of_inputs():
    g = Geometry(block_in=32, block_out=8, wgt_bytes=1 << 17, variant="vta++")
    machine = FunctionalSimulator(g, np.zeros(0, np.uint8))
    assert len(machine.acc) > len(machine.inp)
    last = len(machine.acc) - 1
    machine.acc[last] = 7
    machine.uop[0] = encode_uop(alu_uop(1, last, g), g)
    machine.step(Alu(AluOpcode.ADD, 0, 1))
    assert (machine.acc[1] == 7).all()


@pytest.mark.parametrize(
    ("instruction", "message"),
    [
        (Load(Memory.INP, 2047, 0, 1, 2, 2), r"instruction 1 \(LOAD\): INP holds 2048 elements; 2047 to 2049"),
        (Load(Memory.WGT, 0, 15, 1, 2, 2), r"instruction 1 \(LOAD\): DRAM ends at byte 4096; bytes up to 4352"),
        (Store(0, 255, 2, 1, 1), r"instruction 1 \(STORE\): DRAM ends at byte 4096"),
        (Store(2048, 0, 1, 1, 1), r"instruction 1 \(STORE\): OUT holds 2048 elements"),
        (Gemm(False, 0, 8193), r"instruction 1 \(GEMM\): UOP holds 8192 elements"),
        (Gemm(False, 0, 1, 3, 1, 1024), r"instruction 1 \(GEMM\): ACC holds 2048 elements; index 2048"),
        (Gemm(False, 0, 1, 2, 1, 0, 0, 0, 0, 1024), r"instruction 1 \(GEMM\): WGT holds 1024 elements"),
        (Alu(AluOpcode.ADD, 0, 1, 2, 1, 0, 0, 2048), r"instruction 1 \(ALU\): ACC holds 2048 elements"),
    ],
)
def test_out_of_bounds_instructions_are_named_by_number(instruction, message):
    machine = FunctionalSimulator(DEFAULT, np.zeros(4096, np.uint8))
    with pytest.raises(StreamError, match=message):
        machine.run([Load(Memory.UOP), instruction, Finish()])


def test_a_program_without_finish_is_refused():
    with pytest.raises(StreamError, match="does not end with FINISH"):
        FunctionalSimulator(DEFAULT, np.zeros(64, np.uint8)).run([Load(Memory.UOP)])
