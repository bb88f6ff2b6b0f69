"""Tables of a .tflite in other forms: codes of a product quantization, rows of positions."""
