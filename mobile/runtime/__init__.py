"""The phone side: text in, answers out, with numpy and an interpreter and nothing else.

>>> from kerasbert.mobile.runtime import load
>>> load("sst2.tflite")(["a gripping film"])[0].label  # doctest: +SKIP
'positive'
"""

import bisect
import contextlib
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kerasbert import answers, inputs
from kerasbert.errors import InputError
from kerasbert.export import bundle as bundles
from kerasbert.mobile.runtime import cache as caches
from kerasbert.mobile.runtime.interpreters import interpreter, one_line
from kerasbert.mobile.runtime.versions import check
from kerasbert.text import load_tokenizer

Text = str | bytes
__all__ = ["Runner", "load"]


def load(path: str | os.PathLike, cache: str | os.PathLike | bool | None = None, threads: int = 1) -> "Runner":
    """Open a .tflite file that `kerasbert-mobile compress` wrote.

    Args:
        path: the file.
        cache: folder for packed weights (11 MB for MiniLM), which make the next launch faster and smaller; the eight
            used last are kept in it. None: $XDG_CACHE_HOME/kerasbert or ~/.cache/kerasbert. False: nothing is written.
            Where there is no home, no room or no Linux, the weights are packed at every launch.
        threads: int, of the interpreter.
    Raises:
        InputError: no such file, not ours, damaged, or no interpreter is installed that computes it rightly.
    """
    path = Path(path)
    if threads < 1:
        raise InputError(f"threads is {threads}, expected at least 1")
    bundle = bundles.read(path)
    digest = bundles.digest(path)
    if digest != bundle.digest:
        raise InputError(
            f"{path} is damaged: its first part has sha256 {digest[:12]}, its bundle says {bundle.digest[:12] or 'nothing'!r}. "
            "Copy it again or write it again"
        )
    check(path, bundle)
    folder = None
    if cache is not False:
        folder = caches.default_directory() if cache in (None, True) else Path(cache)
    return Runner(bundle, interpreter(path, bundle, threads, folder, digest), path)


@contextlib.contextmanager
def _tokenizing(path: Path) -> Iterator[None]:
    """Whatever a tokenizer raises that came in a file becomes an InputError of one line."""
    try:
        yield
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{path} carries a damaged tokenizer: {reason[:200]}") from error


class Runner:
    """Call it on a list of texts (or of pairs of texts): one answer each, the objects of `kb.predict`.

    Each text runs alone, at its own length where the file takes any length, else in the shortest bucket that holds it;
    memory is taken when a length is first used. A text longer than the longest bucket loses its end, and its answer is
    `.truncated`.
    Threads may share a Runner; they take turns.

    Attributes:
        bundle: Bundle; labels: tuple of str; lengths: tuple of int, the buckets in tokens, or the longest; tokenizer.
    """

    def __init__(self, bundle: bundles.Bundle, model: Any, path: Path):
        self.bundle = bundle
        self.model = model
        self.path = path
        with _tokenizing(path):
            self.tokenizer = load_tokenizer(bundle.tokenizer)
        self.labels = bundle.labels
        self.lengths = bundle.lengths
        self._names = tuple(bundle.inputs[name] for name in bundles.INPUTS)
        self._turn = threading.Lock()

    def __call__(self, texts: Sequence[Text] | Sequence[tuple[Text, Text]]) -> list[Any]:
        """Texts -> answers: Classification, Regression or Vector, one per text."""
        packed, truncated = self._pack(texts)
        rows = zip(self._rows(packed), truncated)
        kind = answers.find(self.bundle.kind)
        return [kind.decode((), [inputs.row((), (), cut)], [row], self.labels) for row, cut in rows]

    def outputs(self, texts: Sequence[Text] | Sequence[tuple[Text, Text]]) -> np.ndarray:
        """Texts -> float32 [texts, outputs]: probabilities, values or vectors."""
        return self._rows(self._pack(texts)[0])

    def _pack(self, texts: Any) -> tuple[list[tuple[list[int], list[int]]], list[bool]]:
        """Token and segment ids of each text, and whether it lost its end."""
        if isinstance(texts, (str, bytes)):
            raise InputError("texts is one string, expected a list of strings: put it in brackets")
        longest = self.lengths[-1]
        parts = [self._parts(text) for text in texts]
        with _tokenizing(self.path):
            packed = [self.tokenizer.pack(*each, length=longest) for each in parts]
            full = (len(ids) == longest for ids, _ in packed)  # only these may have lost something
            return packed, [be and len(self.tokenizer.pack(*each)[0]) > longest for be, each in zip(full, parts)]

    def _rows(self, packed: list[tuple[list[int], list[int]]]) -> np.ndarray:
        """Packed texts -> float32 [texts, outputs]."""
        rows: list[Any] = [None] * len(packed)
        # by length: a change of length costs 0.2-0.6 ms
        for place in sorted(range(len(packed)), key=lambda place: len(packed[place][0])):
            rows[place] = self.run(*packed[place])
        return np.stack(rows) if rows else np.zeros((0, max(1, len(self.labels))), np.float32)

    def _parts(self, text: Any) -> tuple[Text, ...]:
        """(text,) or (text_a, text_b), checked against what the model was trained on."""
        if self.bundle.pair:
            if isinstance(text, (str, bytes)) or len(text) != 2 or not all(isinstance(t, (str, bytes)) for t in text):
                raise InputError(f"received {text!r:.80}, expected a pair of texts: (text_a, text_b)")
            return tuple(text)
        if not isinstance(text, (str, bytes)):
            raise InputError(f"received {text!r:.80}, expected one text: this model does not read pairs")
        return (text,)

    def run(self, token_ids: Sequence[int], segment_ids: Sequence[int]) -> np.ndarray:
        """Ids of one packed text, at most `lengths[-1]` -> float32 [outputs]."""
        used = len(token_ids)
        length = used if self.bundle.any_length else self.lengths[bisect.bisect_left(self.lengths, used)]
        arrays = {name: np.zeros((1, length), np.int32) for name in self._names}
        for name, values in zip(self._names, (token_ids, 1, segment_ids)):
            arrays[name][0, :used] = values
        with self._turn, one_line(self.path, "run"):
            outputs = self.model.run(length, arrays)
        if self.bundle.kind != "embedding" and len(outputs) != (len(self.labels) or 1):
            raise InputError(f"{self.path} answers with {len(outputs)} numbers: it is damaged. Write the file again")
        if not np.isfinite(outputs).all():
            raise InputError(
                f"{self.path} answers with numbers that are not finite: it is damaged. Write the file again"
            )
        return outputs
