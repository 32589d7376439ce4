"""People call a kernel by its layers, and without any by its operators."""

from __future__ import annotations

import pytest

from anole.evaluate.kernel_words import kernel_words


@pytest.mark.parametrize(
    ("kernel", "layers", "words"),
    [
        ("fused_conv2d9_add7_add8_relu4", ("layer1.0.conv1", "layer1.1.conv1"), "layer1.0.conv1, layer1.1.conv1"),
        ("fused_dense_add", tuple("abcde"), "a, b, c and 2 more"),
        ("fused_conv2d9_add7_add8_relu4", (), "conv2d_add_add_relu"),
        ("max_pool2d1", (), "max_pool2d"),
        ("fused_transpose1_reshape", (), "transpose_reshape"),
        ("mean", (), "mean"),
    ],
)
def test_a_kernel_has_a_name_for_people(kernel: str, layers: tuple[str, ...], words: str) -> None:
    assert kernel_words(kernel, layers) == words
