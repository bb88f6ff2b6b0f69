"""The portable core (`mobile/native`) through ctypes: the same ids, offsets, rows and answers as the Python ones, faster.

Pure Python is the reference. The library is looked for in $KERASBERT_NATIVE, then where `python -m
kerasbert.mobile.native.build` writes it.
"""

import ctypes
import functools
import json
import os
import shlex
import sys
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path

from kerasbert.errors import InputError
from kerasbert.inputs import Tensor
from kerasbert.storage.json_view import Json
from kerasbert.text.base import SURROGATE, Tokenizer, Tokens
from ..system import forks

VERSION = 2  # KB_VERSION
VARIABLE = "KERASBERT_NATIVE"
NAME = {"darwin": "libkerasbert.dylib", "win32": "kerasbert.dll"}.get(sys.platform, "libkerasbert.so")
UNSUPPORTED = 3  # KB_UNSUPPORTED
Text = str | bytes


class Unsupported(InputError):
    """What only the Python runtime knows: another tokenizer, a knowledge graph, a kind of answer."""


class _Text(ctypes.Structure):
    _fields_ = (("data", ctypes.c_char_p), ("size", ctypes.c_size_t))


class _Json(ctypes.Structure):
    _fields_ = (("data", ctypes.c_void_p), ("size", ctypes.c_size_t))


class _File(ctypes.Structure):
    _fields_ = (("name", _Text), ("content", _Text))


class _Message(ctypes.Structure):
    _fields_ = (("text", ctypes.c_char * 256),)


_Ints = ctypes.POINTER(ctypes.c_int32)


class _Tokens(ctypes.Structure):
    _fields_ = (
        ("count", ctypes.c_size_t),
        ("ids", _Ints),
        ("starts", _Ints),
        ("ends", _Ints),
        ("segments", _Ints),
        ("truncated", ctypes.c_int32),
    )


class _Row(ctypes.Structure):
    _fields_ = (
        ("length", ctypes.c_size_t),
        ("ids", _Ints),
        ("segments", _Ints),
        ("position", ctypes.c_int32),
        ("truncated", ctypes.c_int32),
    )


_POINTER, _SIZE, _RESULT = ctypes.c_void_p, ctypes.c_size_t, ctypes.POINTER(_Tokens)
_SIGNATURES: dict[str, tuple[type | None, list[type]]] = {
    "kb_version": (ctypes.c_int32, []),
    "kb_tokenizer_open": (ctypes.c_int, [_POINTER, _SIZE, _POINTER, _POINTER]),
    "kb_tokenizer_close": (None, [_POINTER]),
    "kb_tokens_new": (_RESULT, []),
    "kb_tokens_free": (None, [_RESULT]),
    "kb_encode": (ctypes.c_int, [_POINTER, _Text, _RESULT, _POINTER]),
    "kb_tokenize": (ctypes.c_int, [_POINTER, _Text, _RESULT, _POINTER]),
    "kb_pack": (ctypes.c_int, [_POINTER, _Text, _POINTER, _SIZE, _RESULT, _POINTER]),
    "kb_model_open": (ctypes.c_int, [ctypes.c_char_p, _SIZE, _POINTER, _POINTER]),
    "kb_model_close": (None, [_POINTER]),
    "kb_model_tokenizer": (_POINTER, [_POINTER]),
    "kb_model_kind": (ctypes.c_char_p, [_POINTER]),
    "kb_model_longest": (_SIZE, [_POINTER]),
    "kb_model_labels": (_SIZE, [_POINTER]),
    "kb_rows_make": (ctypes.c_int, [_POINTER, _POINTER, _SIZE, ctypes.c_int32, _POINTER, _POINTER]),
    "kb_rows_prompted": (ctypes.c_int, [_POINTER, _Text, _POINTER, _SIZE, _POINTER, _POINTER]),
    "kb_rows_count": (_SIZE, [_POINTER]),
    "kb_rows_row": (_Row, [_POINTER, _SIZE]),
    "kb_rows_free": (None, [_POINTER]),
    "kb_answer": (ctypes.c_int, [_POINTER, _POINTER, _POINTER, _POINTER, _POINTER, _POINTER]),
}


