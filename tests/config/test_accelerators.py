"""The section `accelerators` of models.yaml, and each kind of mistake in it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from anole.config.reading import parse_spec
from anole.errors import SpecError


def plain(**entry: Any) -> dict[str, Any]:
    model = {"source": "torchvision:resnet18", "inputs": {"x": [1, 3, 32, 32]}}
    searched = {"kind": "vta", "hardware": "search"}
    return {
        "models": {"one": model, "two": model},
        "targets": {
            "npu": searched,
            "wide": {**searched, "area_max": 3, "geometry": {"bus_bytes": 16}},
            "fast": {**searched, "frequency_mhz": 200},
            "fixed": {"kind": "vta"},
            "open": {**searched, "space": "open"},
            "cpu": {"kind": "cpu"},
        },
        "accelerators": {"edge": {"models": ["one", "two"], "targets": ["npu"], **entry}},
    }


def test_accelerators_need_no_builds_and_search_each_network_and_target() -> None:
    spec = parse_spec(plain(models={"one": 2, "two": 0.5}, targets=["npu", "wide"], frequency_mhz={"1x64x64": 80}))
    (accelerator,) = spec.accelerators.values()
    assert spec.builds == {} and spec.tuned == accelerator.searches
    assert accelerator.models == {"one": 2.0, "two": 0.5}
    assert accelerator.settings == {"frequency_mhz": {"1x64x64": 80.0}}
    assert [(each.model, each.target) for each in accelerator.searches] == [
        (model, target) for model in ("one", "two") for target in ("npu", "wide")
    ]
    assert {(each.budget.max_trials, each.tuning["preset"]) for each in accelerator.searches} == {
        (1_000_000, "exhaustive")
    }


def test_listed_networks_have_equal_weights() -> None:
    assert parse_spec(plain(technology_nm=22)).accelerators["edge"].models == {"one": 1.0, "two": 1.0}


MISTAKES = {
    "unknown key": ({"area_max": 2}, ".area_max: is unknown"),
    "unknown model": ({"models": ["three"]}, ".models[0]: found 'three', which is not one of the models"),
    "unknown weight": ({"models": {"three": 1}}, ".models: found 'three', which is not one of the models"),
    "no model": ({"models": {}}, ".models: is empty"),
    "twice": ({"models": ["one", "one"]}, ".models[1]: found 'one' twice"),
    "no weight": ({"models": {"one": 0}}, ".models.one: found 0; a number from"),
    "unknown target": ({"targets": ["gpu"]}, ".targets[0]: found 'gpu', which is not one of the targets"),
    "text": ({"targets": "npu"}, ".targets: found 'npu'; a list with at least one element"),
    "processor": ({"targets": ["cpu"]}, ".targets: found targets of kind cpu; all must be of one kind with searchable"),
    "mixed": ({"targets": ["npu", "cpu"]}, ".targets: found targets of kind cpu, vta; all must be of one kind"),
    "fixed hardware": ({"targets": ["fixed"]}, ".targets: target fixed: only `hardware: search`"),
    "open space": ({"targets": ["open"]}, ".targets: target open: only `hardware: search` in a constrained space"),
    "other clock": ({"targets": ["npu", "fast"]}, ".targets: target fast: differs from npu in more than its geometry"),
    "not a block": ({"frequency_mhz": {"64x64": 80}}, ".frequency_mhz.64x64: is not a block; use the form 1x16x16"),
    "no clock": ({"frequency_mhz": {"1x64x64": 0}}, ".frequency_mhz.1x64x64: found 0; a number from"),
    "unknown process": ({"technology_nm": 7}, ".technology_nm: found 7; allowed are 22, 32, 45, 65"),
}


@pytest.mark.parametrize(("entry", "message"), MISTAKES.values(), ids=MISTAKES.keys())
def test_mistakes_are_reported_with_their_path(entry: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match="^models.yaml: accelerators.edge" + re.escape(message)):
        parse_spec(plain(**entry))


def test_builds_or_accelerators_are_required() -> None:
    asked = plain()
    del asked["accelerators"]
    with pytest.raises(SpecError, match="has no `builds`"):
        parse_spec(asked)
