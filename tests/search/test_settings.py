"""Settings of a part: read with helpful errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import pytest

from anole.errors import SpecError
from anole.search.settings import Range, read_fields, unknown


@dataclass(frozen=True)
class Sample:
    name: ClassVar[str] = "sample"

    steps: Annotated[int, Range(1, 10)] = 5
    rate: Annotated[float, Range(0)] = 0.5
    ratio: Annotated[float, Range(1)] | None = None
    kind: Literal["tall", "small"] = "tall"
    careful: bool = False
    label: str = ""


@pytest.mark.parametrize(
    ("plain", "read"),
    [
        ({}, {}),
        ({"steps": 1}, {"steps": 1}),
        ({"rate": 0}, {"rate": 0.0}),
        ({"ratio": None}, {"ratio": None}),
        ({"ratio": 2}, {"ratio": 2.0}),
        ({"kind": "small", "careful": True, "label": "x"}, {"kind": "small", "careful": True, "label": "x"}),
    ],
)
def test_good_values(plain, read):
    values = read_fields(Sample, plain, "tuning.sample")
    assert values == read
    assert {name: type(value) for name, value in values.items()} == {name: type(value) for name, value in read.items()}
    Sample(**values)


@pytest.mark.parametrize(
    ("plain", "message"),
    [
        ({"steps": 0}, "models.yaml: tuning.sample.steps: is 0, not a whole number from 1 to 10"),
        ({"steps": 11}, "tuning.sample.steps: is 11, not a whole number from 1 to 10"),
        ({"steps": 2.5}, "tuning.sample.steps: is 2.5, not a whole number from 1 to 10"),
        ({"steps": True}, "tuning.sample.steps: is True, not a whole number"),
        ({"steps": "5"}, "tuning.sample.steps: is '5', not a whole number"),
        ({"steps": None}, "tuning.sample.steps: is None, not a whole number"),
        ({"rate": -0.1}, "tuning.sample.rate: is -0.1, not a number of at least 0"),
        ({"rate": float("nan")}, "tuning.sample.rate: is nan, not a number"),
        ({"rate": float("inf")}, "tuning.sample.rate: is inf, not a number"),
        ({"rate": False}, "tuning.sample.rate: is False, not a number"),
        ({"ratio": 0.5}, "tuning.sample.ratio: is 0.5, not a number of at least 1 or null"),
        ({"kind": "big"}, "tuning.sample.kind: is 'big', not one of tall, small"),
        ({"careful": 1}, "tuning.sample.careful: is 1, not true or false"),
        ({"label": 3}, "tuning.sample.label: is 3, not text"),
        ({"step": 3}, "tuning.sample.step: is not known; did you mean 'steps'? allowed: steps, rate"),
        ({"step": 3}, "did you mean 'steps'?"),
        ({4: 3}, "tuning.sample.4: is not known"),
    ],
)
def test_bad_values_say_where_and_what_is_allowed(plain, message):
    with pytest.raises(SpecError) as caught:
        read_fields(Sample, plain, "tuning.sample")
    assert message in str(caught.value)


def test_unknown_names_nothing_when_nothing_is_near():
    assert unknown("preset", "zzz", ["autotvm", "random"]) == "unknown preset 'zzz'; allowed: autotvm, random"
