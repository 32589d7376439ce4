"""Size ranges: their syntax in models.yaml, and their sample, typical and checked sizes."""

from __future__ import annotations

from math import gcd
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anole.config.entries import ModelSpec
from anole.config.reading import parse_spec
from anole.errors import SpecError
from anole.ir.ranges import SizeRange, checked_sizes

RANGES = st.tuples(st.integers(1, 5000), st.integers(1, 5000)).map(lambda ends: SizeRange(ends[0], sum(ends)))


def spec(extents: list[Any], **target: str) -> dict[str, Any]:
    return {
        "models": {"net": {"source": "torchvision:resnet18", "inputs": {"x": extents}}},
        "targets": {"own": {"kind": "cpu", **target}},
        "builds": [{"model": "net", "target": "own"}],
    }


@given(each=RANGES)
def test_sample_and_checked_sizes_are_distinct_and_in_range(each: SizeRange) -> None:
    typical, low, largest = each.samples
    assert SizeRange.parse(str(each)) == each
    assert typical == each.typical and (typical in each or typical == 2)
    assert max(each.min, 2) <= low != typical and each.max <= largest > max(typical, low)
    assert gcd(low - typical, largest - typical) == 1, "steps of this size would not be detected"
    checked = [sizes["n"] for sizes in checked_sizes({"n": each})]
    assert {each.min, each.max} <= {*checked, typical} and all(size in each for size in checked)


@pytest.mark.parametrize(
    ("text", "samples"),
    [
        ("1..16", (4, 3, 16)),
        ("16..512", (64, 17, 512)),
        ("4..32", (8, 7, 32)),
        ("1..2", (2, 3, 4)),
        ("5..6", (5, 6, 7)),
        ("7..8", (7, 8, 9)),
    ],
)
def test_a_network_is_imported_at_its_typical_size_and_near_both_ends(text: str, samples: tuple[int, ...]) -> None:
    """The typical size is near the geometric mean."""
    assert SizeRange.parse(text).samples == samples
    assert SizeRange.parse(text).typical == samples[0]


def test_an_extent_may_be_a_range() -> None:
    model = parse_spec(spec([{"batch": "1..16"}, 3, 224, 224])).models["net"]
    assert (model.inputs, model.ranges) == ({"x": (4, 3, 224, 224)}, {"batch": SizeRange(1, 16)})
    assert model.to_json()["inputs"] == [["x", [{"batch": "1..16"}, 3, 224, 224]]]
    assert ModelSpec.from_json("net", model.to_json()) == model
    assert model.at({"batch": 9}).inputs == {"x": (9, 3, 224, 224)}
    onnx = ModelSpec.from_json("net", {"source": "onnx:net.onnx", "inputs": {}, "dims": {"batch": "1..16", "size": 8}})
    assert (onnx.dims, onnx.at({"batch": 9}).dims) == ({"batch": 4, "size": 8}, {"batch": 9, "size": 8})
    assert ModelSpec.from_json("net", onnx.to_json()) == onnx


def test_inputs_with_the_same_name_must_have_the_same_range() -> None:
    mapping = spec([{"batch": "1..4"}, 3])
    mapping["models"]["net"]["inputs"]["y"] = [{"batch": "1..4"}]
    assert parse_spec(mapping).models["net"].named == {"x": ("batch", None), "y": ("batch",)}
    mapping["models"]["net"]["inputs"]["y"] = [{"batch": "1..5"}]
    with pytest.raises(SpecError, match=r"inputs.y\[0\].batch: found 1..5 for batch, but 1..4 elsewhere"):
        parse_spec(mapping)


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        (spec([{"batch": "16"}, 3]), "models.net.inputs.x[0].batch: found '16'; write a range as smallest"),
        (spec([{"batch": "9..3"}, 3]), "models.net.inputs.x[0].batch: found '9..3'; write a range as smallest"),
        (spec([{"batch": "1..4", "more": "1..2"}, 3]), "models.net.inputs.x[0]: found .*; a variable extent is one"),
        (
            spec([{"a b": "1..4"}, 3]),
            "models.net.inputs.x[0]: found the name 'a b'; the name of a range consists of letters",
        ),
        (
            spec([1]) | {"models": {"net": {"source": "onnx:pyproject.toml", "dims": {"batch-size": "1..4"}}}},
            "models.net.dims.batch-size: found a range of 'batch-size'; the name of a range consists",
        ),
        (spec([{"batch": "1..99999"}, 999_999]), "models.net.inputs.x: found .*; an input has at most"),
        (
            spec([{"batch": "1..4"}, 3], kind="vta"),
            "builds[0].model: found net with the range batch: 1..4; only targets",
        ),
    ],
)
def test_errors_name_the_location(mapping: dict[str, Any], message: str) -> None:
    pattern = message.replace("[", r"\[").replace("]", r"\]")
    with pytest.raises(SpecError, match=f"^models.yaml: {pattern}"):
        parse_spec(mapping)
