"""Post-training quantization: any model as an ONNX file whose products are of 8 bits, and what it loses."""
