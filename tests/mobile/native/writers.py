"""kb_runner_generate through ctypes, and files that generate."""

import ctypes
import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kerasbert.mobile.runtime import native
from tests.mobile.native import typed
from tests.mobile.native.runners import ARGUMENT, Failed, Runner

_P = ctypes.c_void_p
TOLD = ctypes.CFUNCTYPE(ctypes.c_int32, _P, native._Json)


class Writer(Runner):
    """kb_runner of a file that generates."""

    def generate(self, text: str, told: Callable[[bytes], int] | None = None, **options: Any) -> dict[str, Any]:
        """The answer's json.

        Args:
            told: gets each piece; what it gives other than 0 ends the text.
        """
        answer, message, given = native._Json(), native._Message(), json.dumps(options) if options else ""
        call = TOLD(lambda _, piece: told(ctypes.string_at(piece.data, piece.size))) if told else TOLD()
        function = self.library.kb_runner_generate
        function.argtypes = [_P, native._Text, native._Text, TOLD, _P, _P, _P]
        texts = native._text(text), native._text(given)
        status = function(self.handle, *texts, call, None, ctypes.byref(answer), ctypes.byref(message))
        if status:
            assert status == ARGUMENT or not self.library.kb_runner_result(self.handle)
            raise Failed(status, message)
        return self._said(answer)

    def _said(self, answer: native._Json) -> dict[str, Any]:
        """An answer's json; the typed answer must say the same."""
        said = json.loads(ctypes.string_at(answer.data, answer.size))
        result = self.library.kb_runner_result(self.handle).contents
        assert typed.as_json(result, "generation", ()) == said
        return said

    def __call__(self, texts: Sequence[str | bytes], words: bool = False) -> Any:
        """kb_runner_answer's json."""
        answer, message = native._Json(), native._Message()
        array = (native._Text * len(texts))(*map(native._text, texts))
        rest = ctypes.byref(answer), ctypes.byref(message)
        if status := self.library.kb_runner_answer(self.handle, array, len(texts), words, *rest):
            raise Failed(status, message)
        return self._said(answer)

    def stream(self, text: str, **options: Any) -> tuple[list[bytes], dict[str, Any]]:
        """The pieces of a text, and its answer."""
        pieces: list[bytes] = []
        answer = self.generate(text, lambda piece: pieces.append(piece) or 0, **options)
        return pieces, answer


def detokenized(files: dict[str, bytes], ids: list[int]) -> str:
    """kb_detokenize."""
    fast, library = native.NativeTokenizer(files), native._needed()
    array, text, message = (ctypes.c_int32 * len(ids))(*ids), native._Json(), native._Message()
    function = library.kb_detokenize
    function.argtypes = [_P, _P, ctypes.c_size_t, _P, _P, _P]
    status = function(fast._handle, array, len(ids), fast._tokens, ctypes.byref(text), ctypes.byref(message))
    if status:
        raise Failed(status, message)
    return ctypes.string_at(text.data, text.size).decode()


class _Steps(ctypes.Structure):
    """kb_steps."""

    _fields_ = (
        ("count", ctypes.c_size_t),
        ("tokens", ctypes.POINTER(ctypes.c_int32)),
        ("origins", ctypes.POINTER(ctypes.c_int32)),
        ("column", ctypes.c_int32),
        ("ended", ctypes.c_int32),
        ("piece", native._Json),
    )


class Writing:
    """kb_writing: what a network of the caller's is asked. `score`: a text is scored."""

    def __init__(self, model: native.NativeModel, text: str, told: bool = False, score: bool = False, **options: Any):
        self.library, self.handle, self.message = native._needed(), _P(), native._Message()
        self.model = model  # which must stay
        rest, given = (ctypes.byref(self.handle), ctypes.byref(self.message)), json.dumps(options) if options else ""
        if score:
            self._check(self._call("kb_writing_score", model._handle, native._text(text), *rest))
        else:
            begun = model._handle, native._text(text), native._text(given), int(told)
            self._check(self._call("kb_writing_begin", *begun, *rest))

    def _call(self, name: str, *arguments: Any) -> int:
        return getattr(self.library, name)(*arguments)

    def _check(self, status: int) -> None:
        if status:
            raise Failed(status, self.message)

    def next(self, logits: np.ndarray | None) -> tuple[list[int], list[int], int, str, bool]:
        """Tokens, origins, column, piece, whether it has ended."""
        steps = _Steps()
        data, size = (logits.ctypes.data_as(_P), logits.size) if logits is not None else (None, 0)
        call = self.handle, data, ctypes.c_size_t(size), ctypes.byref(steps), ctypes.byref(self.message)
        self._check(self._call("kb_writing_next", *call))
        piece = ctypes.string_at(steps.piece.data, steps.piece.size).decode()
        tokens, origins = steps.tokens[: steps.count], steps.origins[: steps.count]
        return tokens, origins, steps.column, piece, bool(steps.ended)

    def answer(self) -> dict[str, Any]:
        """Its json."""
        answer = native._Json()
        self._check(self._call("kb_writing_answer", self.handle, ctypes.byref(answer), ctypes.byref(self.message)))
        return json.loads(ctypes.string_at(answer.data, answer.size))

    def close(self) -> None:
        """kb_writing_close."""
        self._call("kb_writing_close", self.handle)
