"""Attention of a .tflite in the form that is fastest where it runs."""
