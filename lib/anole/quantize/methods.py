"""What a user may choose of how a model is quantized; needs no library."""

from __future__ import annotations

METHODS = {"min-max": "MinMax", "percentile": "Percentile", "entropy": "Entropy"}
"""How the range of a value follows from what samples show of it, and ONNX Runtime's names for that."""

TARGET_SQNR_DB = 30.0
"""The signal-to-noise ratio from which on no layer is left in float32."""
