"""Loop features, compared with plain loops that count every access."""

import itertools
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anole.space.loops import Annotation, Buffer, Loop, LoopNest

from ..examples import examples

PARTS = {"y": 2, "x": 1, "ry": 2, "rc": 1}
NAMES = [f"{axis}{part}" for axis, n_parts in PARTS.items() for part in range(n_parts)]


def nest_of(extents, orders, strides, dilation):
    """Return the nest of n convolutions: for each config the extents by name, the names in order, and the stride."""
    lengths = {name: np.array([own[name] for own in extents]) for name in NAMES}
    levels = {name: 10 * np.array([order.index(name) for order in orders]) for name in NAMES}
    loops = [Loop(name, name[:-1], lengths[name], levels[name]) for name in NAMES]
    stride = np.array(strides)
    data = Buffer("data", (50, 20, 7), ({"y": stride, "ry": dilation}, {"x": 1}, {"rc": 1}))
    weight = Buffer("weight", (9, 5), ({"ry": 1}, {"rc": 1}))
    return LoopNest(tuple(loops), (data, weight))


def accesses(extents, order, stride, dilation):
    """Return for every loop the number of elements of data and weight accessed from it inwards, and their reuse."""
    found = {}
    for position, name in enumerate(order):
        data, weight = [], []
        for values in itertools.product(*(range(extents[inner]) for inner in order[position:])):
            at = dict.fromkeys(order[:position], 0) | dict(zip(order[position:], values, strict=True))
            y, ry = at["y0"] * extents["y1"] + at["y1"], at["ry0"] * extents["ry1"] + at["ry1"]
            data.append((y * stride + ry * dilation, at["x0"], at["rc0"]))
            weight.append((ry, at["rc0"]))
        found[name] = [(len(set(accessed)), len(accessed) / len(set(accessed))) for accessed in (data, weight)]
    return found


@st.composite
def configs(draw):
    extents = {name: draw(st.integers(1, 4)) for name in NAMES}
    order = draw(st.permutations(NAMES))
    for axis in ("y", "ry"):
        positions = sorted(order.index(f"{axis}{part}") for part in range(2))
        for part, position in enumerate(positions):
            order[position] = f"{axis}{part}"
    return extents, order, draw(st.integers(1, 4))


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(configs(), min_size=1, max_size=4), st.integers(1, 3))
def test_counts_and_reuses_match_plain_loops(samples, dilation):
    extents, orders, strides = zip(*samples, strict=True)
    nest = nest_of(extents, orders, strides, dilation)
    rows = nest.features()
    assert rows.shape == (len(samples), len(nest.feature_names)) and rows.dtype == np.float32
    for row, own, order, stride in zip(rows, extents, orders, strides, strict=True):
        value = dict(zip(nest.feature_names, row, strict=True))
        reference = accesses(own, order, stride, dilation)
        for position, name in enumerate(order):
            inner, outer = (prod(own[loop] for loop in loops) for loops in (order[position:], order[: position + 1]))
            (data_count, data_reuse), (weight_count, weight_reuse) = reference[name]
            expected = {
                "length": own[name],
                "topdown": outer,
                "bottomup": inner,
                "data.count": data_count,
                "data.reuse": data_reuse,
                "weight.count": weight_count,
                "weight.reuse": weight_reuse,
            }
            assert value[f"{name}.nest_level"] == position + 1
            logarithms = {feature: pytest.approx(np.log2(number + 1), rel=1e-6) for feature, number in expected.items()}
            assert {feature: value[f"{name}.{feature}"] for feature in expected} == logarithms, name


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(configs(), min_size=1, max_size=4), st.integers(2, 40))
def test_cache_loads_match_plain_loops(samples, capacity):
    extents, orders, strides = zip(*samples, strict=True)
    found = nest_of(extents, orders, strides, 2).loads(capacity)
    for at, (own, order, stride) in enumerate(samples):
        reference = accesses(own, order, stride, 2)
        within = [sum(count for count, _ in reference[name]) for name in order[1:]] + [2]
        outermost = next(position for position, accessed in enumerate(within) if accessed <= capacity)
        begun = prod(own[loop] for loop in order[:outermost])
        for buffer, (count, _) in zip(("data", "weight"), reference[order[outermost]], strict=True):
            assert found[buffer][at] == begun * count


def test_loads_of_a_large_and_a_small_cache():
    loops = (Loop("i", "i", np.array([3, 5]), 0), Loop("j", "j", 4, 1))
    nest = LoopNest(loops, (Buffer("row", (4,), ({"j": 1},)), Buffer("table", (5, 4), ({"i": 1}, {"j": 1}))))
    assert {name: list(loads) for name, loads in nest.loads(64).items()} == {"row": [4, 4], "table": [12, 20]}
    assert {name: list(loads) for name, loads in nest.loads(2).items()} == {"row": [12, 20], "table": [12, 20]}


