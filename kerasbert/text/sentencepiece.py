"""SentencePiece's .model file (a protocol buffer) and its character map (a double array), standard library only.

Sources: sentencepiece_model.proto and normalizer.cc of google/sentencepiece; the unit layout of darts-clone.
"""

import functools
import struct
import unicodedata
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from kerasbert.errors import InputError
from kerasbert.text.charsmap import Charsmap, compile_charsmap

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
QUOTES = {"``": '"', "''": '"'}  # ALBERT's and XLNet's
KINDS = {1: "unigram", 2: "bpe", 3: "word", 4: "char"}
HIGHEST = 1e9  # of a score; what a sum of them can hold


class Model(NamedTuple):
    """What a unigram .model says.

    Attributes:
        pieces, scores, types: one per id; scores are float32 values.
        charsmap: bytes, the compiled normalisation rules; empty for none.
        dummy_prefix: bool, a blank is put before the text.
        remove_extra: bool, blanks are trimmed and runs are one.
        escape: bool, a blank becomes U+2581.
        byte_fallback: bool, an unknown character becomes its bytes' pieces.
    """

    pieces: tuple[str, ...]
    scores: tuple[float, ...]
    types: tuple[int, ...]
    charsmap: bytes = b""
    dummy_prefix: bool = True
    remove_extra: bool = True
    escape: bool = True
    byte_fallback: bool = False

    @property
    def can_add(self) -> bool:
        """Whether added tokens may stand beside it: blanks are handled as usual, no piece is a user's."""
        return self.dummy_prefix and self.remove_extra and self.escape and USER_DEFINED not in self.types


def read_model(data: bytes) -> Model:
    """Parse a .model file.

    Raises:
        InputError: damaged, no unigram model, or blanks at the end of words.
    """
    try:
        fields = list(_fields(data))
        items = [dict(_fields(value)) for number, value in fields if number == 1]
        trainer, normalizer = (dict(_fields(dict(fields).get(number, b""))) for number in (2, 3))
        model = Model(
            pieces=tuple(item[1].decode() for item in items),
            scores=tuple(struct.unpack("<f", item.get(2, bytes(4)))[0] for item in items),
            types=tuple(item.get(3, NORMAL) for item in items),
            charsmap=bytes(normalizer.get(2, b"")),
            dummy_prefix=bool(normalizer.get(3, 1)),
            remove_extra=bool(normalizer.get(4, 1)),
            escape=bool(normalizer.get(5, 1)),
            byte_fallback=bool(trainer.get(35, 0)),
        )
    except (IndexError, KeyError, ValueError, TypeError, AttributeError, struct.error):
        raise InputError("damaged: not a SentencePiece model. Download it again") from None
    if not model.pieces:
        raise InputError("damaged: a SentencePiece model without pieces. Download it again")
    for i, (piece, score, kind) in enumerate(zip(model.pieces, model.scores, model.types)):
        byte = kind != BYTE or (len(piece) == 6 and piece[:3] == "<0x" and set(piece[3:5]) <= set("0123456789ABCDEF"))
        if not piece or kind not in range(1, 7) or not byte or not abs(score) < HIGHEST:
            raise InputError(
                f"damaged: piece {i} of the SentencePiece model is {piece[:20]!r} of type {kind} and score {score}. "
                "Download it again"
            )
    kind = trainer.get(3, 1)
    if kind != 1:
        raise InputError(f"a SentencePiece model of type {str(KINDS.get(kind, kind))[:40]!r}, expected 'unigram'")
    if trainer.get(24, 0):
        raise InputError(
            "a SentencePiece model with blanks at the end of words (suffix mode), expected them before words"
        )
    Charsmap(model.charsmap)
    return model


