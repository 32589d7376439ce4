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
        ({"steps": 0}, "models.yaml: tuning.sample.steps: found 0; allowed: a whole number from 1 to 10"),
        ({"steps": 11}, "tuning.sample.steps: found 11; allowed: a whole number from 1 to 10"),
        ({"steps": 2.5}, "tuning.sample.steps: found 2.5; allowed: a whole number from 1 to 10"),
        ({"steps": True}, "tuning.sample.steps: found True; allowed: a whole number"),
        ({"steps": "5"}, "tuning.sample.steps: found '5'; allowed: a whole number"),
        ({"steps": None}, "tuning.sample.steps: found None; allowed: a whole number"),
        ({"rate": -0.1}, "tuning.sample.rate: found -0.1; allowed: a number of at least 0"),
        ({"rate": float("nan")}, "tuning.sample.rate: found nan; allowed: a number"),
        ({"rate": float("inf")}, "tuning.sample.rate: found inf; allowed: a number"),
        ({"rate": False}, "tuning.sample.rate: found False; allowed: a number"),
        ({"ratio": 0.5}, "tuning.sample.ratio: found 0.5; allowed: a number of at least 1, or null"),
        ({"kind": "big"}, "tuning.sample.kind: found 'big'; allowed: tall, small"),
        ({"careful": 1}, "tuning.sample.careful: found 1; allowed: true or false"),
        ({"label": 3}, "tuning.sample.label: found 3; allowed: text"),
        ({"step": 3}, "tuning.sample.step: unknown setting 'step'; did you mean 'steps'? allowed: steps, rate"),
        ({"step": 3}, "did you mean 'steps'?"),
        ({4: 3}, "tuning.sample.4: unknown setting 4"),
    ],
)
def test_bad_values_say_where_and_what_is_allowed(plain, message):
    with pytest.raises(SpecError) as caught:
        read_fields(Sample, plain, "tuning.sample")
    assert message in str(caught.value)


def test_unknown_names_nothing_when_nothing_is_near():
    assert unknown("preset", "zzz", ["autotvm", "random"]) == "unknown preset 'zzz'; allowed: autotvm, random"
