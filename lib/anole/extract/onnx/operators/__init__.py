"""Converters for ONNX operators that TVM's importer lacks or gets wrong."""

from __future__ import annotations

from anole.extract.onnx.operators import (
    constants,
    convolution,
    elementwise,
    indexing,
    pooling,
    quantization,
    recurrent,
    reductions,
    resize,
    spectrum,
)
from anole.extract.onnx.operators.call import Converter

CONVERTERS: dict[str, Converter] = {
    **constants.CONVERTERS,
    **convolution.CONVERTERS,
    **elementwise.CONVERTERS,
    **indexing.CONVERTERS,
    **pooling.CONVERTERS,
    **quantization.CONVERTERS,
    **recurrent.CONVERTERS,
    **reductions.CONVERTERS,
    **resize.CONVERTERS,
    **spectrum.CONVERTERS,
}
"""Converters by the operator's type; they precede those of TVM."""
