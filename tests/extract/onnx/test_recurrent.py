"""Recurrent ONNX operators with random attributes, compared with ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anole.config.entries import ModelSpec
from anole.extract.load import load_model
from anole.targets.shared.recurrence import Recurrence, recurrence_of

from ...examples import examples
from .test_operators import Network

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
FUNCTIONS = {"LSTM": 3, "GRU": 2, "RNN": 1}
WITH_ALPHA = ("Affine", "HardSigmoid", "LeakyRelu", "ScaledTanh")
WITH_BETA = ("Affine", "HardSigmoid", "ScaledTanh")
ACTIVATIONS = (*WITH_ALPHA, "Sigmoid", "Softsign", "Tanh", "Relu", "Softplus")


def add_layer(
    net: Network, operator: str, steps: int, batch: int, hidden: int, given_inputs: str = "", **attributes: Any
) -> None:
    """Add a recurrent operator; `given_inputs` selects optional inputs: B (b), lengths (l), states (h, c), P (p)."""
    n_directions = 2 if attributes.get("direction") == "bidirectional" else 1
    rows, states = GATES[operator] * hidden, (n_directions, batch, hidden)

    def uniform(*shape: int) -> Any:
        return net.rng.uniform(-0.7, 0.7, shape).astype(np.float32)

    inputs = [
        net.given(uniform(steps, batch, 3)),
        net.weight(uniform(n_directions, rows, 3)),
        net.weight(uniform(n_directions, rows, hidden)),
        net.weight(uniform(n_directions, 2 * rows)) if "b" in given_inputs else "",
        net.weight(net.rng.integers(1, steps + 1, batch), "int32") if "l" in given_inputs else "",
        net.given(uniform(*states)) if "h" in given_inputs else "",
    ]
    if operator == "LSTM":
        inputs.append(net.given(uniform(*states)) if "c" in given_inputs else "")
        inputs.append(net.weight(uniform(n_directions, 3 * hidden)) if "p" in given_inputs else "")
    net.add(operator, *inputs, outputs=3 if operator == "LSTM" else 2, hidden_size=hidden, **attributes)


def test_recurrent_operators(tmp_path: Path) -> None:
    net = Network()
    add_layer(net, "LSTM", 4, 2, 20, "blhcp", direction="bidirectional", clip=0.8)
    add_layer(net, "LSTM", 3, 1, 32, "h", direction="reverse", input_forget=1)
    functions = ["HardSigmoid", "Softsign", "Tanh", "Sigmoid"]
    add_layer(net, "GRU", 4, 3, 5, "bl", direction="bidirectional", activations=functions, activation_alpha=[0.3])
    add_layer(net, "GRU", 3, 2, 16, "bh", linear_before_reset=1)
    add_layer(net, "RNN", 5, 1, 17, "b", direction="reverse", activations=["LeakyRelu"], activation_alpha=[0.7])
    net.check(tmp_path, 2e-5)


@st.composite
def layers(draw: st.DrawFn) -> tuple[str, int, int, int, str, dict[str, Any]]:
    operator = draw(st.sampled_from(sorted(GATES)))
    direction = draw(st.sampled_from(["forward", "reverse", "bidirectional"]))
    attributes: dict[str, Any] = {"direction": direction}
    if draw(st.booleans()):
        attributes["clip"] = draw(st.sampled_from([0.3, 1.0]))
    if operator == "LSTM":
        attributes["input_forget"] = draw(st.integers(0, 1))
    if operator == "GRU":
        attributes["linear_before_reset"] = draw(st.integers(0, 1))
    if draw(st.booleans()):
        n_functions = FUNCTIONS[operator] * (2 if direction == "bidirectional" else 1)
        names = draw(st.lists(st.sampled_from(ACTIVATIONS), min_size=n_functions, max_size=n_functions))
        attributes["activations"] = names
        for parameter, of in (("alpha", WITH_ALPHA), ("beta", WITH_BETA)):
            if n_numbers := sum(name in of for name in names):
                numbers = st.lists(st.sampled_from([0.1, 0.3, 0.5]), min_size=n_numbers, max_size=n_numbers)
                attributes[f"activation_{parameter}"] = draw(numbers)
    inputs = "".join(draw(st.sets(st.sampled_from("blhcp"))))
    hidden = draw(st.sampled_from([1, 3, 16, 20, 32, 33]))
    return operator, draw(st.integers(1, 4)), draw(st.integers(1, 4)), hidden, inputs, attributes


@pytest.mark.slow
@settings(max_examples=examples(15), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(layers(), min_size=4, max_size=4))
def test_all_options(tmp_path: Path, cases: list[tuple[str, int, int, int, str, dict[str, Any]]]) -> None:
    net = Network()
    for operator, steps, batch, hidden, inputs, attributes in cases:
        add_layer(net, operator, steps, batch, hidden, inputs, **attributes)
    net.check(tmp_path, 1e-4)


def test_quantized_lstm(tmp_path: Path) -> None:
    net = Network(domains=("com.microsoft",))
    for direction, zero in (("forward", 0), ("bidirectional", 3)):
        n_directions = 2 if direction == "bidirectional" else 1
        weights = [net.weight(net.rng.integers(-90, 90, (n_directions, rows, 80)), "int8") for rows in (6, 20)]
        # Without VNNI, ONNX Runtime rejects a zero point that several weights of a node share.
        scales = [[net.weight([0.01] * n_directions), net.weight([zero] * n_directions, "int8")] for _ in weights]
        bias = net.weight(net.rng.uniform(-0.5, 0.5, (n_directions, 160)))
        rest = [bias, "", "", "", "", *scales[0], *scales[1]]
        net.add(
            "DynamicQuantizeLSTM", net.input(7, 1, 6), *weights, *rest, outputs=3, direction=direction, hidden_size=20
        )
        net.nodes[-1].domain = "com.microsoft"
    net.check(tmp_path, 1e-5)


@pytest.mark.guard
def test_quantized_lstm_stores_low_precision_weights(tmp_path: Path) -> None:
    """Every step loads all weights."""
    for middle, dtype in ((128, "int8"), (3, "int16")):
        net = Network(domains=("com.microsoft",))
        weights = [net.weight(net.rng.integers(0, 256, (1, rows, 64)), "uint8") for rows in (6, 16)]
        scale, point = net.weight([0.01]), net.weight([middle], "uint8")
        rest = ["", "", "", "", "", scale, point, scale, point]
        net.add("DynamicQuantizeLSTM", net.input(3, 1, 6), *weights, *rest, outputs=3, hidden_size=16)
        net.nodes[-1].domain = "com.microsoft"
        net.check(tmp_path, 1e-5)
        (kernel,) = kernels_of(net, tmp_path)
        assert kernel.weight_dtype == dtype


def kernels_of(net: Network, folder: Path) -> list[Recurrence]:
    """Return the recurrent kernels of a checked network."""
    spec = ModelSpec("net", f"onnx:{folder / 'net.onnx'}")
    functions = (func for _, func in load_model(spec).module.functions_items())
    return [found for func in functions if (found := recurrence_of(func)) is not None]
