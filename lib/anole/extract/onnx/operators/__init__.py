"""Converters for ONNX operators that TVM's importer lacks or gets wrong."""

from __future__ import annotations

from anole.extract.onnx.operators.call import Converter

CONVERTERS: dict[str, Converter] = {}
"""Converters by the operator's type; they precede those of TVM."""
