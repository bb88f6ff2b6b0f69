"""What is asked of a file, looked at before anything runs."""

import math
import os
from collections.abc import Sequence

import numpy as np

from kerasbert import inputs
from kerasbert.answers.base import Kind, Parts
from kerasbert.errors import InputError, TextError, of_text
from kerasbert.export import bundle as bundles
from kerasbert.value_types import check_type
from .system import delegates

THREADS = 256  # of an interpreter: more than a phone or a server has cores


def check(threads: int, windows: int, cache: object, plugin: object, delegate: str) -> None:
    """Refuse options of `load` that cannot be.

    Raises:
        InputError: the first of them.
    """
    for name, value, most in (("threads", threads, THREADS), ("windows", windows, math.inf)):
        if not isinstance(value, int | np.integer) or isinstance(value, bool) or not 1 <= value <= most:
            raise InputError(f"{name} is {value!r}, expected {'at least 1' if most == math.inf else f'1 to {most}'}")
    if isinstance(cache, str | os.PathLike) and os.path.exists(cache) and not os.path.isdir(cache):
        raise InputError(f"cache is {cache}, which is no folder; False writes nothing, None takes the usual one")
    check_type("plugin", str | os.PathLike | Sequence[str | os.PathLike], plugin)
    delegates.check(delegate)


def check_ids(token_ids: Sequence[int], segment_ids: Sequence[int], longest: int) -> None:
    """Refuse ids that are no packed text of at most `longest` tokens.

    Raises:
        InputError: what they are.
    """
    for name, ids in (("token_ids", token_ids), ("segment_ids", segment_ids)):
        given = np.asarray(ids)
        if given.ndim != 1 or given.dtype.kind not in "iu" or not 1 <= len(given) <= longest:
            raise InputError(f"{name} are 1 to {longest} whole numbers. Received: {ids!r:.60}")
    if len(token_ids) != len(segment_ids):
        raise InputError(
            f"there are {len(token_ids)} token_ids and {len(segment_ids)} segment_ids, expected one of each"
        )


def parts(bundle: bundles.Bundle, kind: Kind, texts: object) -> list[Parts]:
    """Each text as (text,) or (text_a, text_b), checked against what the model was trained on.

    Raises:
        InputError: as `inputs.texts_of`.
    """
    return [_parts_of(bundle, kind, text, number) for number, text in enumerate(inputs.texts_of(texts))]


def _parts_of(bundle: bundles.Bundle, kind: Kind, text: object, number: int) -> Parts:
    """The parts of one input.

    Raises:
        TextError: it is none.
    """
    if bundle.parts:
        with of_text(number):
            return kind.parts(text, bundle.parts, f"text {number}")
    single, pair = isinstance(text, str | bytes), bundle.pair
    found = (text,) if isinstance(text, str | bytes) else tuple(text) if isinstance(text, list | tuple) else ()
    if single == pair or len(found) != 1 + pair or not all(isinstance(part, str | bytes) for part in found):
        one = "one text: this model does not read pairs" if found else "a text"
        wanted = "a pair of texts: (text_a, text_b)" if pair else one
        raise TextError(number, f"received {text!r:.80}, expected {wanted}")
    return found
