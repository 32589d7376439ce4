"""Formatting numbers, lists and kernels for people."""

from __future__ import annotations

import pytest

from anole.text_format import NONE, describe_kernel, duration, format_names, percent, pluralize, significant


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(12.345, "12.3 s"), (0.00587344, "5.87 ms"), (0.001, "1.00 ms"), (4.56e-5, "45.6 µs"), (6.52e-7, "652 ns")],
)
def test_a_duration_has_a_suitable_unit(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (1.64199, "1.64"), (999.9, "1,000"), (12345.6, "12,300"), (1.71692e-6, "1.72e-06"), (None, NONE)],
)
def test_a_number_has_three_significant_digits(value: float | None, text: str) -> None:
    assert significant(value) == text


def test_long_lists_are_shortened() -> None:
    assert (format_names(["a", "b", "c"]), format_names(["a", "b", "c", "d", "e"])) == ("a, b, c", "a, b, c and 2 more")
    assert (pluralize(1, "preset"), pluralize(1200, "pass"), percent(0.3456)) == ("1 preset", "1,200 passes", "34.6 %")


@pytest.mark.parametrize(
    ("kernel", "layers", "text"),
    [
        ("fused_conv2d9_add7_add8_relu4", ("layer1.0.conv1", "layer1.1.conv1"), "layer1.0.conv1, layer1.1.conv1"),
        ("fused_dense_add", tuple("abcde"), "a, b, c and 2 more"),
        ("fused_conv2d9_add7_add8_relu4", (), "conv2d_add_add_relu"),
        ("max_pool2d1", (), "max_pool2d"),
        ("fused_transpose1_reshape", (), "transpose_reshape"),
    ],
)
def test_a_kernel_is_named_by_layers_or_operators(kernel: str, layers: tuple[str, ...], text: str) -> None:
    assert describe_kernel(kernel, layers) == text
