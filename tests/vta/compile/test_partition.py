"""Partitioning between accelerator and host: which part runs where, and that all parts compute the network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import ir, relax

from anole.config.entries import ModelSpec
from anole.extract.graph import find_layers
from anole_vta.compile.compiler import _export_host
from anole_vta.compile.partition import FusedLayer, Partition, Partitioner
from anole_vta.compile.quantize import observe, quantize
from anole_vta.network.artifact import host_of
from anole_vta.network.network import HostCall, IntegerReference, Pool, Quantized, run_quantized
from anole_vta.network.simulated_accelerator import SimulatedAccelerator, can_add, load_step
from anole_vta.settings import describe_vta
from anole_vta.target import VtaTarget, as_conv2d

from ...examples import examples
from .conftest import NetworkBuilder, interpret


def always(*_: Any) -> bool:
    return True


def never(*_: Any) -> bool:
    return False


def split(net: Any, takes: Any = always, can_add: Any = always, can_pool: Any = always) -> Partition:
    return Partitioner(net.main, net.names, takes, can_add, can_pool).split()


def fused_layers(parts: Partition) -> list[FusedLayer]:
    return [part for part in parts.parts if isinstance(part, FusedLayer)]


def operators(parts: Partition, call: HostCall) -> list[str]:
    return [
        binding.value.op.name.removeprefix("relax.").removeprefix("nn.")
        for block in parts.host[call.function].body.blocks
        for binding in block.bindings
        if isinstance(binding.value, ir.Call)
    ]


def format_parts(parts: Partition) -> str:
    """Format all parts, and the outputs as the indices of the parts that compute them."""
    made, texts = dict.fromkeys(parts.inputs, "x"), []
    for number, part in enumerate(parts.parts):
        match part:
            case FusedLayer():
                said = {
                    "bias": part.bias.any(),
                    f"+{made.get(part.residual or '')}": part.residual,
                    "relu": part.positive,
                    f"<={part.cap}": part.cap,
                }
                words, results = [part.name, *(word for word, is_so in said.items() if is_so)], [part.result]
            case Pool():
                words, results = [f"pool{part.kernel[0]}"], [part.result]
            case _:
                words, results = operators(parts, part), list(part.results)
        texts.append(" ".join(words))
        made |= dict.fromkeys(results, str(number))
    return f"{', '.join(texts)} -> {' '.join(made[name] for name in parts.outputs)}"


@st.composite
def graphs(draw: Any) -> Any:
    """Generate a network of up to eight operators, each with any earlier values as inputs and possibly an output."""
    net = NetworkBuilder((1, 6, 6, 4), draw(st.integers(0, 99)))
    values, read = [net.x], []

    def pick(allowed: Any = lambda _: True) -> Any:
        # The last value is the most likely, which makes chains.
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
def test_the_parts_compute_the_network_and_the_hardware_matches_the_integers(data: Any) -> None:
    net = data.draw(graphs())
    taken = data.draw(st.sets(st.integers(0, len(net.names))))
    target = VtaTarget(describe_vta({"variant": data.draw(st.sampled_from(["vta", "vta++"]))}))
    has_pools = target.geometry.variant == "vta++"
    has_room = data.draw(st.booleans())
    parts = split(net, lambda _, position: position in taken, lambda _: has_room, lambda *_: has_pools)
    samples = [[np.random.default_rng(seed).standard_normal((1, 6, 6, 4)).astype(np.float32)] for seed in (0, 1)]

    def host(function: str, arguments: Sequence[Any]) -> list[Any]:
        return interpret(parts.host[function], arguments)

    observed = observe(parts, samples, host)
    for number, sample in enumerate(samples):
        for name, expected in zip(parts.outputs, interpret(net.main, sample), strict=True):
            np.testing.assert_allclose(observed[name][number], expected, rtol=1e-4, atol=1e-4)

    assert len(fused_layers(parts)) == len(taken & set(range(len(net.names))))
    hosts = [name for part in parts.parts if isinstance(part, HostCall) for name in operators(parts, part)]
    assert len(net.names) - len(fused_layers(parts)) == hosts.count("conv2d")
    assert has_room or all(layer.residual is None for layer in fused_layers(parts))

    network = quantize(parts, observed, lambda workload: target.default_config(as_conv2d(workload)))
    loaded = {
        step.result: load_step(step, target.geometry, observed[step.data].shape[1:]) for step in network.accelerated
    }
    found = run_quantized(network, samples[0], host, SimulatedAccelerator(loaded))
    right = run_quantized(network, samples[0], host, IntegerReference())
    assert list(found) == list(right)
    for name, value in right.items():
        if isinstance(value, Quantized):
            np.testing.assert_array_equal(value.numbers, found[name].numbers)


def block(net: Any) -> tuple[Any, Any]:
    """Build a residual block, and return both sums."""
    before = net.relu(net.conv(net.x, 4))
    return before, net.relu(net.add(net.bias(net.conv(before, 4, 3)), before))


def twice(net: Any, use: Any) -> Any:
    value = net.conv(net.x, 5)
    return use(value, value)


def shared(net: Any, *uses: Any) -> list[Any]:
    value = net.bias(net.conv(net.x, 5))
    return [use(value) for use in uses]


def reordered(net: Any) -> list[Any]:
    first, second = net.conv(net.x, 4), net.conv(net.x, 5)
    return [second, first, second]


def residuals(net: Any) -> Any:
    first = net.add(net.x, net.conv(net.x, 4))
    scaled = net.scaled(net.x)
    return net.add(net.conv(first, 4), scaled)


def added_branches(net: Any) -> Any:
    left, right = net.bias(net.conv(net.x, 5)), net.bias(net.conv(net.x, 5, 3))
    return net.relu(net.add(left, right))


def pooled(net: Any, **settings: Any) -> Any:
    return net.max_pool(net.conv(net.x, 5), **settings)


CASES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "epilogue of an anchor": (lambda net: net.relu(net.bias(net.conv(net.x, 5, 3))), "conv0 bias relu -> 0"),
    "residual with room": (lambda net: block(net)[1], "conv0 relu, conv1 bias +0 relu -> 1"),
    "residual without room": (lambda net: block(net)[1], "conv0 relu, conv1 bias, add relu -> 2"),
    "residuals from the input and the host": (residuals, "conv0 +x, multiply, conv1 +1 -> 2"),
    "sum of two anchors": (added_branches, "conv1 bias, conv0 bias +0 relu -> 1"),
    "a second bias": (lambda net: net.relu(net.bias(net.bias(net.conv(net.x, 5)))), "conv0 bias, add relu -> 1"),
    "a value added to itself": (lambda net: net.relu(twice(net, net.add)), "conv0, add relu -> 1"),
    "clip not at zero": (lambda net: net.clip(net.conv(net.x, 5), -1, 1), "conv0, clip -> 1"),
    "bias after relu": (lambda net: net.bias(net.relu(net.conv(net.x, 5))), "conv0 relu, add -> 1"),
    "relu6": (lambda net: net.relu6(net.conv(net.x, 5)), "conv0 relu <=6.0 -> 0"),
    "a clip": (lambda net: net.clip(net.conv(net.x, 5), 0, 2.5), "conv0 relu <=2.5 -> 0"),
    "clip without an upper bound": (lambda net: net.clip(net.conv(net.x, 5), 0, float("inf")), "conv0 relu -> 0"),
    "value with several users": (lambda net: shared(net, net.relu, net.scaled), "conv0 bias, relu multiply -> 1 1"),
    "returned value": (lambda net: shared(net, lambda value: value, net.relu), "conv0 bias, relu -> 0 1"),
    "outputs in any order, and twice": (reordered, "conv0, conv1 -> 1 0 1"),
    "nothing for the accelerator": (block, "conv2d relu conv2d add add relu -> 0 0"),
    "pooling": (lambda net: net.max_pool(net.relu(pooled(net)), 3), "conv0, pool2, relu max_pool2d -> 2"),
    "pooling of the host's values": (lambda net: net.conv(net.max_pool(net.x), 5), "max_pool2d, conv0 -> 1"),
    "pooling with ceil_mode": (lambda net: pooled(net, ceil_mode=True), "conv0, max_pool2d -> 1"),
    "dilated pooling": (lambda net: pooled(net, dilation=(2, 2)), "conv0, max_pool2d -> 1"),
}
SETTINGS = {"residual without room": {"can_add": never}, "nothing for the accelerator": {"takes": never}}


@pytest.mark.parametrize("name", CASES)
def test_parts_run_on_accelerator_or_host(name: str) -> None:
    make, expected = CASES[name]
    net = NetworkBuilder((1, 8, 8, 4))
    made = make(net)
    parts = split(net.returns(*(made if isinstance(made, (list, tuple)) else [made])), **SETTINGS.get(name, {}))
    assert format_parts(parts) == expected
    assert len(parts.host.functions_items()) == sum(isinstance(part, HostCall) for part in parts.parts)


def test_a_bias_may_be_scalar_and_poolings_are_passed_completely() -> None:
    net, asked = NetworkBuilder((1, 8, 8, 4)), []

    def can_pool(pool: Pool, shape: tuple[int, ...]) -> bool:
        asked.append(shape)
        return len(asked) < 3

    value = net.add(relax.const(np.float32(0.25)), net.conv(net.x, 5))
    for kernel in (2, 3, 2):
        value = net.max_pool(value, kernel)
    parts = split(net.returns(value), can_pool=can_pool)
    layer, first, second = parts.parts[:3]
    assert (layer.bias.tolist(), layer.shape) == ([0.25] * 5, (1, 8, 8, 5))
    assert (first.kernel, first.strides, first.padding) == ((2, 2), (2, 2), (0, 0, 0, 0))
    assert (second.kernel, second.padding, second.data) == ((3, 3), (1, 1, 1, 1), first.result)
    assert asked == [(1, 8, 8, 5), (1, 4, 4, 5), (1, 2, 2, 5)]
    assert format_parts(parts) == "conv0 bias, pool2, pool3, max_pool2d -> 3"


def test_a_broadcast_sum_runs_on_the_host() -> None:
    net = NetworkBuilder((1, 1, 1, 4))
    wide = net.emit(relax.op.broadcast_to(net.x, (1, 3, 3, 4)))
    assert format_parts(split(net.returns(net.add(net.conv(net.x, 4), wide)))) == "broadcast_to, conv0, add -> 2"


def test_a_matrix_product_of_more_dimensions_is_taken() -> None:
    net = NetworkBuilder((2, 3, 6))
    parts = split(net.returns(net.relu(net.bias(net.dense(net.x, 5)))))
    (layer,) = parts.parts
    assert layer.shape == (2, 3, 5) and layer.weight.shape == (6, 5)
    sample = [np.random.default_rng(0).standard_normal((2, 3, 6)).astype(np.float32)]
    observed = observe(parts, [sample], lambda *_: [])
    np.testing.assert_allclose(observed[layer.result][0], interpret(net.main, sample)[0], rtol=1e-5)


def test_takes_gets_positions_among_all_anchors() -> None:
    net, asked = NetworkBuilder((1, 6, 6, 4)), []

    def takes(workload: Any, position: int) -> bool:
        asked.append((position, workload.out_channels))
        return position == 1

    parts = split(net.returns(net.conv(net.conv(net.conv(net.x, 5), 6), 7)), takes=takes)
    assert asked == [(0, 5), (1, 6), (2, 7)]
    assert [(layer.name, layer.workload.out_channels) for layer in fused_layers(parts)] == [("conv1", 6)]


@pytest.fixture(scope="module")
def parted(network: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """Split a tiny network for an accelerator and compile its host."""

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
    ("name", "first_layer", "accelerated"),
    [
        ("residual", "host", ["first.0", "second.0", "head"]),
        ("residual", "vta", ["stem.0", "max_pool_v4", "first.0", "second.0", "head"]),
        ("branches", "host", ["one", "three", "after"]),
        ("joined", "host", ["left", "right"]),
        # Grouped or dilated convolutions run on the host.
        ("varied", "host", ["query", "value"]),
    ],
)
@pytest.mark.examples(2)
def test_the_parts_of_tiny_networks_compute_the_networks(
    parted: Any, name: str, first_layer: str, accelerated: list[str]
) -> None:
    net, parts, host = parted(name, first_layer=first_layer, geometry={"variant": "vta++"})
    assert [part.name for part in parts.parts if not isinstance(part, HostCall)] == accelerated
    observed = observe(parts, [net.inputs, net.inputs], host)
    for output, expected in zip(parts.outputs, net.expected, strict=True):
        for found in observed[output]:
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
