"""The kernel of a recurrent layer computes ONNX's equations with any tiling, on CPU and GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from anole.errors import TargetError
from anole.targets import get_target
from anole.targets.cpu.default.recurrence import recurrence_tiling
from anole.targets.cpu.device.vector_unit import VectorUnit
from anole.targets.cpu.settings import describe_cpu
from anole.targets.shared.recurrence import GATES, Activation, Parameter, Recurrence, recurrence_of
from anole.targets.shared.recurrent_kernel import Tiling, alternating_index, recurrent_kernel
from anole_cuda.default.recurrence import schedule_recurrence
from anole_cuda.device.builder import skip_compilation
from anole_cuda.settings import describe_cuda
from kit.emulated_gpu.programs import run_function
from kit.emulated_gpu.worker import EmulatedGpu

from ...examples import examples

SIGMOID, TANH = Activation("sigmoid"), Activation("tanh")
FUNCTIONS = {"lstm": (SIGMOID, TANH, TANH), "gru": (SIGMOID, TANH), "rnn": (TANH,)}
H200 = {"kind": "cuda", "arch": "sm_90", "max_threads_per_block": 1024, "max_shared_memory_per_block": 49152}


def layer(cell: Any, batch: int, hidden: int, backward: tuple[bool, ...], **options: Any) -> Recurrence:
    return Recurrence(cell, 3, batch, hidden, backward, (FUNCTIONS[cell],) * len(backward), **options)


def random_inputs(own: Recurrence) -> dict[str, NDArray[Any]]:
    rng = np.random.default_rng(0)
    found = {each.name: rng.uniform(-0.7, 0.7, shape_of(own, each)).astype(each.dtype) for each in own.parameters}
    if own.lengths:
        # The kernel clips lengths to the valid range.
        found["lengths"] = rng.integers(-2, own.steps + 3, own.batch).astype(np.int32)
    return found


def shape_of(own: Recurrence, parameter: Parameter) -> list[int]:
    sizes = {own.steps_symbol: own.steps, own.batch_symbol: own.batch}
    return [sizes[extent] if isinstance(extent, str) else extent for extent in parameter.shape]


def compute_expected(own: Recurrence, given: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return the results of ONNX's equations in double precision."""
    at, hidden = {name: values.astype(np.float64) for name, values in given.items()}, own.hidden
    y = np.zeros((own.steps, own.batch, own.directions, hidden))
    states, cells = at["initial_h"].copy(), at.get("initial_c", at["initial_h"]).copy()
    lengths = given.get("lengths", np.full(own.batch, own.steps)).clip(0, own.steps)
    for direction, is_backward in enumerate(own.backward):
        weights = at["recurrent"][direction].transpose(2, 0, 3, 1).reshape(own.gates, -1, hidden)[:, :hidden]
        for row in range(own.batch):
            h, c = states[direction, row], cells[direction, row]
            for step in range(lengths[row]):
                time = lengths[row] - 1 - step if is_backward else step
                x = at["projected"][(row, time) if own.batch_first else (time, row)][direction][:, :hidden]
                h[:], c[:] = advance(own, at, direction, x, weights, h, c)
                y[time, row, direction] = h
    order = ["tnd".index(axis) for axis in own.axes]
    found = {"y": y.transpose(*order, 3), "last_h": states}
    return {**found, "last_c": cells} if own.cell == "lstm" else found


