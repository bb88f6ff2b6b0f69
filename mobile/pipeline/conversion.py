"""What a .tflite of a model will be, and its bytes."""

import dataclasses
import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from kerasbert import inputs
from kerasbert.export.bundle import Bundle
from kerasbert.layers.naming import names as weight_names
from kerasbert.storage.json_view import Json
from kerasbert.tasks import predict
from kerasbert.tasks.base import kind_of
from kerasbert.text import Tokenizer
from .. import mediapipe, targets
from ..model_and_texts import about
from ..options import CompressConfig
from ..quantize import aware_training, budget, forms
from ..quantize.schemes import LITERT, SCHEMES
from ..tflite import buckets, convert
from ..tflite.attention import heads
from ..tflite.tables import positions

if TYPE_CHECKING:
    import keras


ANY_LENGTH = "any_length"


@dataclasses.dataclass(frozen=True)
class Design:
    """What a file will be.

    Args:
        model: what it is of.
        quantize: a name in SCHEMES.
        bundle: what it says of itself, all but its digest.
        signatures: length -> name of those that are converted; None -> the one of any length.
        reader: tokenizer of the app's library that reads it; None where our runtime does, by the model's own.
    """

    model: "keras.Model"
    quantize: str
    bundle: Bundle
    signatures: dict[int | None, str]
    reader: Tokenizer | None

    def converted(self, quantize: str) -> bytes:
        """The flatbuffer in a scheme that the converter makes."""
        reads, function = inputs_of(self.bundle), program(self.model, self.bundle)
        return self._cut(convert.convert(self.model, function, self.signatures, reads, quantize))

    def floats(self) -> bytes:
        """The flatbuffer in float32, its tensors named."""
        reads, function = inputs_of(self.bundle), program(self.model, self.bundle)
        return self._cut(convert.named(self.model, function, self.signatures, reads, "float32"))

    def _cut(self, blob: bytes) -> bytes:
        return positions.shortened(blob, self.bundle.longest) if self.bundle.any_length else blob

    def finished(self, blob: bytes) -> bytes:
        """The file of a flatbuffer: with what its reader wants in it, and the bundle."""
        bundle, tokenizer = self.bundle, self.model.tokenizer
        if SCHEMES[self.quantize].tables == "int8":
            blob = positions.lowered(blob)
        if len(bundle.lengths) > 1:  # of one length a GPU takes a file whole: every operator more costs it
            blob = heads.apart(blob)
        if bundle.target != targets.OURS:
            described = (bundle.model or "kerasbert", "A text model, exported by kerasbert.")
            output = bundle.output(kind_of(self.model).answers.output)
            called = {output: mediapipe.PROBABILITY} if bundle.labels else {}
            words = mediapipe.reads_words(tokenizer)
            blob = mediapipe.attach(blob, called, bool(bundle.labels), *described, words)
        return blob + dataclasses.replace(bundle, digest=hashlib.sha256(blob).hexdigest()).to_zip()


def design(model: "keras.Model", name: str, quantize: str, sizes: tuple[int, ...], config: CompressConfig) -> Design:
    """The file that the options ask for.

    Args:
        name: of the model, such as bert/tiny.
        sizes: tokens, of the buckets.
    """
    target, any_length = config.target or targets.OURS, config.lengths == buckets.ANY
    ours, columns = target == targets.OURS, kind_of(model).reader_outputs(target)
    only = ANY_LENGTH if any_length else None if ours else "serving_default"
    signatures = {size: only or f"length_{size}" for size in sizes}
    said = {"model": name, "quantization": quantize, "recipe": dict(config.recipe or {})}
    said["litert"] = SCHEMES[quantize].runtimes.get(LITERT, "")
    bundle = about(model, signatures, any_length, target, columns, **said)
    converted: dict[int | None, str] = {None: ANY_LENGTH} if any_length else {**signatures}
    return Design(model, quantize, bundle, converted, None if ours else mediapipe.tokenizer(model.tokenizer))


def made(
    design: Design,
    learned: dict[str, np.ndarray] | None,
    drawn: list,
    frequencies: np.ndarray | None,
    embedding_codes: int | None,
    allowed: tuple[float, budget.Judge] | None,
) -> tuple[bytes, Json]:
    """The whole .tflite, and what the report says of how it was made.

    Args:
        learned, drawn, frequencies: of `quantize.calibration.real_texts`.
        embedding_codes: of `CompressConfig`.
        allowed: points that it may lose, and who says what it loses; None where nobody asks.
    """
    quantize, names = design.quantize, list(weight_names(design.model))
    if learned:
        # the model rounds its activations itself; the converter takes that over
        with aware_training.static(design.model, learned):
            blob = design.converted("dynamic_int8")
        return design.finished(blob), forms.record(blob, quantize, names)
    if SCHEMES[quantize].converter and allowed is None and embedding_codes is None:
        return design.finished(design.converted(quantize)), {}
    floats = design.floats()
    feeds = forms.feeds(design.reader or design.model.tokenizer, drawn, design.bundle)
    if allowed is not None:
        return budget.meet(floats, quantize, names, feeds, *allowed)
    blob, record = forms.quantized(floats, quantize, names, feeds, embedding_codes, frequencies)
    return design.finished(blob), record


def inputs_of(bundle: Bundle) -> list[inputs.Input]:
    """What a file's signatures read, by their names."""
    return [dataclasses.replace(each.declared(), name=each.signature) for each in bundle.inputs]


def program(model: "keras.Model", bundle: Bundle) -> Callable[[dict], dict]:
    """The function that is converted: the model's own `call`, with what its kind answers from it."""
    kind = kind_of(model)
    bare = getattr(model, "task", None) is None and hasattr(model, "encoder")
    answering = model.encoder if bare else model
    names, output = {each.name: each.signature for each in bundle.inputs}, bundle.output(kind.answers.output)
    columns = kind.reader_outputs(bundle.target)
    wanted = [each.name for each in inputs.used(predict.declared(model), predict.settings_of(model))]

    def call(batch: dict) -> dict:
        read = {ours: batch[theirs] for ours, theirs in names.items()}
        read |= mediapipe.completed(read, wanted, model.tokenizer)
        values = kind.device(answering(read), read)
        return {output: values} | {theirs: values[..., i] for i, theirs in enumerate(columns)}

    return call
