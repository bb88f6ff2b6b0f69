"""Checkpoints of TensorFlow 1 with named tensors, as Google released them: bert_config.json and bert_model.ckpt, in and out."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from kerasbert import progress, registry
from kerasbert.checkpoints import config as configs
from kerasbert.checkpoints.fit import NamedFormat
from kerasbert.checkpoints.formats import ImportOptions, Opened
from kerasbert.checkpoints.write import named, write_vocabulary
from kerasbert.errors import InputError
from kerasbert.storage import files
from kerasbert.text.wordpiece import TEMPLATE as BERT

# what TensorFlow's reader raises for damage: its C++ status codes come as all of these
_TF_ERRORS = (ValueError, RuntimeError, IndexError, KeyError, OSError, NotImplementedError)


class TF1:
    """A TensorFlow checkpoint whose tensors have names (`bert/encoder/layer_0/...`)."""

    def __init__(self, prefix: Path) -> None:
        import tensorflow as tf

        self._tf, self.prefix = tf, prefix
        try:
            self._reader = tf.train.load_checkpoint(str(prefix))
            self._shapes = self._reader.get_variable_to_shape_map()
        except (tf.errors.OpError, *_TF_ERRORS) as error:
            raise InputError(f"cannot read the TensorFlow checkpoint {prefix}: {_first_line(error)}") from error
        if "_CHECKPOINTABLE_OBJECT_GRAPH" in self._shapes:
            raise InputError(f"{prefix} is a TF2 object checkpoint, expected TF1 with named tensors (bert/encoder/...)")

    def names(self) -> list[str]:
        """Names of all tensors, sorted."""
        return sorted(self._shapes)

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of one tensor."""
        return tuple(self._shapes[name])

    def read(self, name: str) -> np.ndarray:
        """One tensor as float32."""
        try:
            values = self._reader.get_tensor(name)
        except (self._tf.errors.OpError, *_TF_ERRORS) as error:
            raise InputError(f"cannot read {name} of {self.prefix}: {_first_line(error)}") from error
        if not np.issubdtype(values.dtype, np.floating) and values.dtype.name != "bfloat16":
            raise InputError(f"{name} of {self.prefix} is {values.dtype.name}, expected floats")
        return values.astype(np.float32, copy=False)

    def stored(self, name: str) -> np.ndarray:
        """One tensor as numbers of any type."""
        return self._reader.get_tensor(name)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _prefix(path: Path) -> Path:
    if path.is_dir():
        found = sorted(path.glob("*.index"))
        if len(found) > 1 and path / "bert_model.ckpt.index" in found:
            found = [path / "bert_model.ckpt.index"]
        if len(found) != 1:
            names = ", ".join(file.name for file in found) or "none"
            raise InputError(
                f"{path} has these TensorFlow checkpoints: {names}. Expected one: give the path of one .index file"
            )
        path = found[0]
    prefix = path.with_name(path.name.removesuffix(".index"))
    if not prefix.with_name(prefix.name + ".index").is_file():
        raise InputError(f"no TensorFlow checkpoint at {prefix} (no file {prefix.name}.index)")
    return prefix


def write(folder: Path, config: dict, shapes: dict, read: Callable[[str], np.ndarray]) -> None:
    """Write the configuration and the tensors."""
    import tensorflow as tf

    files.write_json(folder / "bert_config.json", dict(sorted(config.items())))
    names = sorted(shapes)
    try:
        with tf.device("CPU"):
            tf.raw_ops.SaveV2(
                prefix=str(folder / "bert_model.ckpt"),
                tensor_names=names,
                shape_and_slices=[""] * len(names),
                tensors=[tf.constant(read(name)) for name in names],
            )
    except tf.errors.OpError as error:
        reason = str(error.message).partition(" [Op:")[0].rpartition("; ")[2]
        raise InputError(f"cannot write the TensorFlow checkpoint: {reason}. Nothing was left there") from error


class TensorFlow1(NamedFormat):
    """A folder with a checkpoint, its prefix or its .index file."""

    names = "tf1"
    title = "a TensorFlow 1 checkpoint"

    def looks_like(self, path: Path) -> bool:
        """Whether there is the .index file of one."""
        return Path(f"{path}.index").is_file() or path.suffix == ".index" or any(path.glob("*.index"))

    def open(self, path: Path, asked: ImportOptions) -> Opened:
        """Open it."""
        prefix = _prefix(path)
        return Opened(path, prefix.parent, TF1(prefix), configs.read_config(prefix.parent))

    def family_of(self, opened: Opened) -> str | None:
        """The family that alone computes what a switch of the configuration turns on: use_relative_position is NEZHA's."""
        config, families = opened.config or {}, registry.families().values()
        fixed = [(each.name, each.names[self.names].fixed) for each in families if self.names in each.names]
        switches = ((name, key) for name, values in fixed for key, value in values.items() if value is True)
        return next((name for name, key in switches if config.get(key) is True), None)

    def write(self, run: Path, path: str | os.PathLike, overwrite: bool) -> None:
        """Write bert_config.json, bert_model.ckpt and the vocabulary."""
        found = named(self.names, run, classes=False)
        if found.tokenizer is not None and found.tokenizer.template != BERT:
            template = " | ".join(found.tokenizer.template)
            progress.say(f"{run}: a tf1 checkpoint is a vocabulary alone: the template {template} is left out")
        with files.new_directory(path, overwrite) as folder:
            write(folder, found.config, *found.whole())
            if found.tokenizer is not None:
                write_vocabulary(folder, found.tokenizer)


registry.register_format("tf1", TensorFlow1())
