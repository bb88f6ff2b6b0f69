"""Vectors of many texts, block by block, into a file: what is computed for hours survives a kill."""

import dataclasses
import hashlib
import itertools
import json
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from kerasbert import spec as specs
from kerasbert.answers.vector import blocks
from kerasbert.layers import naming
from kerasbert.options import checked
from kerasbert.progress import Progress
from kerasbert.retrieval import forms
from kerasbert.retrieval.folder import SETTINGS
from kerasbert.retrieval.passages import Source
from kerasbert.retrieval.vector_file import VectorFile
from kerasbert.storage import files, places
from kerasbert.tasks import predict
from kerasbert.tasks.prompts import vector_kind

if TYPE_CHECKING:
    import keras


BLOCK = 4096  # texts that are sorted by length, and kept at once, or fewer long ones


def identity(model: "keras.Model") -> str:
    """sha256 of what a text's vector depends on: weights, tokenizer, the model's shape and its pooling."""
    state = hashlib.sha256()
    for name, value in sorted(naming.values(model).items()):
        state.update(name.encode() + value.tobytes())
    kind = vector_kind(model)
    options = {} if kind is None else {key: value for key, value in kind.options.items() if key != "prompt_name"}
    told = {"spec": specs.to_dict(model.spec), "tokenizer": model.tokenizer.digest(), "options": dict(options)}
    state.update(json.dumps(told, sort_keys=True, default=str).encode())
    return state.hexdigest()


@dataclasses.dataclass
class Encoded:
    """What came of the texts.

    Args:
        shape: (n, H). most: int, the tokens that a text may have. truncated: int, texts of this call that lost some.
    """

    shape: tuple[int, int]
    most: int
    truncated: int = 0

    def lines(self) -> list[str]:
        """What a user is told of it."""
        if not self.truncated:
            return []
        return [f"{self.truncated} of {self.shape[0]} texts were truncated to {self.most} tokens"]


def encode_into(
    file: VectorFile, model: "keras.Model", texts: Iterable[str], settings: Mapping[str, Any], unit: bool = False
) -> Encoded:
    """Vectors of the texts that the file has not yet.

    Args:
        file: for as many texts. settings: those of `kb.encode`, by name. unit: bool, vectors of length 1.
    """
    told = Encoded(file.shape, predict.longest(model, settings.get("length")))
    rest = itertools.islice(iter(texts), file.kept, None)
    with Progress(file.count, done=file.kept) as progress:
        for block in blocks(zip(rest), BLOCK):
            vectors, encoded = predict.vectors_and_rows(model, [text for (text,) in block], **settings)
            told.truncated += len(encoded.truncated)
            file.add(forms.unit(vectors) if unit else vectors)
            progress.to(file.kept)
    return told


def width(model: "keras.Model", texts: Iterable[str], settings: Mapping[str, Any]) -> int:
    """Numbers of a vector, told by the first text."""
    return predict.encode(model, list(itertools.islice(texts, 1)), **settings).shape[-1]


@checked
def encode_file(
    model: "keras.Model",
    source: Source,
    out: str | os.PathLike,
    *,
    dtype: str = "float32",
    overwrite: bool = False,
    **settings: Any,
) -> Encoded:
    """Write the vectors of texts as a `.npy` [count, H], of binary ones [count, H / 8]; the same call goes on.

    Args:
        settings: see `kb.encode`.
    """
    forms.check(dtype)
    read = (model, source.path)
    places.check_file(out, overwrite, "vectors", [each for each in read if isinstance(each, str | os.PathLike)])
    model = predict.as_model(model)
    about = {"model": identity(model), "texts": source.digest, **{name: settings.get(name) for name in SETTINGS}}
    shape = source.count, width(model, source.texts(), settings)
    with VectorFile(out, about, shape, dtype) as file:
        told = encode_into(file, model, source.texts(), settings)
        with files.new_file(out) as part:
            part.unlink()
            file.copy(part)
        file.done()
    return told
