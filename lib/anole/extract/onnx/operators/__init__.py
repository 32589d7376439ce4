"""Converters for ONNX operators that TVM's importer does not support or gets wrong."""

from __future__ import annotations

from anole.extract.onnx.operators import (
    constants,
    convolution,
    elementwise,
    indexing,
    pooling,
    qlinear,
    quantization,
    recurrent,
    reductions,
    resize,
    spectrum,
)
from anole.extract.onnx.operators.call import Converter

_MODULES = (
    *(constants, convolution, elementwise, indexing, pooling),
    *(quantization, qlinear, recurrent, reductions, resize, spectrum),
)
CONVERTERS: dict[str, Converter] = {name: f for module in _MODULES for name, f in module.CONVERTERS.items()}
"""Converters by operator type; they take precedence over TVM's."""
