"""From a float file to a quantized one: what each name of `--quantize` means, and the record of what was done."""

from collections.abc import Iterable, Sequence

import numpy as np

from kerasbert import answers, inputs
from kerasbert.errors import InputError
from kerasbert.export.bundle import Bundle
from kerasbert.storage.json_view import Json
from kerasbert.text import Tokenizer
from ..tflite import repack, weights
from ..tflite.repack import ModelT
from ..tflite.tables import product
from . import ranges, static
from .schemes import SCHEMES

Feeds = Iterable[tuple[str, dict[str, np.ndarray]]]


def feeds(tokenizer: Tokenizer, texts: Sequence, bundle: Bundle) -> Feeds:
    """What the runtime would feed a file: (signature, arrays by the signature's names) of each row of each text.

    Args:
        tokenizer: of the file's reader.
        bundle: of the file to be.
    """
    kind, longest = answers.find(bundle.kind), bundle.lengths[-1]
    declared = [each.declared() for each in bundle.inputs]
    names = {each.name: each.signature for each in bundle.inputs}
    settings = inputs.numbers(declared, tokenizer, bundle.trained)
    for text in texts:
        for row in kind.rows(tokenizer, (text,) if isinstance(text, str | bytes) else tuple(text), longest):
            length = row.length if bundle.any_length else min(size for size in bundle.lengths if size >= row.length)
            arrays = inputs.arrays(declared, [row], length, settings=settings)
            yield bundle.signature(length), {names[name]: array for name, array in arrays.items()}


def quantized(
    data: bytes,
    quantize: str,
    names: Iterable[str],
    batches: Feeds = (),
    embedding_codes: int | None = None,
    frequencies: np.ndarray | None = None,
) -> tuple[bytes, Json]:
    """A float file in another form.

    Args:
        data: float32 .tflite, its tensors named.
        quantize: str, a name of SCHEMES.
        names: the names of the Keras model's weights.
        batches: of `feeds`, for schemes that are calibrated.
        embedding_codes: int, bytes a row of the embedding tables that are smaller so (`product`).
        frequencies: float [V], weights of the rows of a table with as many.
    Returns:
        The file, and where it is calibrated a record: float_operators (name -> how often, in the longest signature) and dynamic
        (layers whose matrix is int8 and whose activations are float).
    Raises:
        InputError: a number of codes that makes no table smaller.
    """
    scheme = SCHEMES.find(quantize)
    if scheme.make:
        made = scheme.make(data, batches)
    elif scheme.calibrated:
        whole = scheme.activations == "int8"
        made = (static.full if whole else static.static)(data, ranges.observe(data, batches))
    else:
        model = repack.read(data)
        found = plan(quantize, weights.find(model, names))
        coded = {} if embedding_codes is None else _coded(model, found, embedding_codes, frequencies)
        made = repack.write(weights.lower(model, found, coded))
    return repack.slim(made), record(made, quantize, names)


def _coded(
    model: ModelT, found: Iterable[weights.Weight], codes: int, frequencies: np.ndarray | None
) -> dict[int, product.Coded]:
    """By their buffers the tables that become smaller than in int8, in codes."""
    tables = {weight.buffer: weights.values(model, weight) for weight in found if weight.kind == "table"}
    widths = sorted({x.shape[1] for x in tables.values()})
    if not 1 <= codes < max(widths, default=0):
        wide = " and ".join(map(str, widths)) or "none"
        raise InputError(f"embedding_codes is {codes}, expected at least 1 and fewer than the tables are wide ({wide})")
    chosen = {buffer: x for buffer, x in tables.items() if product.size(x.shape[0], x.shape[1], codes) < x.size}
    if not chosen:
        raise InputError(
            f"embedding_codes is {codes}, with which no table of {', '.join(str(len(x)) for x in tables.values())} rows becomes "
            "smaller: 256 centroids are more than it saves. Leave it out"
        )
    known = 0 if frequencies is None else len(frequencies)
    return {buffer: product.coded(x, codes, frequencies if len(x) == known else None) for buffer, x in chosen.items()}


def plan(quantize: str, found: Iterable[weights.Weight], kept: Iterable[str] = ()) -> list[weights.Weight]:
    """The weights that become int8 under a scheme, less those whose names are kept in float."""
    kept = set(kept)
    return [weight for weight in found if weight.kind in SCHEMES[quantize].kinds and weight.name not in kept]


def record(made: bytes, quantize: str, names: Iterable[str]) -> Json:
    """What of a calibrated file is not int8."""
    if not SCHEMES[quantize].calibrated:
        return {}
    model = repack.read(made)
    return {"float_operators": static.floats(model), "dynamic": weights.dynamic(model, names)}
