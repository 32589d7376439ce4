"""The quantise stage: chooses how values are rounded to 8 bits, and which layers stay in float32, by measured loss."""

from __future__ import annotations

import contextlib
import io
import logging
import shutil
import tempfile
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx

from anole.declared.entries import ModelSpec
from anole.errors import ExtractError, cause
from anole.extract.samples import read_samples
from anole.quantise.float_file import write_float_file
from anole.quantise.loss import PRODUCTS, Loss, Sample, measure_loss
from anole.quantise.methods import LEAST_DB, METHODS

_log = logging.getLogger(__name__)

_MOST_FLOAT = 0.1
"""The share of the layers that may be left in float32."""

_LEAST_GAIN_DB = 0.2
"""What each layer in float32 must gain, in decibel."""

_MOST_KEPT = 8
"""Samples for methods that keep all values of all samples in memory."""

_MOVING = ("Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Split", "Slice", "Pad", "Resize")
_OPERATORS = [
    *(*PRODUCTS, "Add", "Mul", "Concat", "Relu", "Clip", "MaxPool", "AveragePool", "GlobalAveragePool"),
    *_MOVING,
]
"""What reads and writes 8 bits. What is delicate stays in float32: exponentials, norms, and products of two values."""


@dataclass(frozen=True)
class Quantised:
    """A quantised model.

    Attributes:
        method: how ranges were chosen.
        floats: the layers that were left in float32, with the ratio in decibel that each was left at.
        loss: what is lost, beside the model in float32 on the samples.
    """

    method: str
    floats: tuple[tuple[str, float], ...]
    loss: Loss


def quantise_model(
    model: ModelSpec, output: Path, method: str | None = None, floats: Sequence[str] = (), least_db: float = LEAST_DB
) -> Quantised | None:
    """Writes a model as a quantised ONNX file in QDQ form; returns None, and copies, what is quantised already.

    Weights have a scale for each filter, and values one scale and zero point. Without a method, the one is taken that
    loses least. While the ratio is below the least one, the layer that loses most is left in float32, up to a tenth of
    the layers and as long as that helps.

    Args:
        model: the model; its calibration samples, or random ones, decide.
        output: where the file is written.
        method: one of `METHODS`, or None.
        floats: names of layers that stay in float32 in any case.
        least_db: the signal-to-noise ratio that is good enough, in decibel.

    Raises:
        ExtractError: the model cannot be loaded or exported, its samples do not fit, or it has no such layers.
    """
    with tempfile.TemporaryDirectory() as scratch:
        exact = Path(scratch, "float.onnx")
        inputs = write_float_file(model, exact)
        proto = onnx.load(exact)
        output.parent.mkdir(parents=True, exist_ok=True)
        if any("Quantize" in node.op_type or "Integer" in node.op_type for node in proto.graph.node):
            _log.info("%s: is quantised already", model.name)
            shutil.copy(exact, output)
            return None
        layers = [node.name for node in proto.graph.node if node.op_type in PRODUCTS]
        if unknown := sorted(set(floats) - set(layers)):
            raise ExtractError(f"model {model.name}: has no layer {unknown[0]!r}; it has {', '.join(layers) or 'none'}")
        names = [info.name for info in inputs]
        samples = [dict(zip(names, each, strict=True)) for each in read_samples(model, inputs)]
        try:
            best = _search(exact, samples, method, tuple(floats), least_db, len(layers))
        except Exception as error:
            raise ExtractError(f"model {model.name}: cannot be quantised: {cause(error)}") from error
        (found, written) = best
        output.write_bytes(written)
    _log.info(
        "%s: %.1f dB by %s, %d layers in float32", model.name, found.loss.sqnr_db, found.method, len(found.floats)
    )
    return found


def _search(
    exact: Path, samples: Sequence[Sample], method: str | None, floats: tuple[str, ...], least_db: float, n_layers: int
) -> tuple[Quantised, bytes]:
    """Returns the best quantised model that was found, and its file's content."""
    tried = [_try(exact, samples, each, floats) for each in ([method] if method else METHODS)]
    best = max(tried, key=lambda each: each[0].loss.sqnr_db)
    left = [(name, best[0].loss.sqnr_db) for name in floats]
    now = best
    while now[0].loss.sqnr_db < least_db and len(left) < len(floats) + _MOST_FLOAT * n_layers and now[0].loss.layers:
        worst = max(now[0].loss.layers, key=lambda layer: layer.lost_db)
        left.append((worst.name, now[0].loss.sqnr_db))
        now = _try(exact, samples, best[0].method, [name for name, _ in left])
        if now[0].loss.sqnr_db > best[0].loss.sqnr_db + _LEAST_GAIN_DB * (len(left) - len(best[0].floats)):
            best = (Quantised(now[0].method, tuple(left), now[0].loss), now[1])
    return best


def _try(exact: Path, samples: Sequence[Sample], method: str, floats: Collection[str]) -> tuple[Quantised, bytes]:
    """Quantises with ONNX Runtime, all layers but some, and measures what is lost."""
    from onnxruntime.quantization import (
        CalibrationDataReader,
        CalibrationMethod,
        QuantFormat,
        QuantType,
        quantize_static,
    )

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self._left = iter(samples if method == "min-max" else samples[:_MOST_KEPT])

        def get_next(self) -> Sample | None:
            """Returns the next sample."""
            return next(self._left, None)

    written = exact.with_name("quantised.onnx")
    with contextlib.redirect_stdout(io.StringIO()), _quiet():
        quantize_static(
            *(str(exact), str(written), Reader()),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            op_types_to_quantize=_OPERATORS,
            nodes_to_exclude=list(floats),
            calibrate_method=getattr(CalibrationMethod, METHODS[method]),
            extra_options={"MatMulConstBOnly": True},
        )
    loss = measure_loss(onnx.load(exact), onnx.load(written), samples)
    return Quantised(method, tuple((name, loss.sqnr_db) for name in floats), loss), written.read_bytes()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Leaves out warnings of ONNX Runtime's quantiser, which advises what was done already."""
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
