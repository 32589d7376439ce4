"""Transposed convolutions as subpixel convolutions, compared with torch."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tvm import relax

from anole.extract.passes.subpixel import subpixel
from anole.ir.convolutions import CHANNELS_LAST

from ...examples import examples
from .building import constant, network, operators, random_array, run

transpose = partial(relax.op.nn.conv2d_transpose, **CHANNELS_LAST)


@st.composite
def transposed(draw: st.DrawFn) -> dict[str, object]:
    pair = st.tuples
    groups, strides = draw(st.sampled_from([1, 1, 2, 3])), draw(pair(st.integers(1, 4), st.integers(1, 3)))
    kernel = draw(pair(st.integers(1, 5), st.integers(1, 4)))
    dilation = draw(pair(st.integers(1, 2), st.integers(1, 3)))
    return {
        "batch": draw(st.integers(1, 2)),
        "sides": draw(pair(st.integers(3, 7), st.integers(3, 7))),
        "channels": (groups * draw(st.integers(1, 3)), groups * draw(st.integers(1, 5))),
        "kernel": kernel,
        "strides": strides,
        "dilation": dilation,
        "groups": groups,
        "padding": tuple(draw(st.integers(0, size)) for size in kernel),
        "is_computed": draw(st.booleans()),
        "output_padding": tuple(draw(st.integers(0, stride - 1)) for stride in strides),
    }


@given(case=transposed())
@settings(max_examples=examples(25), deadline=None)
def test_transposed_convolutions_match_torch(case: dict[str, object]) -> None:
    (inputs, outputs), groups = case["channels"], case["groups"]
    data = random_array(case["batch"], *case["sides"], inputs)
    weight = random_array(inputs, outputs // groups, *case["kernel"], seed=1)
    names = ("strides", "dilation", "groups", "output_padding")
    attributes = {name: case[name] for name in names}
    expected = torch.nn.functional.conv_transpose2d(
        *(torch.from_numpy(array).double() for array in (data.transpose(0, 3, 1, 2), weight)),
        stride=case["strides"],
        padding=case["padding"],
        **{name: case[name] for name in names[1:]},
    )
    assume(min(expected.shape) > 0)

    kernel = weight.transpose(2, 3, 0, 1)
    given = [data, kernel] if case["is_computed"] else [data]
    call, constants = partial(transpose, padding=case["padding"], **attributes), [relax.const(kernel)][len(given) - 1 :]
    module = subpixel(network(lambda *operands: call(*operands, *constants), *(each.shape for each in given)))
    assert "conv2d" in operators(module) and "conv2d_transpose" not in operators(module)
    found = run(module, *given)
    np.testing.assert_allclose(found.transpose(0, 3, 1, 2), expected.numpy(), rtol=1e-4, atol=1e-5)


def test_blocks_without_overlap_need_no_cropping() -> None:
    module = network(lambda x: transpose(x, constant(2, 2, 8, 4), strides=(2, 2)), (1, 5, 6, 8))
    assert operators(subpixel(module)) == ["conv2d", "reshape", "permute_dims", "reshape"]
