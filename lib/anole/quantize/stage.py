"""The quantize stage: chooses how values are rounded to 8 bits, and which layers stay in float32, by measured loss."""

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
from anole.quantize.float_file import read_file, write_folded
from anole.quantize.loss import Loss, Sample, measure_loss
from anole.quantize.methods import METHODS, TARGET_SQNR_DB
from anole.quantize.operators import OPERATORS, PRODUCTS, float_sums
from anole.text_format import counted

_log = logging.getLogger(__name__)

_MAX_FLOAT_SHARE = 0.1
"""The share of the layers that may be left in float32."""

_MIN_GAIN_DB = 0.2
"""What each layer in float32 must gain, in decibel."""

_MAX_KEPT_SAMPLES = 8
"""Samples for methods that keep all values of all samples in memory."""


@dataclass(frozen=True)
class FloatLayer:
    """A layer that stays in float32.

    Attributes:
        before_db: the ratio in decibel while it did not; None if it was asked for.
    """

    name: str
    before_db: float | None = None


@dataclass(frozen=True)
class Quantized:
    """A quantized model.

    Attributes:
        method: how ranges were chosen.
        loss: what is lost, beside the model in float32 on the samples.
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
    """Write a model as a quantized ONNX file in QDQ form; returns None, and copies, what is quantized already.

    Weights have a scale for each filter, and values one scale and zero point. Without a method, the one is taken that
    loses least. While the ratio is below the least one, the layer that loses most is left in float32, up to a tenth of
    the layers and as long as that helps.

    Args:
        model: the model; its calibration samples, or random ones, decide.
        output: where the file is written.
        method: one of `METHODS`, or None.
        floats: names of layers that stay in float32 in any case.
        target_db: the signal-to-noise ratio that is good enough, in decibel.

    Raises:
        ExtractError: the model cannot be loaded, exported or quantized, or it has no such layers.
        BuildError: its samples do not fit.
    """
    proto, inputs = read_file(model)
    if precision_of(node.op_type for node in proto.graph.node) != "float32":
        _log.info("%s: is quantized already", model.name)
        write_atomically(output, proto.SerializeToString())
        return None
    names = [info.name for info in inputs]
    samples = [dict(zip(names, each, strict=True)) for each in read_samples(model, inputs)]
    with tempfile.TemporaryDirectory() as scratch:
        exact = Path(scratch, "float.onnx")
        write_folded(model, proto, exact)
        layers = [node.name for node in onnx.load(exact).graph.node if node.op_type in PRODUCTS]
        if unknown := sorted(set(floats) - set(layers)):
            raise ExtractError(f"model {model.name}: has no layer {unknown[0]!r}; it has {', '.join(layers) or 'none'}")
        most = len(floats) + math.ceil(_MAX_FLOAT_SHARE * len(layers))
        try:
            found, content = _search(exact, samples, [method] if method else list(METHODS), floats, target_db, most)
        except Exception as error:
            raise ExtractError(f"model {model.name}: cannot be quantized: {cause(error)}") from error
    write_atomically(output, content)
    floating = counted(len(found.floats), "layer")
    _log.info("%s: %.1f dB by %s, %s in float32", model.name, found.loss.sqnr_db, found.method, floating)
    return found


def _search(
    exact: Path, samples: Sequence[Sample], methods: Sequence[str], floats: Sequence[str], target_db: float, most: int
) -> tuple[Quantized, bytes]:
    """Return the best quantized model with at most so many layers in float32, and its file's content."""
    kept = [FloatLayer(name) for name in floats]
    tried: dict[str, tuple[Loss, bytes]] = {}
    for each in methods:
        try:
            tried[each] = _try(exact, samples, each, floats)
        except ValueError as error:
            # A mask of huge numbers, though it is not quantized, has no histogram.
            if each == methods[-1] and not tried:
                raise
            _log.info("%s is left out: %s", each, cause(error))
    method = max(tried, key=lambda each: tried[each][0].sqnr_db)
    loss, content = tried[method]
    best = Quantized(method, tuple(kept), loss), content
    while loss.sqnr_db < target_db and len(kept) < most and loss.layers:
        worst = max(loss.layers, key=lambda layer: layer.lost_db)
        kept.append(FloatLayer(worst.name, loss.sqnr_db))
        loss, content = _try(exact, samples, method, [each.name for each in kept])
        gain_db, more = loss.sqnr_db - best[0].loss.sqnr_db, len(kept) - len(best[0].floats)
        if gain_db > _MIN_GAIN_DB * more:
            best = Quantized(method, tuple(kept), loss), content
    return best


def _try(exact: Path, samples: Sequence[Sample], method: str, floats: Sequence[str]) -> tuple[Loss, bytes]:
    """Quantize with ONNX Runtime, all layers but some, and measure what is lost."""
    from onnxruntime.quantization import (
        CalibrationDataReader,
        CalibrationMethod,
        QuantFormat,
        QuantType,
        quantize_static,
    )

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self._left = iter(samples if method == "min-max" else samples[:_MAX_KEPT_SAMPLES])

        def get_next(self) -> Sample | None:
            """Return the next sample."""
            return next(self._left, None)

    file, written = onnx.load(exact), exact.with_name("quantized.onnx")
    with contextlib.redirect_stdout(io.StringIO()), _quiet():
        quantize_static(
            *(str(exact), str(written), Reader()),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            op_types_to_quantize=OPERATORS,
            nodes_to_exclude=[*floats, *float_sums(file)],
            calibrate_method=getattr(CalibrationMethod, METHODS[method]),
            extra_options={"MatMulConstBOnly": True, "OpTypesToExcludeOutputQuantization": list(PRODUCTS)},
        )
    return measure_loss(file, onnx.load(written), samples), written.read_bytes()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Leave out warnings of ONNX Runtime's quantizer, which advises what was done already."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
