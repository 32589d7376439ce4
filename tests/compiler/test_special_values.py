"""Operators match eager torch at zeros, subnormals, bounds of polynomials, infinities and NaN."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from anole.config.entries import ModelSpec
from anole.extract.decompositions import decompose
from anole.extract.graph import normalize
from anole.extract.torch import import_program
from kit.cases import compute

Function = Callable[..., Any]

_LIMITS = np.finfo(np.float32)
_BOUNDS = (0.3, 0.5, 0.7, 1, 1.5, 2, 2.5, 3, 4, 6, 7.9988, 9, 9.01, 16, 20, 87.33, 88, 88.376, 88.5, 88.72, 88.73)
_LARGE = (89, 89.3, 89.5, 103, 103.9, 104, 127, 128, 149, 150, 1e3, 8388607.5, 1e10, 2e19, float(_LIMITS.max), math.inf)
_SMALL = (0.0, float(_LIMITS.smallest_subnormal), 1e-40, float(_LIMITS.tiny), 1e-20, 1e-7, 1e-3)
VALUES = torch.tensor(
    [sign * each for each in (*_SMALL, *_BOUNDS, *_LARGE) for sign in (1, -1)] + [math.nan, -math.nan]
)
FEW = torch.tensor([0.0, -0.0, 1e-40, 0.5, -1, 2, -3, 1.5, 89, -89, 1e20, -1e20, math.inf, -math.inf, math.nan])
PAIRS = FEW.repeat_interleave(len(FEW)), FEW.repeat(len(FEW))
_NAN, _INF = math.nan, math.inf
ROWS = torch.tensor(
    [
        [1.0, 2, 3, 4, 5, 6],
        [1, _NAN, 8, 2, 6, 7],
        [_NAN] * 6,
        [_NAN, 1, 2, 3, 4, 5],
        [1, 2, 3, 4, 5, _NAN],
        [-_INF] * 6,
        [_INF] * 6,
        [_INF, _NAN, 1, -_INF, 2, 3],
        [0, -0.0, 0, -0.0, -1, -2],
        [0, -87.3, -104, -1e4, -60, -1],
    ]
)

_UNARY = """abs acos acosh asin asinh atan atanh ceil cos cosh deg2rad erf exp exp2 expm1 floor frac log log10 log1p
log2 logit neg reciprocal relu round rsqrt sigmoid sign sin sinc sinh sqrt square tan tanh trunc isfinite isinf isnan
nan_to_num logical_not"""
_ACTIVATIONS = """celu elu gelu hardshrink hardsigmoid hardswish hardtanh leaky_relu logsigmoid mish relu6 selu silu
softplus softshrink softsign"""

UNARY: Mapping[str, Function] = {
    **{name: getattr(torch, name) for name in _UNARY.split()},
    **{name: getattr(F, name) for name in _ACTIVATIONS.split()},
    "gelu by tanh": lambda x: F.gelu(x, approximate="tanh"),
    "threshold": lambda x: F.threshold(x, 0.5, 0.25),
    "clamp": lambda x: x.clamp(-1, 2),
    "clamp from below": lambda x: x.clamp(min=-1),
    "clamp from above": lambda x: x.clamp(max=1.5),
    **{f"power {power}": lambda x, power=power: x**power for power in (0, 0.25, 0.5, 1.5, 2, 3, -0.5, -1)},
    **{f"power of {base}": lambda x, base=base: torch.pow(base, x) for base in (0.5, 10.0)},
    "ratio of exponentials": lambda x: torch.exp(x) / (torch.exp(x) + 1e-38),
    "is above": lambda x: x > 0,
    "is not below": lambda x: ~(x < 1),
    "differs": lambda x: x != 1,
    "is a number": lambda x: x == x,
    "bool": lambda x: x.bool(),
    "float16": lambda x: x.half().float(),
    "bfloat16": lambda x: x.bfloat16().float(),
    "times zero": lambda x: x * 0,
    "over zero": lambda x: x / 0.0,
    "minus itself": lambda x: x - x,
    "floor division": lambda x: x // 0.1,
    "remainder": lambda x: torch.remainder(x, 1.5),
}

ROUNDING: Mapping[str, Function] = {
    "to an integer": lambda x: (x + 12582912.0) - 12582912.0,
    "in steps": lambda x: ((x - 12582912.0) + 2) + 12582910.0,
    "scaled": lambda x: (x + 1e8) * 2.0 - 2e8,
    "to bytes": lambda x: ((x + 12582912.0) - 12582912.0 + 128) * 0.25,
    "to one": lambda x: (1 + x) - 1,
    "to infinity": lambda x: (x * 1e30) * 1e-30,
    "to zero": lambda x: (x * 1e-30) * 1e30,
}

BINARY: Mapping[str, Function] = {
    **{
        name: getattr(torch, name)
        for name in """add sub mul div pow atan2 maximum minimum fmax fmin hypot logaddexp floor_divide copysign
        eq ne lt le gt ge logical_and logical_or logical_xor xlogy""".split()
    },
    "quotient": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "floored quotient": lambda a, b: torch.div(a + 1, b * 0.1, rounding_mode="floor"),
    "clamp": lambda a, b: torch.clamp(a, b, b + 1),
    "choice": lambda a, b: torch.where(~(a < b), a, b),
    "prelu": lambda a, b: F.prelu(a, torch.full((1,), 0.25)),
    "sum and back": lambda a, b: (a + b) - b,
    "difference and back": lambda a, b: (a - b) + b,
    "difference of a sum": lambda a, b: a - (b + a),
}

ALONG_ROWS: Mapping[str, Function] = {
    **{
        name: lambda x, name=name: getattr(torch, name)(x, -1)
        for name in ("amax", "amin", "argmax", "argmin", "softmax")
    },
    **{name: lambda x, name=name: getattr(torch, name)(x, -1) for name in ("log_softmax", "logsumexp", "sum")},
    "amax of all": lambda x: x.amax(),
    "sort": lambda x: torch.sort(x, dim=-1, stable=True),
    "descending": lambda x: x.sort(-1, descending=True).values,
    "topk": lambda x: x.topk(3, -1).values,
    "smallest": lambda x: x.topk(2, -1, largest=False).values,
    "max": lambda x: x.max(-1),
    "cummax": lambda x: x.cummax(-1).values,
}


class Net(torch.nn.Module):
    """A network that computes many functions of the same inputs."""

    def __init__(self, functions: Mapping[str, Function]) -> None:
        super().__init__()
        self.functions = functions

    def forward(self, *inputs: torch.Tensor) -> Any:
        return tuple(function(*inputs) for function in self.functions.values())


def assert_same_as_torch(functions: Mapping[str, Function], *inputs: torch.Tensor) -> None:
    network, model = Net(functions), ModelSpec("case", "torch:torch:operators", {})
    tensors = {f"x{at}": each for at, each in enumerate(inputs)}
    program = decompose(torch.export.export(network, inputs))
    found = compute(normalize(model, import_program(model, program, tensors)), tensors)
    names = [name for name, function in functions.items() for _ in _outputs(function(*inputs))]
    expected = [each for function in functions.values() for each in _outputs(function(*inputs))]
    for name, one, other in zip(names, found, expected, strict=True):
        wanted = other.numpy()
        assert one.dtype == wanted.dtype, name
        # torch's gelu suffers from cancellation, and its tangents of large values are as inexact as the values.
        rtol, atol = (1e-4, 3e-7) if "gelu" in name else (3e-5, 1e-41)
        np.testing.assert_allclose(one, wanted, rtol=rtol, atol=atol, equal_nan=True, err_msg=name)


def _outputs(found: Any) -> tuple[torch.Tensor, ...]:
    return (found,) if isinstance(found, torch.Tensor) else tuple(found)


@pytest.mark.parametrize(
    ("functions", "inputs"),
    [
        pytest.param(UNARY, (VALUES,), id="unary"),
        pytest.param(ROUNDING, (VALUES,), id="rounding"),
        pytest.param(BINARY, PAIRS, id="binary"),
        pytest.param(ALONG_ROWS, (ROWS,), id="rows"),
    ],
)
def test_special_values_match_torch(functions: Mapping[str, Function], inputs: tuple[Any, ...]) -> None:
    assert_same_as_torch(functions, *inputs)


def test_an_epilogue_keeps_nan() -> None:
    layers = torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 3), torch.nn.ReLU6(), torch.nn.Conv2d(16, 8, 1), torch.nn.ReLU()
    )
    data = torch.randn(1, 3, 6, 6, generator=torch.Generator().manual_seed(0))
    data[0, 1, 0, 0] = math.nan
    assert_same_as_torch({"layers": lambda x: layers(x).detach()}, data)
