"""Ranges of sizes: what models.yaml may say of them, and the sizes that stand for all others."""

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
def test_sizes_that_stand_for_a_range_are_in_it_and_differ(each: SizeRange) -> None:
    usual, low, largest = each.samples
    assert SizeRange.parse(str(each)) == each
    assert usual == each.typical and (usual in each or usual == 2)
    assert max(each.min, 2) <= low != usual and each.max <= largest > max(usual, low)
    assert gcd(low - usual, largest - usual) == 1, "steps of this size would not show"
    checked = [sizes["n"] for sizes in checked_sizes({"n": each})]
    assert {each.min, each.max} <= {*checked, usual} and all(size in each for size in checked)


@pytest.mark.parametrize(
    ("text", "samples"),
    [
        ("1..16", (4, 3, 16)),
        ("16..512", (64, 17, 512)),
        ("4..32", (8, 7, 32)),
        ("1..2", (2, 3, 4)),
        ("5..6", (5, 6, 7)),
    ],
)
def test_a_network_is_imported_at_sizes_near_both_ends(text: str, samples: tuple[int, ...]) -> None:
    assert SizeRange.parse(text).samples == samples


@pytest.mark.parametrize(("text", "usual"), [("1..16", 4), ("16..512", 64), ("1..2", 2), ("7..8", 7)])
def test_the_usual_size_is_in_the_middle(text: str, usual: int) -> None:
    assert SizeRange.parse(text).typical == usual


def test_an_extent_may_be_a_range_and_the_entry_is_read_back() -> None:
    model = parse_spec(spec([{"batch": "1..16"}, 3, 224, 224])).models["net"]
    assert (model.inputs, model.ranges) == ({"x": (4, 3, 224, 224)}, {"batch": SizeRange(1, 16)})
    assert model.to_json()["inputs"] == [["x", [{"batch": "1..16"}, 3, 224, 224]]]
    assert ModelSpec.from_json("net", model.to_json()) == model
    assert model.at({"batch": 9}).inputs == {"x": (9, 3, 224, 224)}
    onnx = ModelSpec.from_json("net", {"source": "onnx:net.onnx", "inputs": {}, "dims": {"batch": "1..16", "size": 8}})
    assert (onnx.dims, onnx.at({"batch": 9}).dims) == ({"batch": 4, "size": 8}, {"batch": 9, "size": 8})
    assert ModelSpec.from_json("net", onnx.to_json()) == onnx


def test_inputs_share_a_name_only_with_its_range() -> None:
    mapping = spec([{"batch": "1..4"}, 3])
    mapping["models"]["net"]["inputs"]["y"] = [{"batch": "1..4"}]
    assert parse_spec(mapping).models["net"].named == {"x": ("batch", None), "y": ("batch",)}
    mapping["models"]["net"]["inputs"]["y"] = [{"batch": "1..5"}]
    with pytest.raises(SpecError, match=r"inputs.y\[0\].batch: found 1..5 for batch, which is 1..4 elsewhere"):
        parse_spec(mapping)


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        (spec([{"batch": "16"}, 3]), "models.net.inputs.x[0].batch: found '16'; a range has its least"),
        (spec([{"batch": "9..3"}, 3]), "models.net.inputs.x[0].batch: found '9..3'; a range has its least"),
        (
            spec([{"batch": "1..4", "more": "1..2"}, 3]),
            "models.net.inputs.x[0]: found .*; an extent that varies has one",
        ),
        (spec([{"a b": "1..4"}, 3]), "models.net.inputs.x[0]: found the name 'a b'; the name of a range has letters"),
        (
            spec([1]) | {"models": {"net": {"source": "onnx:pyproject.toml", "dims": {"batch-size": "1..4"}}}},
            "models.net.dims.batch-size: found a range of 'batch-size'; the name of a range has",
        ),
        (spec([{"batch": "1..99999"}, 999_999]), "models.net.inputs.x: found .*; an input has at most"),
        (
            spec([{"batch": "1..4"}, 3], kind="vta"),
            "builds[0].model: found net with the range batch: 1..4; only targets",
        ),
    ],
)
def test_mistakes_are_told_with_their_place(mapping: dict[str, Any], message: str) -> None:
    pattern = message.replace("[", r"\[").replace("]", r"\]")
    with pytest.raises(SpecError, match=f"^models.yaml: {pattern}"):
        parse_spec(mapping)
