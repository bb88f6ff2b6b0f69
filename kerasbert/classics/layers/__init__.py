"""Keras layers that only these families have. Written in keras.ops."""
