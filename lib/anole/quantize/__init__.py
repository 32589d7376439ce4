"""Post-training quantization of any model to an ONNX file with 8-bit convolutions and matrix products."""
