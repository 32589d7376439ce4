"""Linear interpolation is computed one axis at a time, from tables, and fuses with the following operators."""

from __future__ import annotations

import re

import numpy as np
import pytest
import tvm
from tvm import ir, relax

from anole.compiler.passes.resize import legalize_resize

from ...extract.passes.building import module_of, random_array, run


def resize(shape: tuple[int, ...], size: tuple[int, int], layout: str, position: str, method: str) -> tvm.IRModule:
    def build(builder: relax.BlockBuilder, x: ir.Expr) -> ir.Expr:
        large = builder.emit(relax.op.image.resize2d(x, size, None, layout, method, position))
        return relax.op.nn.relu(large)

    return module_of(build, shape)


def legalize(module: tvm.IRModule) -> tvm.IRModule:
    return relax.transform.LegalizeOps({"relax.image.resize2d": legalize_resize})(module)


def kernels(module: tvm.IRModule) -> list[str]:
    """Return the kernels that are called, fused as in a build, without the numbers in their names."""
    transform = relax.transform
    steps = (transform.AnnotateTIROpPattern(), transform.FuseOps(), transform.FuseTIR())
    for step in (*steps, transform.DeadCodeElimination()):
        module = step(module)
    (block,) = module["main"].body.blocks
    values = [binding.value for binding in block.bindings if hasattr(binding.value, "args")]
    return [re.sub(r"(?<=[a-z])\d+(?=_|$)", "", str(value.args[0].name_hint)) for value in values]


@pytest.mark.parametrize("position", ["align_corners", "asymmetric", "half_pixel", "pytorch_half_pixel"])
@pytest.mark.parametrize(
    ("shape", "size", "layout"),
    [
        ((2, 5, 7, 3), (10, 21), "NHWC"),
        ((2, 3, 5, 7), (10, 21), "NCHW"),
        ((1, 3, 12, 9), (5, 20), "NCHW"),
        ((1, 3, 12, 9), (2, 9), "NCHW"),
        ((1, 3, 4, 4), (4, 4), "NCHW"),
    ],
)
@pytest.mark.examples(2)
def test_results_match_tvm(shape: tuple[int, ...], size: tuple[int, int], layout: str, position: str) -> None:
    module, data = resize(shape, size, layout, position, "linear"), random_array(*shape)
    np.testing.assert_allclose(run(legalize(module), data), run(module, data), rtol=1e-5, atol=1e-5)


def test_only_the_second_kernel_fuses_with_its_reader() -> None:
    module = legalize(resize((1, 28, 28, 21), (56, 56), "NHWC", "half_pixel", "linear"))
    assert kernels(module) == ["resize", "fused_resize_relu"]
    assert "Tensor((1, 28, 56, 21)" in module.script()


def test_the_axis_that_shrinks_most_comes_first() -> None:
    module = legalize(resize((1, 3, 90, 80), (30, 40), "NCHW", "half_pixel", "linear"))
    assert "Tensor((1, 3, 30, 80)" in module.script()


def test_an_unchanged_axis_needs_no_kernel() -> None:
    module = legalize(resize((1, 3, 12, 9), (24, 9), "NCHW", "half_pixel", "linear"))
    assert kernels(module) == ["fused_resize_relu"]


@pytest.mark.parametrize(
    ("shape", "layout", "method"),
    [
        ((1, 28, 28, 64), "NHWC", "linear"),
        ((1, 3, 28, 28), "NCHW", "cubic"),
        ((1, 3, 28, 28), "NCHW", "nearest_neighbor"),
    ],
)
def test_many_channels_and_other_modes_have_one_kernel(shape: tuple[int, ...], layout: str, method: str) -> None:
    assert kernels(legalize(resize(shape, (56, 56), layout, "half_pixel", method))) == ["fused_resize2d_relu"]
