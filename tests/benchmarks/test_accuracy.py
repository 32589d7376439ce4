"""Accuracy of networks with trained weights, by their decoded answers."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest

from anole.config.entries import ModelSpec
from anole.evaluate.engines import Engine, onnxruntime_engine
from benchmarks.networks import inputs
from benchmarks.networks.accuracy import loss, outputs_of
from benchmarks.networks.trained import convert_to_float, decode_text, equal_share, overlap, same_neighbor_share

from ..extract.onnx.models import model_of


def test_loss_is_of_the_worst_output() -> None:
    expected = [[np.ones(4), np.array([3.0, 4.0])], [np.ones(4), np.array([3.0, 4.0])]]
    found = [[np.ones(4), np.array([3.0, 4.0])], [np.ones(4), np.array([4.0, 3.0])]]
    # The squares of the second output's errors are 2 of 50.
    assert loss(expected, found) == {"sqnr_db": pytest.approx(10 * np.log10(25)), "cosine": pytest.approx(24 / 25)}
    assert loss(expected, expected)["sqnr_db"] > 100


def test_repeated_letters_count_once_and_blanks_are_dropped() -> None:
    assert decode_text(np.eye(4)[[0, 2, 2, 0, 2, 3, 3, 0]]) == (2, 2, 3)


def test_agreement_of_answers_and_overlap_of_masks() -> None:
    expected, found = [[np.array([1, 3])], [np.array([5, 4])]], [[np.array([0, 9])], [np.array([1, 2])]]
    assert equal_share(lambda outputs: int(outputs[0].argmax()))(expected, found) == 0.5
    assert overlap(lambda outputs: outputs[0] > 2)(expected, found) == 0.5


def test_the_nearest_sentence_is_not_the_sentence_itself() -> None:
    vectors = [[np.array([each])] for each in ([1.0, 0.0], [0.9, 0.1], [0.0, 1.0])]
    moved = [vectors[0], [np.array([[0.1, 0.9]])], vectors[2]]
    assert same_neighbor_share(vectors, vectors) == 1 and same_neighbor_share(vectors, moved) == pytest.approx(2 / 3)


def test_a_state_is_carried_from_step_to_step() -> None:
    held = [np.zeros(1), np.zeros(1)]
    engine = Engine(
        "sum", lambda: held[0] + held[1], lambda found: [found], lambda given: held.__setitem__(slice(2), given)
    )
    samples = [[np.array([number]), np.zeros(1)] for number in (1.0, 2.0, 3.0)]
    case = SimpleNamespace(carried={1: 0})
    outputs, given = outputs_of(engine, samples, case)
    assert [each[0].item() for each in outputs] == [1, 3, 6] and [each[1].item() for each in given] == [0, 1, 3]


def test_activations_of_a_quantized_file_are_converted_to_float32(tmp_path: Path) -> None:
    numbers: dict[str, Any] = {"scale": np.float32(0.5), "zero": np.uint8(0), "none": np.int8(0)}
    numbers["held"] = np.array([2, 4], np.int8)
    graph = """(float[2] x) => (float[2] y) {
        q = QuantizeLinear (x, scale, zero)
        data = DequantizeLinear (q, scale, zero)
        weight = DequantizeLinear (held, scale, none)
        y = Mul (data, weight)
    }"""
    path, x = tmp_path / "net.onnx", np.array([0.3, 0.2], np.float32)
    onnx.save(model_of(graph, **numbers), path)
    model = convert_to_float(lambda: ModelSpec("plain", f"onnx:{path}", {"x": (2,)}), tmp_path)
    np.testing.assert_allclose(onnxruntime_engine(Path(model.location), [x], 1).compute()[0], x * [1, 2])


def test_images_and_texts_of_both_parts_differ() -> None:
    assert not set(inputs.sentences(0)) & set(inputs.sentences(1)) and len(inputs.sentences(1)) > 100
    one, other = (inputs.lines(part, 2, 48, 320, 18) for part in (0, 1))
    assert one[0][0].shape == (1, 3, 48, 320) and -1 <= one[0][0].min() < one[0][0].max() <= 1
    assert not np.array_equal(one[0][0], other[0][0])
    assert [each[0].tolist() for each in inputs.lines(0, 2, 48, 320, 18)] == [each[0].tolist() for each in one]