@settings(max_examples=examples(40), deadline=None)
@given(configs())
def test_strides_are_the_distance_of_one_step(samples):
    extents, order, stride = samples
    nest = nest_of([extents], [order], [stride], 3)
    value = dict(zip(nest.feature_names, nest.features()[0], strict=True))
    rows = {
        "y1": stride * 140,
        "y0": stride * 140 * extents["y1"],
        "x0": 7,
        "ry1": 3 * 140,
        "ry0": 3 * 140 * extents["ry1"],
        "rc0": 1,
    }
    for name in NAMES:
        assert value[f"{name}.data.stride"] == pytest.approx(np.log2(rows[name] + 1), rel=1e-6)
    assert value["x0.weight.stride"] == 0


def test_annotations_are_one_hot_and_may_vary():
    chosen = np.array([Annotation.UNROLLED, Annotation.SERIAL])
    nest = LoopNest(
        (Loop("i", "i", 4, 0, Annotation.PARALLEL), Loop("j", "j", 8, 1, chosen)),
        (Buffer("a", (4, 8), ({"i": 1}, {"j": 1})),),
    )
    rows = [dict(zip(nest.feature_names, row, strict=True)) for row in nest.features()]
    assert [row["i.parallel"] for row in rows] == [1, 1]
    assert [row["j.unrolled"] for row in rows] == [1, 0]
    assert [row["j.serial"] for row in rows] == [0, 1]
    for row in rows:
        assert sum(row[f"j.{annotation.name.lower()}"] for annotation in Annotation) == 1


def test_common_values_may_be_scalars():
    n = 3
    vary = np.array([2, 4, 8])
    one = LoopNest((Loop("i", "i", vary, 0), Loop("j", "j", 5, 1)), (Buffer("a", (vary, 5), ({"i": 1}, {"j": 1})),))
    each = LoopNest(
        (
            Loop("i", "i", vary, np.zeros(n, int)),
            Loop("j", "j", np.full(n, 5), np.ones(n, int), np.full(n, Annotation.SERIAL)),
        ),
        (Buffer("a", (vary, np.full(n, 5)), ({"i": np.ones(n, int)}, {"j": 1})),),
    )
    np.testing.assert_array_equal(one.features(), each.features())


def test_coefficients_and_shapes_may_depend_on_the_config():
    """A packed buffer: the channel is lane + 16 * block in one config, lane + 8 * block in the other."""
    lanes = np.array([16, 8])
    nest = LoopNest(
        (Loop("block", "block", 64 // lanes, 0), Loop("lane", "lane", lanes, 1)),
        (
            Buffer("plain", (64,), ({"block": lanes, "lane": 1},)),
            Buffer("packed", (64 // lanes, lanes), ({"block": 1}, {"lane": 1})),
        ),
    )
    rows = [dict(zip(nest.feature_names, row, strict=True)) for row in nest.features()]
    for row, n_lanes in zip(rows, lanes, strict=True):
        assert row["block.plain.count"] == row["block.packed.count"] == pytest.approx(np.log2(65))
        assert row["block.packed.stride"] == row["block.plain.stride"] == pytest.approx(np.log2(n_lanes + 1))


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 5)), min_size=3, max_size=4))
def test_counts_with_three_axes_per_dimension_are_upper_bounds(terms):
    axes = [f"a{position}" for position in range(len(terms))]
    loops = tuple(
        Loop(axis, axis, extent, level) for level, (axis, (_, extent)) in enumerate(zip(axes, terms, strict=True))
    )
    index = {axis: coefficient for axis, (coefficient, _) in zip(axes, terms, strict=True)}
    nest = LoopNest(loops, (Buffer("a", (1000,), (index,)),))
    value = dict(zip(nest.feature_names, nest.features()[0], strict=True))
    sums = {
        sum(c * i for (c, _), i in zip(terms, at, strict=True))
        for at in itertools.product(*(range(e) for _, e in terms))
    }
    count = 2 ** value["a0.a.count"] - 1
    assert len(sums) - 1e-3 <= count <= prod(extent for _, extent in terms) + 1e-3


def test_an_unknown_axis_is_an_error():
    nest = LoopNest((Loop("i", "i", 4, 0),), (Buffer("a", (4,), ({"j": 1},)),))
    with pytest.raises(KeyError):
        nest.features()
