"""Post-training quantization: any model as an ONNX file with 8-bit products, and its loss."""
