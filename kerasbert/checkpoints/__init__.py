"""Checkpoints: other people's in and out, and the model directory. TensorFlow is imported only where it is needed."""

from kerasbert.checkpoints.directory import (
    ModelInfo,
    ModelParts,
    head_names,
    load_encoder,
    load_weights,
    read_model_json,
    read_tensors,
    save_model,
    write_model,
)
from kerasbert.checkpoints.load import import_checkpoint
from kerasbert.checkpoints.save import export_checkpoint

__all__ = [
    "ModelInfo",
    "ModelParts",
    "export_checkpoint",
    "head_names",
    "import_checkpoint",
    "load_encoder",
    "load_weights",
    "read_model_json",
    "read_tensors",
    "save_model",
    "write_model",
]
