"""Keras model -> .tflite: signatures of several lengths that share the weights, never a Flex operator."""

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from kerasbert.captured_output import captured
from kerasbert.errors import InputError
from kerasbert.inputs import TEXT, Input
from kerasbert.storage import scratch
from ..quantize.schemes import SCHEMES
from . import buckets, repack

if TYPE_CHECKING:
    import keras

Specs = Mapping[str, tuple[Sequence[int | None], str]]  # input -> its shape and dtype


def quantization(name: str | None) -> str:
    """The name of a quantization, or the error that lists them."""
    return SCHEMES.name("float32" if name is None else str(name))


def convert(
    model: "keras.Model",
    function: Callable[[dict], dict],
    signatures: dict[int | None, str],
    inputs: Sequence[Input] = TEXT,
    quantize: str = "dynamic_int8",
) -> bytes:
    """The bytes of a .tflite that computes `function` at the lengths of its signatures.

    Args:
        model: built Keras model that owns the weights.
        function: dict of int32 [1, S], or by the inputs' axes -> dict of float32; calls `model`.
        signatures: dict of length S -> name of the signature; S None, alone, is a length chosen at run time.
        inputs: what the dict and the signature hold, by these names.
        quantize: str, a scheme that the converter makes. `dynamic_int8`: int8 weights with a scale per output channel (embedding
            tables: one scale), float activations quantized per token while it runs. `fp16`: weights in half precision.
    Raises:
        InputError: an operator has no TFLite form; names it and the layer that asked for it.
    """
    return repack.slim(named(model, function, signatures, inputs, quantization(quantize)))


def named(
    model: "keras.Model", function: Callable, signatures: dict[int | None, str], inputs: Sequence[Input], quantize: str
) -> bytes:
    """The same before `slim`: tensors have the names of the layers that made them."""
    by_length = {length: name for length, name in signatures.items() if length is not None}
    if len(by_length) > 2:
        sample: dict[int | None, str] = {length: by_length[length] for length in buckets.sample(by_length)}
        data = buckets.add(_file(model, function, sample, inputs, quantize), by_length)
        if data is not None:
            return data
    return _file(model, function, signatures, inputs, quantize)


def _file(
    model: "keras.Model", function: Callable, signatures: dict[int | None, str], inputs: Sequence[Input], quantize: str
) -> bytes:
    specs = {
        name: {each.name: (each.shape(length), each.dtype) for each in inputs} for length, name in signatures.items()
    }
    with scratch.folder() as directory, captured() as log:
        save(model, {name: (function, spec) for name, spec in specs.items()}, directory)
        return converted(directory, list(specs), quantize, log)


def save(model: "keras.Model", functions: Mapping[str, tuple[Callable, Specs]], directory: str) -> None:
    """A SavedModel for the converter, which loses the weights of a Keras 3 model that comes to it in another way.

    Args:
        model: that owns the weights. functions: of each signature, and what it takes.
    """
    import tensorflow as tf

    saved, traced = tf.Module(), {}
    saved.weights = [weight.value for weight in model.weights]
    for name, (function, taken) in functions.items():
        spec = {each: tf.TensorSpec(shape, dtype, name=each) for each, (shape, dtype) in taken.items()}
        # a new callable each time: one that was traced already would give its first length
        traced[name] = tf.function(functools.partial(function), [spec], autograph=False).get_concrete_function()
    tf.saved_model.save(saved, directory, traced)


def converted(directory: str, names: list[str], quantize: str, log: Callable[[], str]) -> bytes:
    """Signatures of a SavedModel -> the bytes of a .tflite. Raises InputError as `convert`."""
    import tensorflow as tf

    converter = tf.lite.TFLiteConverter.from_saved_model(directory, signature_keys=names)
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
    weights = SCHEMES[quantize].weights
    if weights != "float32":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if weights == "float16":
        converter.target_spec.supported_types = [tf.float16]
    try:
        data = converter.convert()
    except Exception as error:
        raise _explained(error, log()) from error
    flex = [name for name in repack.operators(data) if name.startswith("Flex")]
    if flex:
        raise InputError(
            f"the model needs {', '.join(flex)}, expected TFLite's own operators only: no phone runtime has them"
        )
    return data


def _explained(error: Exception, log: str) -> InputError:
    """The converter's pages of text in one line: which operators, asked for by which layers."""
    text = f"{error}\n{log}"
    wanted = sorted({name.removeprefix("tf.") for name in re.findall(r"error: '(tf\.\w+)' op is neither", text)})
    layers = sorted({_layer(place) for place in re.findall(r"error: loc\(.*", text)} - {""})
    if not wanted:
        first = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        return InputError(f"the TFLite converter refused the model: {first[:300]}")
    asked = f", asked for by {', '.join(layers)}" if layers else ""
    return InputError(
        f"no TFLite operator for {', '.join(wanted)}{asked}. A .tflite of kerasbert never needs Flex (TensorFlow inside "
        "the app): write that layer with operators that TFLite has"
    )


def _layer(place: str) -> str:
    """The innermost scope of an MLIR location: `model/block_0/Foo@...` -> `model/block_0`."""
    paths = re.findall(r'"([^"@]+)@', place) or re.findall(r'"([^"]+)"', place)
    named = [path for path in paths if "/" in path and not path.startswith(("Stateful", "Partitioned"))]
    return named[-1].rsplit("/", 1)[0] if named else ""
