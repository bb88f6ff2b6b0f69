"""From a model directory to a .tflite that was compared with it: `compress`, plans of several stages, ledger, benchmark."""
