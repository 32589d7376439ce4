"""Post-training quantization of any model to an ONNX file with 8-bit convolutions and matrix products."""

METHODS = {"min-max": "MinMax", "percentile": "Percentile", "entropy": "Entropy"}
"""Methods that choose a value's range from calibration samples, with their names in ONNX Runtime."""

TARGET_SQNR_DB = 30.0
"""The signal-to-noise ratio at which no further layers are left in float32."""