def advance(own: Recurrence, at: Any, direction: int, x: Any, weights: Any, h: Any, c: Any) -> tuple[Any, Any]:
    """Return the next state and cell."""

    def sigmoid(values: Any) -> Any:
        return 1 / (1 + np.exp(-values))

    products = weights @ h
    if own.cell == "rnn":
        return np.tanh(x[0] + products[0]), c
    if own.cell == "gru":
        update, reset = sigmoid(x[:2] + products[:2])
        if own.reset_after:
            candidate = np.tanh(x[2] + reset * (products[2] + at["bias"][direction, : own.hidden]))
        else:
            candidate = np.tanh(x[2] + weights[2] @ (reset * h))
        return (1 - update) * candidate + update * h, c
    peepholes = at["peepholes"][direction, :, : own.hidden] if own.peepholes else np.zeros((3, own.hidden))
    sums = x + products
    taken, kept = sigmoid(sums[0] + peepholes[0] * c), sigmoid(sums[2] + peepholes[2] * c)
    new = kept * c + taken * np.tanh(sums[3])
    return sigmoid(sums[1] + peepholes[1] * new) * np.tanh(new), new


def compute_on_cpu(own: Recurrence, tiling: Tiling) -> list[NDArray[Any]]:
    given, target = random_inputs(own), get_target(describe_cpu())
    of_one = Tiling() if own.batch_symbol else None
    module = tvm.IRModule({"main": recurrent_kernel(own, tiling, of_one).with_attr("global_symbol", "main")})
    with target.compiler_target() as compiler_target:
        library = tvm.compile(module, compiler_target, tir_pipeline=target.compiler_pipeline())
    results = [tvm.runtime.tensor(np.full(shape_of(own, each), np.nan, np.float32)) for each in own.results]
    library["main"](*(tvm.runtime.tensor(given[each.name]) for each in own.parameters), *results)
    return [result.numpy() for result in results]


def check_results(own: Recurrence, given: dict[str, NDArray[Any]], found: Sequence[NDArray[Any]]) -> None:
    """Assert that the last arrays equal the results."""
    wanted = compute_expected(own, given)
    for parameter, result in zip(own.results, found[-len(own.results) :], strict=True):
        np.testing.assert_allclose(result, wanted[parameter.name], rtol=1e-5, atol=1e-6)