def write_model(model: Model) -> bytes:
    """The .model file of a model, as `read_model`, sentencepiece and tensorflow-text read it."""
    parts = []
    for piece, score, kind in zip(model.pieces, model.scores, model.types):
        parts.append(_bytes(1, _bytes(1, piece.encode()) + b"\x15" + struct.pack("<f", score) + _number(3, kind)))
    special = {UNKNOWN: 40}
    trainer = _number(3, 1) + _number(35, model.byte_fallback)
    for i, kind in enumerate(model.types):
        if number := special.pop(kind, None):
            trainer += _number(number, i) + _bytes(45, model.pieces[i].encode())
    # no piece plays the parts of <s>, </s> and <pad>: templates are ours
    trainer += b"".join(_number(number, (1 << 64) - 1) for number in (41, 42, 43))
    normalizer = _bytes(1, b"kerasbert") + _bytes(2, model.charsmap)
    normalizer += _number(3, model.dummy_prefix) + _number(4, model.remove_extra) + _number(5, model.escape)
    return b"".join(parts) + _bytes(2, trainer) + _bytes(3, normalizer)


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """(number, value, an int or bytes) of a message's fields; groups are not used."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, at = _varint(data, at)
            yield number, value
            continue
        if wire == 2:
            size, at = _varint(data, at)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise ValueError(wire)
        if at + size > len(data):
            raise ValueError(size)
        yield number, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError(shift)


def _number(field: int, value: int) -> bytes:
    return _to_varint(field << 3) + _to_varint(int(value))


def _bytes(field: int, value: bytes) -> bytes:
    return _to_varint(field << 3 | 2) + _to_varint(len(value)) + value


def _to_varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def preprocessed(
    text: str, lowercase: bool, strip_accents: bool, replaced: Mapping[str, str] = MappingProxyType(QUOTES)
) -> str:
    """ALBERT's and XLNet's preprocessing of a text; the accents are all marks of its NFKD form.

    Args:
        replaced: string -> what stands for it, one after the other; their quotes by default.

    >>> preprocessed("``Élan''", lowercase=True, strip_accents=True)
    '"elan"'
    """
    for string, other in replaced.items():
        text = text.replace(string, other)
    if strip_accents:
        text = "".join(c for c in unicodedata.normalize("NFKD", text) if unicodedata.category(c)[0] != "M")
    return "".join(c.lower() for c in text) if lowercase else text


def folded(
    model: Model,
    lowercase: bool,
    strip_accents: bool,
    replaced: Mapping[str, str] = MappingProxyType(QUOTES),
    blanks: str = "",
) -> Model:
    """A model whose normalisation begins with `preprocessed`.

    The preprocessing becomes part of the character map, so that every tokenizer made of the model, the graph's too, does
    it. Lower case is by character, as in Hugging Face's AlbertTokenizer.

    Args:
        blanks: characters that are blanks wherever the model's own rules give them, as a split at white space takes them.
    """
    return model._replace(charsmap=_folded(model.charsmap, lowercase, strip_accents, tuple(replaced.items()), blanks))


@functools.lru_cache(maxsize=8)  # a second; nearly all models have one of two maps
def _folded(
    data: bytes, lowercase: bool, strip_accents: bool, replaced: tuple[tuple[str, str], ...], blanks: str
) -> bytes:
    """The character map of `folded`."""
    charsmap, others = Charsmap(data), dict(replaced)

    def before(text: str) -> str:
        return preprocessed(text, lowercase, strip_accents, others)

    def after(text: str) -> str:
        parts, at = [], 0
        while at < len(text):
            read, part = charsmap.longest(text, at)
            parts.append(part)
            at += read
        return "".join(parts).translate(spaces)

    spaces = dict.fromkeys(map(ord, blanks), " ")
    rules = {text: result.translate(spaces) for text, result in charsmap.rules().items() if before(text) == text}
    first = 0x80 if lowercase or strip_accents else 0x110000
    for begin in range(first, 0x110000, 0x80):
        block = "".join(map(chr, range(begin, begin + 0x80)))
        if before(block) == block:  # most of them: 1.1 million calls for single characters take seconds
            continue
        for character in block:
            if (changed := before(character)) != character and (result := after(changed)) != character:
                rules[character] = result
    if lowercase:
        rules |= {chr(code): after(chr(code + 32)) for code in range(ord("A"), ord("Z") + 1)}
    rules |= {string: after(before(string)) for string in (*blanks, *others)}
    return compile_charsmap(rules)