def path() -> Path | None:
    """The library's file, absolute: the system's loader does not look for a bare name here. None where there is none.

    Raises:
        InputError: the environment names a file that is not there.
    """
    said = os.environ.get(VARIABLE)
    if said == "off":
        return None
    found = Path(said).absolute() if said else Path(__file__).resolve().parents[2] / "native" / NAME
    if found.is_file():
        return found
    if said:
        build = f"python -m kerasbert.mobile.native.build --out {shlex.quote(said)}"
        raise InputError(
            f"{VARIABLE} is {said}, and there is no such file. Do: {build}, or {VARIABLE}=off for pure Python"
        )
    return None


@functools.cache
def library(file: Path) -> ctypes.CDLL:
    """The library in a file.

    Raises:
        InputError: it cannot be loaded, or is of another version.
    """
    try:
        loaded = ctypes.CDLL(str(file))
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(loaded, name)
            function.restype, function.argtypes = result, arguments
        version = loaded.kb_version()
    except (OSError, AttributeError) as error:
        raise InputError(
            f"{file} is not the portable core ({' '.join(str(error).split())[:120]}). "
            "Build it: python -m kerasbert.mobile.native.build"
        ) from error
    if version != VERSION:
        raise InputError(
            f"{file} has version {version}, expected {VERSION}. Build it: python -m kerasbert.mobile.native.build"
        )
    return loaded


def _text(text: Text) -> _Text:
    """A text as UTF-8; a lone surrogate counts as U+FFFD."""
    if isinstance(text, str):
        try:
            text = text.encode()
        except UnicodeEncodeError:
            text = SURROGATE.sub("\ufffd", text).encode()
    return _Text(text, len(text))


def _checked(status: int, message: _Message) -> None:
    if status:
        said = message.text.decode("utf-8", "replace")
        raise Unsupported(f"the portable core does not read {said}") if status == UNSUPPORTED else InputError(said)


class NativeTokenizer:
    """A tokenizer's calls in C. Threads may share it; they take turns.

    Args:
        files: as the tokenizer's `save` writes them, name -> bytes.
    Raises:
        Unsupported: a kind of tokenizer, or a setting, that the C library does not have.
        InputError: no library, damaged files.
    """

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self._library = _needed()
        handle, message = ctypes.c_void_p(), _Message()
        array = (_File * len(files))(*(_File(_text(name), _text(content)) for name, content in files.items()))
        status = self._library.kb_tokenizer_open(array, len(files), ctypes.byref(handle), ctypes.byref(message))
        _checked(status, message)
        self._begin(handle, message)
        weakref.finalize(self, self._library.kb_tokenizer_close, handle)

    def _begin(self, handle: ctypes.c_void_p, message: _Message) -> None:
        self._handle, self._message, self._turn = handle, message, forks.lock(1)
        self._tokens = self._library.kb_tokens_new()
        self._view = self._tokens.contents  # NULL where there is no memory: ValueError
        self._said = ctypes.byref(message)
        weakref.finalize(self, self._library.kb_tokens_free, self._tokens)

    def encode(self, text: Text) -> list[int]:
        """Ids of a text, without special tokens."""
        with self._turn:
            if status := self._library.kb_encode(self._handle, _text(text), self._tokens, self._said):
                _checked(status, self._message)
            return self._view.ids[: self._view.count]

    def offsets(self, text: Text) -> tuple[list[int], list[int], list[int]]:
        """Ids, starts and ends of a text."""
        with self._turn:
            if status := self._library.kb_tokenize(self._handle, _text(text), self._tokens, self._said):
                _checked(status, self._message)
            view = self._view
            count = view.count
            return view.ids[:count], view.starts[:count], view.ends[:count]

    def pack(self, text_a: Text, text_b: Text | None = None, length: int | None = None) -> tuple[list[int], list[int]]:
        """Token and segment ids of one or two texts with their special tokens, at most `length`, unpadded."""
        if length is not None and length < 1:
            raise InputError(f"length is {length}, expected at least 1: room for the special tokens")
        second = None if text_b is None else ctypes.byref(_text(text_b))
        with self._turn:
            status = self._library.kb_pack(self._handle, _text(text_a), second, length or 0, self._tokens, self._said)
            if status:
                _checked(status, self._message)
            count = self._view.count
            return self._view.ids[:count], self._view.segments[:count]


