"""What stands behind the Transformer in a folder of sentence-transformers, Pooling and Dense <-> options of a vector's task.

Release 6.2: sentence_transformer/modules/pooling.py, base/modules/dense.py.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from kerasbert.checkpoints import readers
from kerasbert.checkpoints.safetensors import write_safetensors
from kerasbert.errors import InputError, unknown
from kerasbert.poolings import readouts_of
from kerasbert.storage import files
from kerasbert.storage.json_view import Json, JsonMap

POOLINGS = {
    "cls_token": "first",
    "max_tokens": "max",
    "mean_tokens": "mean",
    "mean_sqrt_len_tokens": "mean_sqrt_len",
    "weightedmean_tokens": "weighted_mean",
    "lasttoken": "last",
}
"""Their `pooling_mode_...` -> the option `pooling` of vectors, in the order in which several stand side by side."""
MODES = {mode.removesuffix("_tokens").removesuffix("_token"): name for mode, name in POOLINGS.items()}
ACTIVATIONS = {
    "linear.Identity": "",
    "activation.Tanh": "tanh",
    "activation.ReLU": "relu",
    "activation.GELU": "gelu",
    "activation.SiLU": "swish",
}
"""torch.nn.modules.... -> the activation of a layer behind the pooling."""
TORCH = "torch.nn.modules."


def pooling(content: JsonMap, where: Path, hidden: int) -> str:
    """The option `pooling` of a Pooling's configuration.

    Raises:
        InputError: another pooling, or one of vectors of another width than H.
    """
    legacy = [mode for mode in POOLINGS if content.get(f"pooling_mode_{mode}")] or ["mean_tokens"]
    said = content.get("pooling_mode")
    chosen = legacy if said is None else [str(each) for each in (said if isinstance(said, list) else [said])]
    ours = [POOLINGS.get(mode, MODES.get(mode)) for mode in chosen]
    if None in ours or not ours:
        raise InputError(f"{where} pools by {' and '.join(chosen) or 'nothing'}, expected one of {', '.join(POOLINGS)}")
    for key in ("word_embedding_dimension", "embedding_dimension"):
        if content.get(key) not in (None, hidden):
            raise InputError(f"{where} is for vectors of {content.get(key)}, the model's have {hidden}")
    return "+".join(str(each) for each in ours)


def written_pooling(chosen: str, hidden: int, include_prompt: bool) -> Json:
    """The inverse of `pooling`, as releases since 2019 read it; an order that is not theirs in the words of release 6."""
    names = readouts_of(chosen)
    more = {"word_embedding_dimension": hidden, "include_prompt": include_prompt}
    if list(names) != [name for name in POOLINGS.values() if name in names]:
        words = {
            name: mode if name == "mean_sqrt_len" else short for (short, name), mode in zip(MODES.items(), POOLINGS)
        }
        return more | {"pooling_mode": [words[name] for name in names]}
    return more | {f"pooling_mode_{mode}": name in names for mode, name in POOLINGS.items()}


def dense(content: JsonMap, where: Path, width: int) -> Json:
    """A layer of the option `dense` of a Dense's configuration; `width`: the numbers that it reads.

    Raises:
        InputError: something that is not computed here, by its name.
    """
    for key, wanted in {"module_input_name": "sentence_embedding", "module_output_name": "sentence_embedding"}.items():
        if (said := content.get(key) or wanted) != wanted:
            raise InputError(f"{where} has {key} {said!r}, expected {wanted!r}: no such model here")
    if content.get("use_residual"):
        raise InputError(f"{where} has use_residual, which is not computed here: no such model here")
    if content.get("in_features") != width:
        raise InputError(f"{where} reads vectors of {content.get('in_features')}, it gets {width}")
    size, bias = content.get("out_features"), content.get("bias", True)
    if type(size) is not int or size < 1 or type(bias) is not bool:
        raise InputError(f"{where} has out_features {size!r} and bias {bias!r}, expected a whole number and a bool")
    said = content.get("activation_function", f"{TORCH}activation.Tanh")  # their default
    name = ".".join(str(said).split(".")[-2:])
    if not str(said).startswith("torch.nn.") or name not in ACTIVATIONS:
        known = [TORCH + each for each in ACTIVATIONS]
        raise unknown(f"activation of {where},", str(said), known, ", ".join(known))
    return {"width": size, "activation": ACTIVATIONS[name], "bias": bias}


def _shapes(layer: JsonMap, width: int) -> dict[str, tuple[int, ...]]:
    """Their tensors of a layer that reads so many numbers."""
    return {"linear.weight": (layer["width"], width)} | ({"linear.bias": (layer["width"],)} if layer["bias"] else {})


def read_dense(folder: Path, layer: Mapping[str, object], width: int, allow_pickle: bool) -> dict[str, np.ndarray]:
    """The weights of a Dense: kernel [width, layer's width] and perhaps bias.

    Raises:
        InputError: other tensors, shapes, numbers that are not finite, or a pickle without consent.
    """
    tensors, _ = readers.open_hf(folder, allow_pickle)
    wanted = _shapes(layer, width)
    held = {name: tuple(tensors.shape(name)) for name in tensors.names()}
    if held != wanted:
        raise InputError(f"{folder} holds the tensors {held}, expected {wanted}")
    read = {name: np.asarray(tensors.read(name), "float32") for name in wanted}
    if not all(np.isfinite(values).all() for values in read.values()):
        raise InputError(f"{folder} holds values that are not finite: the checkpoint is damaged")
    ours = {"kernel": np.ascontiguousarray(read["linear.weight"].T)}
    return ours | ({"bias": read["linear.bias"]} if layer["bias"] else {})


def write_dense(folder: Path, layer: JsonMap, width: int, read: Callable[[str], np.ndarray]) -> None:
    """The inverse of `dense` and `read_dense`, into an existing folder; `read`: the kernel or the bias by name."""
    names = {ours: theirs for theirs, ours in ACTIVATIONS.items()}
    if layer["activation"] not in names:
        raise InputError(
            f"a Dense of theirs is written without the activation {layer['activation']!r}: keep the directory"
        )
    about = {"in_features": width, "out_features": layer["width"], "bias": layer["bias"]}
    files.write_json(folder / "config.json", about | {"activation_function": TORCH + names[layer["activation"]]})

    def theirs(name: str) -> np.ndarray:
        return read("kernel").T if name == "linear.weight" else read("bias")

    write_safetensors(folder / "model.safetensors", _shapes(layer, width), theirs, metadata={"format": "pt"})
