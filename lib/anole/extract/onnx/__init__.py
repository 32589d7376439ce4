"""Import of models from ONNX files."""