def _needed() -> ctypes.CDLL:
    file = path()
    if file is None:
        raise InputError(
            "the portable core is not built: python -m kerasbert.mobile.native.build, or name its file in " + VARIABLE
        )
    return library(file)


def quicken(tokenizer: Tokenizer, files: Mapping[str, bytes]) -> bool:
    """Give a tokenizer the C calls in the place of its own `encode` and `tokenize`, where the library reads its files.

    Returns:
        whether it has them now.

    Raises:
        InputError: the library is damaged, of another version, or finds the files damaged.
    """
    if path() is None:
        return False
    try:
        fast = NativeTokenizer(files)
    except Unsupported:
        return False
    vocabulary = tokenizer.vocabulary

    def tokenize(text: Text) -> Tokens:
        ids, starts, ends = fast.offsets(text)
        return Tokens(ids, [vocabulary[i] for i in ids], starts, ends)

    tokenizer.encode, tokenizer.tokenize = fast.encode, tokenize
    return True


class NativeModel:
    """The bundle of a file in C: rows of an input, and outputs -> the answer as json.

    Args:
        data: bytes of a file that `kerasbert-mobile compress` wrote, or of its bundle.
    Attributes:
        kind: str; longest: int, tokens of the longest row.
    Raises:
        Unsupported: a kind of answer, an input or a tokenizer that the C library does not have.
        InputError: no library, no bundle, a damaged one.
    """

    def __init__(self, data: bytes) -> None:
        self._library = _needed()
        self._handle, message = ctypes.c_void_p(), _Message()
        status = self._library.kb_model_open(data, len(data), ctypes.byref(self._handle), ctypes.byref(message))
        _checked(status, message)
        weakref.finalize(self, self._library.kb_model_close, self._handle)
        self.kind = self._library.kb_model_kind(self._handle).decode()
        self.longest = self._library.kb_model_longest(self._handle)

    def rows(self, texts: Sequence[Text], words: bool = False, prompt_name: str | None = None) -> "NativeRows":
        """The rows of one input.

        Args:
            texts: a text or a pair; a question and a context; a text and its choices; a raw text.
            words: bool, `texts` are the words of one.
            prompt_name: str, of a file of vectors: of another prompt than its default.
        """
        return NativeRows(self, texts, words, prompt_name)


class NativeRows:
    """The packed rows of one input: `for ids, segments, position, truncated in rows`."""

    def __init__(self, model: NativeModel, texts: Sequence[Text], words: bool, prompt_name: str | None) -> None:
        self._model, self._library = model, model._library
        self._handle, self._message = ctypes.c_void_p(), _Message()
        array = (_Text * len(texts))(*map(_text, texts))
        handle, said = ctypes.byref(self._handle), ctypes.byref(self._message)
        if prompt_name is None:
            status = self._library.kb_rows_make(model._handle, array, len(texts), words, handle, said)
        else:
            name = _text(prompt_name)
            status = self._library.kb_rows_prompted(model._handle, name, array, len(texts), handle, said)
        _checked(status, self._message)
        weakref.finalize(self, self._library.kb_rows_free, self._handle)

    def __len__(self) -> int:
        return self._library.kb_rows_count(self._handle)

    def __getitem__(self, number: int) -> tuple[list[int], list[int], int, bool]:
        if not 0 <= number < len(self):
            raise IndexError(number)
        row = self._library.kb_rows_row(self._handle, number)
        return row.ids[: row.length], row.segments[: row.length], row.position, bool(row.truncated)

    def answer(self, outputs: Sequence[Tensor]) -> Json:
        """float32 outputs of each row -> what `to_json` of the answer gives."""
        import numpy as np

        if len(outputs) != len(self):
            raise InputError(f"{len(outputs)} outputs of {len(self)} rows, expected one each")
        arrays = [np.ascontiguousarray(each, "float32") for each in outputs]
        pointers = (ctypes.c_void_p * len(arrays))(*(each.ctypes.data for each in arrays))
        sizes = (ctypes.c_size_t * len(arrays))(*(each.size for each in arrays))
        text, model = _Json(), self._model._handle
        said = ctypes.byref(self._message)
        status = self._library.kb_answer(model, self._handle, pointers, sizes, ctypes.byref(text), said)
        _checked(status, self._message)
        return json.loads(ctypes.string_at(text.data, text.size))
