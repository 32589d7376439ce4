"""What programs compute, against plain NumPy, and the errors of programs that go astray."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from anole.errors import ConfigError
from anole.targets.vta.geometry import DEFAULT, Geometry, Memory
from anole.targets.vta.isa import (
    Alu,
    AluOpcode,
    Finish,
    Gemm,
    Load,
    Store,
    StreamError,
    alu_uop,
    decode,
    encode,
    encode_uop,
)
from anole.targets.vta.network.tensor_layout import (
    memory_image,
    pack_bias,
    pack_data,
    pack_out,
    pack_weight,
    region_of,
    unpack_out,
)
from anole.targets.vta.simulator.functional import FunctionalSimulator
from anole.targets.vta.simulator.timing import simulate
from anole.targets.vta.templates.conv2d import Bias, Immediate, Residual, Schedule, lower_conv2d
from anole.task import Conv2d

from ....examples import examples

GEOMETRIES = [
    DEFAULT,
    Geometry(batch=2, variant="vta++"),
    Geometry(block_in=8, block_out=32, variant="vta++"),
    Geometry(block_in=32, block_out=32),
    # There are more accumulators than inputs, so that their indices are wider.
    Geometry(block_in=32, block_out=8, wgt_bytes=1 << 17, variant="vta++"),
]
INT8, INT32 = np.iinfo(np.int8), np.iinfo(np.int32)


def reference(w, data, weight):
    """Returns a convolution in whole numbers, NHWC, wrapped to 32 bits."""
    top, left, bottom, right = w.padding
    padded = np.pad(data.astype(np.int64), ((0, 0), (top, bottom), (left, right), (0, 0)))
    out = np.zeros((w.batch, w.out_height, w.out_width, w.out_channels), np.int64)
    for y in range(w.kernel[0]):
        for x in range(w.kernel[1]):
            rows = slice(y, y + w.strides[0] * w.out_height, w.strides[0])
            columns = slice(x, x + w.strides[1] * w.out_width, w.strides[1])
            out += padded[:, rows, columns] @ weight[y, x].astype(np.int64)
    return out.astype(np.int32)


def finished(out, steps, bias, residual):
    operations = {
        AluOpcode.SHR: np.right_shift,
        AluOpcode.MIN: np.minimum,
        AluOpcode.MAX: np.maximum,
        AluOpcode.CLP: lambda x, y: np.clip(x, -y, y),
    }
    for step in steps:
        if isinstance(step, Immediate):
            out = operations[step.opcode](out, np.int32(step.imm))
        else:
            out = out + (bias if isinstance(step, Bias) else residual)
    return out.astype(np.int8)


@st.composite
def convolutions(draw):
    g = draw(st.sampled_from(GEOMETRIES))
    small = st.integers(1, 3)
    kernel, stride = ((draw(sizes), draw(sizes)) for sizes in (st.sampled_from([1, 2, 3, 5]), st.integers(1, 3)))
    padding = draw(st.one_of(st.just((0, 0, 0, 0)), st.tuples(*[st.integers(0, 3)] * 4)))
    w = Conv2d(
        g.batch * draw(small),
        draw(st.integers(1, 13)),
        draw(st.integers(1, 13)),
        g.block_in * draw(small),
        g.block_out * draw(st.integers(1, 4)),
        kernel,
        stride,
        padding,
    )
    assume(w.out_height > 0 and w.out_width > 0)

    def tile(extent):
        return draw(st.sampled_from([size for size in range(1, extent + 1) if extent % size == 0]))

    def threads(tiles):
        return draw(st.integers(1, 2)) if tiles % 2 == 0 else 1

    # Most of what is drawn can be lowered.
    tile_h, tile_w = tile(w.out_height), tile(w.out_width)
    tile_ci = 1 if any(padding) else tile(w.in_channels // g.block_in)
    blocks = w.out_channels // g.block_out
    tile_co = tile(blocks) if tile_w == w.out_width else 1
    schedule = Schedule(tile_h, tile_w, tile_ci, tile_co, threads(w.out_height // tile_h), threads(blocks // tile_co))
    steps = [Immediate(AluOpcode.SHR, draw(st.integers(0, 12)))]
    steps = [Bias(), *steps] if draw(st.booleans()) else steps
    steps += [Residual()] if draw(st.booleans()) else []
    if g.variant == "vta++":
        steps += [Immediate(AluOpcode.CLP, 127)]
    else:
        steps += [Immediate(AluOpcode.MIN, 127), Immediate(AluOpcode.MAX, draw(st.sampled_from([-128, 0])))]
    return g, w, schedule, steps, draw(st.integers(0, 1 << 30))


@settings(max_examples=examples(150), deadline=None)
@given(convolutions())
def test_a_lowered_convolution_computes_the_convolution(case):
    g, w, schedule, steps, seed = case
    try:
        program = lower_conv2d(w, schedule, g, steps)
    except ConfigError:
        assume(False)
    rng = np.random.default_rng(seed)
    data = rng.integers(INT8.min, INT8.max + 1, (w.batch, w.height, w.width, w.in_channels), np.int8)
    weight = rng.integers(INT8.min, INT8.max + 1, (*w.kernel, w.in_channels, w.out_channels), np.int8)
    bias = rng.integers(INT32.min // 2, INT32.max // 2, w.out_channels, np.int32)
    shape = (w.batch, w.out_height, w.out_width, w.out_channels)
    residual = rng.integers(-200, 200, shape, np.int32)
    packed = {
        "data": pack_data(data, g),
        "weight": pack_weight(weight, g),
        "bias": pack_bias(bias, g),
        "residual": pack_out(residual, g),
    }
    dram = memory_image(program, {name: packed[name] for name in packed if name in program.regions})
    FunctionalSimulator(g, dram).run(program.instructions)
    blocks = (w.batch // g.batch, w.out_channels // g.block_out, w.out_height, w.out_width, g.batch, g.block_out)
    found = unpack_out(region_of(program, dram, "out").view(np.int8).reshape(blocks))
    np.testing.assert_array_equal(found, finished(reference(w, data, weight), steps, bias, residual))
    # Every instruction has its bits, and its tokens let the program run to its end.
    assert [decode(encode(each, g), g) for each in program.instructions] == list(program.instructions)
    assert simulate(program.instructions, g).cycles > 0


def one_by_one(machine, uops, alu):
    """Computes an ALU instruction as the hardware does, one step after the other."""
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
def test_alu_steps_see_what_the_steps_before_them_wrote(data):
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


def test_a_border_is_zero_or_the_least_value():
    dram = np.arange(64, dtype=np.uint8)
    for pad_min, border in ((False, 0), (True, -128)):
        machine = FunctionalSimulator(Geometry(variant="vta++"), dram.copy())
        machine.step(Load(Memory.INP, 3, 1, 1, 2, 2, 1, 0, 0, 1, pad_min))
        assert (machine.inp[3:6] == border).all() and (machine.inp[8] == border).all()
        assert machine.inp[6, 0].tolist() == list(range(16, 32)) and machine.inp[7, 0].tolist() == list(range(32, 48))


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
def test_what_leaves_a_buffer_is_named_by_its_number(instruction, message):
    machine = FunctionalSimulator(DEFAULT, np.zeros(4096, np.uint8))
    with pytest.raises(StreamError, match=message):
        machine.run([Load(Memory.UOP), instruction, Finish()])


def test_a_program_without_finish_is_refused():
    with pytest.raises(StreamError, match="does not end with FINISH"):
        FunctionalSimulator(DEFAULT, np.zeros(64, np.uint8)).run([Load(Memory.UOP)])
