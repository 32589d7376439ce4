"""What the accelerator runs and what its host: together they are the network, and nothing is lost between them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import ir, relax

from anole.declared.entries import ModelSpec
from anole.extract.graph import find_layers
from anole.targets.vta.compile.compiler import _export_host
from anole.targets.vta.compile.partition import FusedLayer, Partition, Partitioner
from anole.targets.vta.compile.quantize import observe, quantize
from anole.targets.vta.network.artifact import host_of
from anole.targets.vta.network.network import HostCall, IntegerReference, Pool, Quantized, run_quantized
from anole.targets.vta.network.simulated_accelerator import SimulatedAccelerator, can_add, load_step
from anole.targets.vta.settings import describe_vta
from anole.targets.vta.target import VtaTarget, as_conv2d

from ....examples import examples


def always(*_: Any) -> bool:
    return True


def never(*_: Any) -> bool:
    return False


def split(net: Any, takes: Any = always, can_add: Any = always, can_pool: Any = always) -> Partition:
    return Partitioner(net.main, net.names, takes, can_add, can_pool).split()


def fused(parts: Partition) -> list[FusedLayer]:
    return [part for part in parts.parts if isinstance(part, FusedLayer)]


def kinds(parts: Partition) -> list[str]:
    return [type(part).__name__ for part in parts.parts]


def operators(parts: Partition) -> list[str]:
    """The operators of all host parts, in order."""
    return [
        binding.value.op.name.removeprefix("relax.").removeprefix("nn.")
        for part in parts.parts
        if isinstance(part, HostCall)
        for block in parts.host[part.function].body.blocks
        for binding in block.bindings
        if isinstance(binding.value, ir.Call)
    ]


@st.composite
def graphs(draw: Any, make: Any) -> Any:
    """Draws a network of up to eight operators, any of which may read any value before it and be an output."""
    net = make((1, 6, 6, 4), draw(st.integers(0, 99)))
    values, read = [net.x], []

    def pick(allowed: Any = lambda _: True) -> Any:
        # The last value is the likeliest, so that there are chains.
        fitting = [value for value in values if allowed(value)]
        read.append(fitting[-1] if draw(st.integers(0, 2)) else draw(st.sampled_from(fitting)))
        return read[-1]

    def shape(value: Any) -> list[int]:
        return [int(extent) for extent in value.ty.shape]

    def add() -> Any:
        first = pick()
        return net.add(first, pick(lambda value: shape(value) == shape(first)))

    def pool() -> Any:
        kernel = draw(st.sampled_from([2, 3]))
        return net.max_pool(pick(lambda value: shape(value)[1] > 2), kernel, draw(st.integers(1, 2)))

    steps: dict[str, Callable[[], Any]] = {
        "conv": lambda: net.conv(pick(), draw(st.sampled_from([4, 5])), draw(st.sampled_from([1, 3]))),
        "stride": lambda: net.conv(pick(), 4, 3, strides=2),
        "bias": lambda: net.bias(pick()),
        "relu": lambda: net.relu(pick()),
        "relu6": lambda: net.relu6(pick()),
        "clip": lambda: net.clip(pick(), draw(st.sampled_from([0, -1])), draw(st.sampled_from([0.5, float("inf")]))),
        "scaled": lambda: net.scaled(pick()),
        "add": add,
        "pool": pool,
    }
    likely = ["conv", "conv", "bias", "add", "relu", *steps]
    for name in draw(st.lists(st.sampled_from(likely), min_size=1, max_size=8)):
        values.append(steps[name]())
    more = draw(st.lists(st.sampled_from(values[1:]), max_size=2))
    return net.returns(*(value for value in values[1:] if value not in read), *more)


@settings(max_examples=examples(300), deadline=None)
@given(data=st.data())
def test_the_parts_compute_the_network_and_the_hardware_its_whole_numbers(
    drawn: Any, interpreter: Any, interpreted: Any, data: Any
) -> None:
    net = data.draw(graphs(drawn))
    taken = data.draw(st.sets(st.integers(0, len(net.names))))
    target = VtaTarget(describe_vta({"variant": data.draw(st.sampled_from(["vta", "vta++"]))}))
    has_pools = target.geometry.variant == "vta++"
    has_room = data.draw(st.booleans())
    parts = split(net, lambda _, position: position in taken, lambda _: has_room, lambda *_: has_pools)
    samples = [[np.random.default_rng(seed).standard_normal((1, 6, 6, 4)).astype(np.float32)] for seed in (0, 1)]
    host = interpreted(parts.host)
    observed = observe(parts, samples, host)
    for number, sample in enumerate(samples):
        for name, expected in zip(parts.outputs, interpreter(net.main, sample), strict=True):
            np.testing.assert_allclose(observed[name][number], expected, rtol=1e-4, atol=1e-4)

    assert len(fused(parts)) == len(taken & set(range(len(net.names))))
    assert len(net.names) - len(fused(parts)) == sum(name == "conv2d" for name in operators(parts))
    assert has_room or all(layer.residual is None for layer in fused(parts))

    network = quantize(parts, observed, lambda workload: target.default_config(as_conv2d(workload)))
    loaded = {
        step.result: load_step(step, observed[step.data].shape[1:], target.geometry) for step in network.accelerated
    }
    found = run_quantized(network, samples[0], host, SimulatedAccelerator(loaded))
    right = run_quantized(network, samples[0], host, IntegerReference())
    assert list(found) == list(right)
    for name, value in right.items():
        if isinstance(value, Quantized):
            np.testing.assert_array_equal(value.numbers, found[name].numbers)


def test_what_follows_an_anchor_is_part_of_it(drawn: Any) -> None:
    net = drawn((1, 6, 6, 4))
    parts = split(net.returns(net.relu(net.bias(net.conv(net.x, 5, 3)))))
    (layer,) = parts.parts
    assert (layer.name, layer.positive, layer.cap, layer.residual) == ("conv0", True, None, None)
    assert layer.bias.shape == (5,) and layer.bias.any() and layer.shape == (1, 6, 6, 5)
    assert (layer.data, parts.inputs, parts.outputs) == ("input0", ("input0",), (layer.result,))
    assert not parts.host.functions_items()


def residual_block(net: Any) -> tuple[Any, Any]:
    before = net.relu(net.conv(net.x, 4))
    return before, net.relu(net.add(net.bias(net.conv(before, 4, 3)), before))


def test_a_residual_is_added_where_there_is_room(drawn: Any) -> None:
    net = drawn((1, 6, 6, 4))
    parts = split(net.returns(residual_block(net)[1]))
    first, second = parts.parts
    assert second.residual == first.result and second.positive


def test_a_residual_is_left_to_the_host_where_there_is_none(drawn: Any) -> None:
    net = drawn((1, 6, 6, 4))
    parts = split(net.returns(residual_block(net)[1]), can_add=never)
    assert kinds(parts) == ["FusedLayer", "FusedLayer", "HostCall"]
    assert fused(parts)[1].residual is None and not fused(parts)[1].positive
    assert operators(parts) == ["add", "relu"]


def test_a_residual_may_be_the_input_or_the_hosts(drawn: Any) -> None:
    net = drawn((1, 6, 6, 4))
    first = net.add(net.x, net.conv(net.x, 4))
    scaled = net.scaled(net.x)
    parts = split(net.returns(net.add(net.conv(first, 4), scaled)))
    assert kinds(parts) == ["FusedLayer", "HostCall", "FusedLayer"]
    assert [layer.residual for layer in fused(parts)] == ["input0", parts.parts[1].results[0]]


def test_of_two_anchors_that_are_added_one_is_the_others_residual(drawn: Any) -> None:
    net = drawn((1, 6, 6, 4))
    left, right = net.bias(net.conv(net.x, 5)), net.bias(net.conv(net.x, 5, 3))
    parts = split(net.returns(net.relu(net.add(left, right))))
    assert kinds(parts) == ["FusedLayer", "FusedLayer"]
    assert sorted(str(layer.residual) for layer in fused(parts)) == sorted(["None", parts.parts[0].result])


def summed(net: Any) -> Any:
    value = net.conv(net.x, 5)
    return net.relu(net.add(value, value))


LEFT: dict[str, tuple[Callable[[Any], Any], list[str]]] = {
    "a second bias": (lambda net: net.relu(net.bias(net.bias(net.conv(net.x, 5)))), ["add", "relu"]),
    "a value added to itself": (summed, ["add", "relu"]),
    "a clip that is not at zero": (lambda net: net.clip(net.conv(net.x, 5), -1, 1), ["clip"]),
    "what follows a relu": (lambda net: net.bias(net.relu(net.conv(net.x, 5))), ["add"]),
    "pooling that counts beyond the border": (
        lambda net: net.max_pool(net.conv(net.x, 5), ceil_mode=True),
        ["max_pool2d"],
    ),
    "dilated pooling": (lambda net: net.max_pool(net.conv(net.x, 5), dilation=(2, 2)), ["max_pool2d"]),
}


@pytest.mark.parametrize("name", LEFT)
def test_what_no_anchor_can_have_is_the_hosts(drawn: Any, name: str) -> None:
    make, left = LEFT[name]
    net = drawn((1, 6, 6, 4))
    parts = split(net.returns(make(net)))
    assert kinds(parts) == ["FusedLayer", "HostCall"] and operators(parts) == left
    assert fused(parts)[0].residual is None and fused(parts)[0].positive == (name == "what follows a relu")


def test_a_value_that_is_broadcast_in_a_sum_is_the_hosts(drawn: Any) -> None:
    net = drawn((1, 1, 1, 4))
    wide = net.emit(relax.op.broadcast_to(net.x, (1, 3, 3, 4)))
    parts = split(net.returns(net.add(net.conv(net.x, 4), wide)))
    assert fused(parts)[0].shape == (1, 1, 1, 4) and "add" in operators(parts)


@pytest.mark.parametrize(
    ("operator", "cap"),
    [
        (lambda net, x: net.relu(x), None),
        (lambda net, x: net.relu6(x), 6.0),
        (lambda net, x: net.clip(x, 0, 2.5), 2.5),
        (lambda net, x: net.clip(x, 0, float("inf")), None),
    ],
    ids=["relu", "relu6", "clip", "open clip"],
)
def test_what_cuts_negative_numbers_off_is_part_of_its_anchor(drawn: Any, operator: Any, cap: float | None) -> None:
    net = drawn((1, 6, 6, 4))
    one_bias = net.add(relax.const(np.float32(0.25)), net.conv(net.x, 5))
    (layer,) = split(net.returns(operator(net, one_bias))).parts
    assert (layer.positive, layer.cap, layer.bias.tolist()) == (True, cap, [0.25] * 5)


def test_a_value_that_several_read_stays(drawn: Any) -> None:
    net = drawn((1, 6, 6, 4))
    value = net.bias(net.conv(net.x, 5))
    parts = split(net.returns(net.relu(value), net.scaled(value)))
    (layer,) = fused(parts)
    assert not layer.positive and operators(parts) == ["relu", "multiply"]
    assert parts.parts[1].arguments == (layer.result,) and parts.parts[1].results == parts.outputs


def test_a_value_that_is_returned_stays(drawn: Any) -> None:
    net = drawn((1, 6, 6, 4))
    value = net.bias(net.conv(net.x, 5))
    parts = split(net.returns(value, net.relu(value)))
    (layer,) = fused(parts)
    assert not layer.positive and parts.outputs == (layer.result, parts.parts[1].results[0])


def test_several_outputs_keep_their_order_and_may_be_one_value(drawn: Any) -> None:
    net = drawn((1, 6, 6, 4))
    first, second = net.conv(net.x, 4), net.conv(net.x, 5)
    parts = split(net.returns(second, first, second))
    assert parts.outputs == tuple(parts.parts[number].result for number in (1, 0, 1))


def test_pooling_follows_what_is_accelerated(drawn: Any) -> None:
    net = drawn((1, 8, 8, 4))
    pooled = net.max_pool(net.max_pool(net.relu(net.conv(net.x, 5))), 3)
    parts = split(net.returns(pooled))
    assert kinds(parts) == ["FusedLayer", "Pool", "Pool"]
    first, second = (part for part in parts.parts if isinstance(part, Pool))
    assert (first.kernel, first.strides, first.padding) == ((2, 2), (2, 2), (0, 0, 0, 0))
    assert (second.kernel, second.padding, second.data) == ((3, 3), (1, 1, 1, 1), first.result)


def test_pooling_of_the_hosts_values_and_what_does_not_fit_are_the_hosts(drawn: Any) -> None:
    net = drawn((1, 8, 8, 4))
    net.returns(net.conv(net.max_pool(net.x), 5))
    assert kinds(split(net)) == ["HostCall", "FusedLayer"]
    net, asked = drawn((1, 8, 8, 4)), []

    def refuse(pool: Pool, shape: tuple[int, ...]) -> bool:
        asked.append((pool.kernel, shape))
        return False

    net.returns(net.max_pool(net.conv(net.x, 5)))
    assert kinds(split(net, can_pool=refuse)) == ["FusedLayer", "HostCall"]
    assert asked == [((2, 2), (1, 8, 8, 5))]


def test_a_network_may_be_the_hosts_altogether(drawn: Any, interpreter: Any, interpreted: Any) -> None:
    net = drawn((1, 6, 6, 4))
    net.returns(*residual_block(net))
    parts = split(net, takes=never)
    assert kinds(parts) == ["HostCall"] and len(parts.outputs) == 2
    sample = [np.ones((1, 6, 6, 4), np.float32)]
    observed = observe(parts, [sample], interpreted(parts.host))
    for name, expected in zip(parts.outputs, interpreter(net.main, sample), strict=True):
        np.testing.assert_array_equal(observed[name][0], expected)


def test_a_matrix_product_of_more_dimensions_is_taken(drawn: Any, interpreter: Any) -> None:
    net = drawn((2, 3, 6))
    parts = split(net.returns(net.relu(net.bias(net.dense(net.x, 5)))))
    (layer,) = parts.parts
    assert layer.shape == (2, 3, 5) and layer.weight.shape == (6, 5)
    sample = [np.random.default_rng(0).standard_normal((2, 3, 6)).astype(np.float32)]
    observed = observe(parts, [sample], lambda *_: [])
    np.testing.assert_allclose(observed[layer.result][0], interpreter(net.main, sample)[0], rtol=1e-5)


def test_who_decides_is_asked_by_position_among_all_anchors(drawn: Any) -> None:
    net, asked = drawn((1, 6, 6, 4)), []

    def takes(workload: Any, position: int) -> bool:
        asked.append((position, workload.out_channels))
        return position == 1

    parts = split(net.returns(net.conv(net.conv(net.conv(net.x, 5), 6), 7)), takes=takes)
    assert asked == [(0, 5), (1, 6), (2, 7)]
    assert [(layer.name, layer.workload.out_channels) for layer in fused(parts)] == [("conv1", 6)]


@pytest.fixture(scope="module")
def parted(network: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """Splits a tiny network for an accelerator and compiles its host."""

    def make(name: str, **settings: Any) -> tuple[Any, Partition, Any]:
        net, target = network(name), VtaTarget(describe_vta(**settings))
        plus = target.geometry.variant == "vta++"
        parts = Partitioner(
            net.imported.module["main"],
            [layer.name for layer in find_layers(net.imported)],
            target.takes,
            lambda workload: can_add(as_conv2d(workload), target.default_config(workload), target.geometry),
            lambda *_: plus,
        ).split()
        library = Path(tmp_path_factory.mktemp("host")) / "host.so"
        _export_host(ModelSpec(name, ""), parts, library)
        return net, parts, host_of(library)

    return make


@pytest.mark.parametrize(
    ("name", "accelerated"),
    [
        ("residual", ["first.0", "second.0", "head"]),
        ("branches", ["one", "three", "after"]),
        ("joined", ["left", "right"]),
        # What is grouped or dilated is the host's.
        ("varied", ["query", "value"]),
    ],
)
@pytest.mark.examples(2)
def test_a_tiny_networks_parts_compute_what_it_does(parted: Any, name: str, accelerated: list[str]) -> None:
    net, parts, host = parted(name, geometry={"variant": "vta++"})
    assert [layer.name for layer in fused(parts)] == accelerated
    observed = observe(parts, [net.inputs, net.inputs], host)
    for output, expected in zip(parts.outputs, net.expected, strict=True):
        for found in observed[output]:
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_the_first_layer_and_its_pooling_are_the_accelerators_if_asked(parted: Any) -> None:
    net, parts, host = parted("residual", first_layer="vta", geometry={"variant": "vta++"})
    assert [part.name for part in parts.parts if not isinstance(part, HostCall)] == [
        "stem.0", "max_pool_v4", "first.0", "second.0", "head",
    ]  # fmt: skip
    assert fused(parts)[2].residual == parts.parts[2].result
    observed = observe(parts, [net.inputs], host)
    np.testing.assert_allclose(observed[parts.outputs[0]][0], net.expected[0], rtol=1e-4, atol=1e-4)


def test_a_network_without_a_host_has_no_library(drawn: Any, tmp_path: Path) -> None:
    net = drawn((1, 6, 6, 4))
    parts = split(net.returns(net.conv(net.x, 4)))
    _export_host(ModelSpec("net", ""), parts, tmp_path / "host.so")
    assert not (tmp_path / "host.so").exists()
