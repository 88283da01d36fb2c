"""Embedders: the multilingual one that comes as a wheel, any ONNX folder, and a fake."""
