"""Keras layers of the encoders, each file one idea. Written in keras.ops; `backend.py` alone may import TensorFlow."""
