"""The targets' default configs stay the same: untuned builds and comparisons depend on them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from anole.targets import get_target
from anole.task import Workload, workload_from_json

PINNED = json.loads((Path(__file__).parent / "default_configs.json").read_text())
CASES = [
    pytest.param(pinned["description"], workload_from_json(each["workload"]), each["config"], id=f"{kind}-{number}")
    for pinned in PINNED
    for kind in [pinned["description"]["kind"]]
    for number, each in enumerate(pinned["defaults"])
]


@pytest.mark.examples(14)
@pytest.mark.parametrize(("description", "workload", "config"), CASES)
def test_the_default_config_stays_the_same(
    description: dict[str, Any], workload: Workload, config: dict[str, Any]
) -> None:
    assert get_target(description).default_config(workload) == config


def test_every_kind_and_operator_is_pinned() -> None:
    for pinned in PINNED:
        operators = {each["workload"]["operator"] for each in pinned["defaults"]}
        assert operators == set(get_target(pinned["description"]).operators)
