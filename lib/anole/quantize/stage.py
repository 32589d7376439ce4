"""The quantize stage: choose the calibration method, and the layers that stay in float32, by measured loss."""

from __future__ import annotations

import contextlib
import io
import logging
import math
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx

from anole.config.entries import ModelSpec
from anole.errors import ExtractError, cause
from anole.evaluate.engines import precision_of
from anole.extract.samples import read_samples
from anole.files import write_atomically
from anole.quantize import METHODS, TARGET_SQNR_DB
from anole.quantize.float_file import read_file, write_folded
from anole.quantize.loss import Loss, Sample, measure_loss
from anole.quantize.operators import OPERATORS, PRODUCTS, find_float_sums
from anole.text_format import pluralize

_log = logging.getLogger(__name__)

_MAX_FLOAT_SHARE = 0.1
"""Max share of layers left in float32."""

_MIN_GAIN_DB = 0.2
"""Min gain from each layer in float32."""

_MAX_KEPT_SAMPLES = 8
"""Max number of samples for methods that keep all values of all samples in memory."""


@dataclass(frozen=True)
class FloatLayer:
    """A layer that stays in float32.

    Attributes:
        before_db: the network's SQNR before this layer was left in float32; None if the user requested the layer.
    """

    name: str
    before_db: float | None = None


@dataclass(frozen=True)
class Quantized:
    """A quantized model.

    Attributes:
        method: the calibration method, see `METHODS`.
        loss: the loss compared with the float32 model on the samples.
    """

    method: str
    floats: tuple[FloatLayer, ...]
    loss: Loss


def quantize_model(
    model: ModelSpec,
    output: Path,
    method: str | None = None,
    floats: Sequence[str] = (),
    target_db: float = TARGET_SQNR_DB,
) -> Quantized | None:
    """Write a model as a quantized ONNX file in QDQ form; copy an already quantized model and return None.

    Weights have per-channel scales, and activations have one scale and zero point per tensor. If no method is given,
    the one with the smallest loss is chosen. While the SQNR is below `target_db`, the layer with the largest loss is
    left in float32, up to a tenth of the layers and as long as that helps.

    Args:
        model: the model, which is calibrated on its own samples, or on random ones.
        output: the file to write.
        method: one of `METHODS`, or None.
        floats: names of layers that must stay in float32.
        target_db: the sufficient signal-to-noise ratio (SQNR), in decibels.

    Raises:
        ExtractError: the model cannot be loaded, exported or quantized, or it has no layer with such a name.
        BuildError: the model's samples do not fit its inputs.
    """
    proto, inputs = read_file(model)
    if precision_of(node.op_type for node in proto.graph.node) != "float32":
        _log.info("%s: is already quantized", model.name)
        write_atomically(output, proto.SerializeToString())
        return None
    names = [info.name for info in inputs]
    samples = [dict(zip(names, sample, strict=True)) for sample in read_samples(model, inputs)]
    with tempfile.TemporaryDirectory() as scratch:
        exact = Path(scratch, "float.onnx")
        write_folded(model, proto, exact)
        layers = [node.name for node in onnx.load(exact).graph.node if node.op_type in PRODUCTS]
        if unknown := sorted(set(floats) - set(layers)):
            raise ExtractError(f"model {model.name}: has no layer {unknown[0]!r}; it has {', '.join(layers) or 'none'}")
        limit = len(floats) + math.ceil(_MAX_FLOAT_SHARE * len(layers))
        try:
            best, content = _search(exact, samples, [method] if method else list(METHODS), floats, target_db, limit)
        except Exception as error:
            raise ExtractError(f"model {model.name}: cannot be quantized: {cause(error)}") from error
    write_atomically(output, content)
    float_layers = pluralize(len(best.floats), "layer")
    _log.info("%s: %.1f dB with %s, %s in float32", model.name, best.loss.sqnr_db, best.method, float_layers)
    return best


def _search(
    exact: Path, samples: Sequence[Sample], methods: Sequence[str], floats: Sequence[str], target_db: float, limit: int
) -> tuple[Quantized, bytes]:
    """Return the best quantized model with at most `limit` layers in float32, and its file's content."""
    float_layers = [FloatLayer(name) for name in floats]
    results: dict[str, tuple[Loss, bytes]] = {}
    for method_ in methods:
        try:
            results[method_] = _quantize(exact, samples, method_, floats)
        except ValueError as error:
            # Histograms fail on a mask with huge values, even though it is not quantized.
            if method_ == methods[-1] and not results:
                raise
            _log.info("method %s is skipped: %s", method_, cause(error))
    method = max(results, key=lambda method_: results[method_][0].sqnr_db)
    loss, content = results[method]
    best = Quantized(method, tuple(float_layers), loss), content
    while loss.sqnr_db < target_db and len(float_layers) < limit and loss.layers:
        worst = max(loss.layers, key=lambda layer: layer.lost_db)
        float_layers.append(FloatLayer(worst.name, loss.sqnr_db))
        loss, content = _quantize(exact, samples, method, [layer.name for layer in float_layers])
        gain_db, n_added = loss.sqnr_db - best[0].loss.sqnr_db, len(float_layers) - len(best[0].floats)
        if gain_db > _MIN_GAIN_DB * n_added:
            best = Quantized(method, tuple(float_layers), loss), content
    return best


def _quantize(exact: Path, samples: Sequence[Sample], method: str, floats: Sequence[str]) -> tuple[Loss, bytes]:
    """Quantize all layers except `floats` with ONNX Runtime, and measure the loss."""
    from onnxruntime.quantization import (
        CalibrationDataReader,
        CalibrationMethod,
        QuantFormat,
        QuantType,
        quantize_static,
    )

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self._remaining = iter(samples if method == "min-max" else samples[:_MAX_KEPT_SAMPLES])

        def get_next(self) -> Sample | None:
            """Return the next sample."""
            return next(self._remaining, None)

    proto, path = onnx.load(exact), exact.with_name("quantized.onnx")
    with contextlib.redirect_stdout(io.StringIO()), _silence_quantizer():
        quantize_static(
            *(str(exact), str(path), Reader()),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            op_types_to_quantize=OPERATORS,
            nodes_to_exclude=[*floats, *find_float_sums(proto)],
            calibrate_method=getattr(CalibrationMethod, METHODS[method]),
            extra_options={"MatMulConstBOnly": True, "OpTypesToExcludeOutputQuantization": list(PRODUCTS)},
        )
    return measure_loss(proto, onnx.load(path), samples), path.read_bytes()


@contextlib.contextmanager
def _silence_quantizer() -> Iterator[None]:
    """Silence warnings of ONNX Runtime's quantizer, which recommend steps that are already done."""
    previous = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(previous)