@st.composite
def tiled_layers(draw: st.DrawFn) -> tuple[Recurrence, Tiling]:
    cell = draw(st.sampled_from(sorted(GATES)))
    varies = draw(st.booleans())
    batch, hidden = draw(st.sampled_from([1, 2, 3, 4])), draw(st.sampled_from([7, 16, 32, 50]))
    own = layer(
        cell,
        batch,
        hidden,
        draw(st.sampled_from([(False,), (True,), (False, True)])),
        batch_first=draw(st.booleans()),
        axes=draw(st.sampled_from(["tnd", "tdn", "ntd"])),
        reset_after=cell == "gru" and draw(st.booleans()),
        peepholes=cell == "lstm" and draw(st.booleans()),
        lengths=draw(st.booleans()),
        steps_symbol=draw(st.sampled_from([None, "steps"])),
        batch_symbol="batch" if varies else None,
    )
    rows = draw(st.sampled_from([1, 2, 4]))
    blocks = draw(st.sampled_from([n for n in (1, 2, 4) if own.blocks % n == 0]))
    if draw(st.booleans()):
        tiles = len(own.backward) * (1 if varies else -(-batch // rows)) * own.blocks // blocks
        return own, Tiling(rows, blocks, parts=draw(st.sampled_from([n for n in range(1, 9) if tiles % n == 0])))
    return own, Tiling(rows, blocks, draw(st.sampled_from([1, 2, 4])))


@pytest.mark.slow
@settings(max_examples=examples(40), deadline=None)
@given(tiled_layers())
def test_random_tilings_are_correct(layer_and_tiling: tuple[Recurrence, Tiling]) -> None:
    check_results(layer_and_tiling[0], random_inputs(layer_and_tiling[0]), compute_on_cpu(*layer_and_tiling))


@pytest.mark.parametrize(
    ("own", "tiling"),
    [
        (layer("lstm", 2, 50, (False, True), peepholes=True, lengths=True), Tiling(2, 2, 1)),
        (layer("gru", 1, 64, (True,), axes="ntd"), Tiling(1, 2, parts=2)),
        (layer("lstm", 3, 50, (False, True), lengths=True, steps_symbol="n", batch_symbol="m"), Tiling(2, 2, 4)),
        (layer("gru", 3, 64, (True,), batch_symbol="m", batch_first=True), Tiling(2, 2, parts=2)),
    ],
)
def test_selected_tilings_are_correct(own: Recurrence, tiling: Tiling) -> None:
    check_results(own, random_inputs(own), compute_on_cpu(own, tiling))


def test_threads_that_share_a_quantized_step_compute_the_same() -> None:
    own = layer("lstm", 3, 50, (False,), quantized=True)
    alone = compute_on_cpu(own, Tiling())
    for batch, tiling in ((None, Tiling(1, 2, parts=2)), ("n", Tiling(2, 2, parts=2))):
        shared = compute_on_cpu(replace(own, batch_symbol=batch), tiling)
        for first, second in zip(alone, shared, strict=True):
            np.testing.assert_allclose(second, first, rtol=1e-6)


@pytest.mark.examples(1)
@pytest.mark.parametrize(
    "own",
    [
        layer("lstm", 2, 20, (False, True), lengths=True),
        layer("gru", 1, 32, (False,)),
        layer("gru", 2, 33, (True,), reset_after=True),
    ],
)
def test_the_kernel_for_gpus_computes_the_same(own: Recurrence, emulated_gpu: EmulatedGpu) -> None:
    function, given = schedule_recurrence(own), random_inputs(own)
    arguments = [given[each.name] for each in own.parameters]
    arguments += [np.full(each.shape, np.nan, np.float32) for each in own.results]
    text = tvm.ir.save_json(function.with_attr("global_symbol", "main"))
    check_results(own, given, emulated_gpu.call(run_function, text, describe_cuda("sm_90"), arguments))
    with skip_compilation():
        library = tvm.compile(tvm.IRModule({"main": function.with_attr("global_symbol", "main")}), H200)
    loop = library.mod.imports[0].inspect_source().partition("for (int")[2]
    # Every part of a step reads results of all threads.
    assert loop.count("__syncthreads") >= (1 if own.reset_after or own.cell == "lstm" else 2)


def test_gpus_reject_large_and_quantized_layers() -> None:
    with pytest.raises(TargetError, match="at most 3072"):
        schedule_recurrence(layer("rnn", 1, 4096, (False,)))
    with pytest.raises(TargetError, match="quantized"):
        schedule_recurrence(layer("lstm", 1, 32, (False,), quantized=True))


def test_a_function_carries_its_description() -> None:
    own = layer("lstm", 2, 20, (False, True), clip=0.5, peepholes=True)
    assert recurrence_of(recurrent_kernel(own)) == own


@pytest.mark.parametrize(
    ("own", "tiling"),
    [
        (layer("lstm", 1, 64, (False,)), Tiling(1, 4)),
        (layer("lstm", 1, 128, (False,)), Tiling(1, 4, parts=2)),
        (layer("lstm", 1, 128, (False, True)), Tiling(1, 4)),
        (layer("lstm", 32, 48, (False, True)), Tiling(4, 1)),
        (layer("lstm", 32, 48, (False,)), Tiling(4, 1, 2)),
        (layer("gru", 3, 512, (False,)), Tiling(3, 1, parts=2)),
        (layer("lstm", 1, 112, (False,)), Tiling(1, 1, parts=7)),
        (layer("lstm", 7, 512, (False,)), Tiling(4, 1, parts=2)),
        (layer("gru", 4, 512, (False,), batch_symbol="m"), Tiling(4, 1, parts=2)),
    ],
)
def test_threads_share_only_large_steps_of_few_rows(own: Recurrence, tiling: Tiling) -> None:
    assert recurrence_tiling(own, 2, VectorUnit(16, 32)) == tiling


def test_a_step_begins_with_the_last_weights_of_the_previous_step() -> None:
    orders = [[alternating_index(step, at, 5) for at in range(5)] for step in range(3)]
    assert orders == [[0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [0, 1, 2, 3, 4]]
