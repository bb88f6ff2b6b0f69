"""The commands of `kerasbert-mobile` that need TensorFlow, which running one imports; the device's stand in `mobile/cli.py`."""
