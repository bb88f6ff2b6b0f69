"""A kb_runner through ctypes, over LiteRT's library or over a network in Python."""

import contextlib
import ctypes
import importlib.util
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kerasbert.mobile.runtime import native
from kerasbert.text.base import SURROGATE
from tests.mobile.native import typed

ARGUMENT, CANCELLED, INTERPRETER = 4, 5, 6  # KB_ARGUMENT ...
Network = Callable[[str, dict[str, np.ndarray], str], np.ndarray]


class Input(ctypes.Structure):
    """kb_input."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("data", ctypes.c_void_p),
        ("count", ctypes.c_size_t),
        ("is_bool", ctypes.c_int32),
    )


_P, _SIZE = ctypes.c_void_p, ctypes.c_size_t
RUN = ctypes.CFUNCTYPE(
    ctypes.c_int,
    _P,
    ctypes.c_char_p,
    ctypes.POINTER(Input),
    _SIZE,
    ctypes.c_char_p,
    _P,
    _P,
    ctypes.POINTER(native._Message),
)


class _Network(ctypes.Structure):
    _fields_ = (("context", _P), ("run", RUN), ("close", _P))


class Options(ctypes.Structure):
    """kb_runner_options."""

    _fields_ = (
        ("library", ctypes.c_char_p),
        ("threads", ctypes.c_int32),
        ("rows", ctypes.c_size_t),
        ("delegate", ctypes.c_char_p),
    )


class Failed(Exception):
    """What a call says; `status` is its kb_status."""

    def __init__(self, status: int, message: native._Message):
        super().__init__(message.text.decode("utf-8", "replace"))
        self.status = status


def litert() -> Path:
    """LiteRT's library in the package ai-edge-litert."""
    found = importlib.util.find_spec("ai_edge_litert")
    library = Path(str(found.origin)).parent / "libLiteRt.so" if found else Path()
    if not library.is_file():
        pytest.skip("needs libLiteRt.so of the package ai-edge-litert")
    return library


def _load() -> ctypes.CDLL:
    loaded = native._needed()
    loaded.kb_runner_answer.argtypes = [_P, _P, _SIZE, ctypes.c_int32, _P, _P]
    loaded.kb_runner_result.argtypes, loaded.kb_runner_result.restype = [_P], ctypes.POINTER(typed.Result)
    loaded.kb_runner_model.argtypes, loaded.kb_runner_model.restype = [_P], _P
    for name in ("kb_runner_close", "kb_runner_cancel"):
        function = getattr(loaded, name)
        function.argtypes, function.restype = [_P], None
    return loaded


def given(text: str | bytes) -> bytes:
    """The bytes that the library reads; a zero may be among them."""
    return text if isinstance(text, bytes) else SURROGATE.sub("\ufffd", text).encode()


class Runner:
    """kb_runner; `run`, where it is given, stands for LiteRT's library."""

    def __init__(self, source: Path | bytes, run: Network | None = None, **options: Any):
        self.library, self.handle, self.model = _load(), ctypes.c_void_p(), ctypes.c_void_p()
        message, settings = native._Message(), Options(**options)
        rest = ctypes.byref(settings), ctypes.byref(self.handle), ctypes.byref(message)
        if run is None:
            status = self.library.kb_runner_open(str(source).encode(), *rest)
        else:
            data = bytes(source) if isinstance(source, bytes) else source.read_bytes()
            status = self.library.kb_model_open(data, len(data), ctypes.byref(self.model), ctypes.byref(message))
            self.network = _Network(None, RUN(self._runs(run)), None)
            status = status or self.library.kb_runner_over(self.model, ctypes.byref(self.network), *rest)
        if status:
            self.close()
            raise Failed(status, message)

    def _runs(self, run: Network) -> Callable[..., int]:
        def called(_, signature, inputs, count, output, values, size, message):
            arrays = {}
            for each in inputs[:count]:
                kind = np.uint8 if each.is_bool else np.int32
                data = ctypes.string_at(each.data, each.count * kind().itemsize)
                arrays[each.name.decode()] = np.frombuffer(data, kind)
            try:
                self.held = np.ascontiguousarray(run(signature.decode(), arrays, output.decode()), "float32").reshape(
                    -1
                )
            except InterruptedError as error:
                message.contents.text = str(error).encode()
                return INTERPRETER
            ctypes.cast(values, ctypes.POINTER(ctypes.c_void_p))[0] = self.held.ctypes.data
            ctypes.cast(size, ctypes.POINTER(ctypes.c_size_t))[0] = self.held.size
            return 0

        return called

    def __call__(self, texts: Sequence[str | bytes], words: bool = False) -> Any:
        """The answer's json; the typed answer must say the same."""
        text, message = native._Json(), native._Message()
        array = (native._Text * len(texts))(*map(native._text, texts))
        rest = ctypes.byref(text), ctypes.byref(message)
        status = self.library.kb_runner_answer(self.handle, array, len(texts), words, *rest)
        if status:
            assert status == ARGUMENT or not self.library.kb_runner_result(self.handle)
            raise Failed(status, message)
        answer = json.loads(ctypes.string_at(text.data, text.size))
        kind = self.library.kb_model_kind(self.library.kb_runner_model(self.handle)).decode()
        result = self.library.kb_runner_result(self.handle).contents
        assert typed.as_json(result, kind, [given(text) for text in texts]) == answer
        return answer

    def cancel(self) -> None:
        """kb_runner_cancel."""
        self.library.kb_runner_cancel(self.handle)

    def close(self) -> None:
        """kb_runner_close."""
        self.library.kb_runner_close(self.handle)
        self.library.kb_model_close(self.model)
        self.handle = self.model = ctypes.c_void_p()


@contextlib.contextmanager
def opened(*arguments: Any, **options: Any) -> Iterator[Runner]:
    """A Runner, closed at the end."""
    runner = Runner(*arguments, **options)
    try:
        yield runner
    finally:
        runner.close()
