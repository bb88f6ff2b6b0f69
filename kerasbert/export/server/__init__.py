"""`kerasbert serve`: SavedModels behind TF Serving's REST and gRPC API. TensorFlow and tensorflow_text, no model code."""
