"""kb_result through ctypes, and whether it says what the json beside it says."""

import ctypes
from collections.abc import Sequence
from typing import Any

from kerasbert.mobile.runtime import native

_SIZE = ctypes.c_size_t


class Range(ctypes.Structure):
    """kb_range."""

    _fields_ = (("start", _SIZE), ("end", _SIZE))


class Span(ctypes.Structure):
    """kb_span."""

    _fields_ = (
        ("text", native._Json),
        ("label", native._Json),
        ("score", ctypes.c_double),
        ("codes", Range),
        ("bytes", Range),
        ("units", Range),
    )


class Label(ctypes.Structure):
    """kb_label."""

    _fields_ = (
        ("name", native._Json),
        ("score", ctypes.c_double),
        ("id", ctypes.c_int32),
        ("chosen", ctypes.c_int32),
    )


class Result(ctypes.Structure):
    """kb_result."""

    _fields_ = (
        ("labels", ctypes.POINTER(Label)),
        ("label_count", _SIZE),
        ("mask_count", _SIZE),
        ("spans", ctypes.POINTER(Span)),
        ("entities", ctypes.POINTER(Span)),
        ("span_count", _SIZE),
        ("entity_count", _SIZE),
        ("values", ctypes.POINTER(ctypes.c_float)),
        ("value_count", _SIZE),
        ("text", native._Json),
        ("truncated", ctypes.c_int32),
    )


def _text(text: native._Json) -> str:
    return ctypes.string_at(text.data, text.size).decode()


def _spans(spans: Any, count: int, source: bytes) -> list[dict]:
    """Spans as json has them; each one's offsets cut its text out of the source, in every unit."""
    string, found = source.decode("utf-8", "replace"), []
    units = string.encode("utf-16-le")
    for span in spans[:count]:
        text = _text(span.text)
        assert string[span.codes.start : span.codes.end] == text
        assert source[span.bytes.start : span.bytes.end].decode("utf-8", "replace") == text
        assert units[2 * span.units.start : 2 * span.units.end].decode("utf-16-le") == text
        found.append({"label": _text(span.label), "text": text, "start": span.codes.start, "end": span.codes.end})
        found[-1]["score"] = span.score
    return found


def _labels(result: Result) -> list[tuple[str, float, int, bool]]:
    labels = result.labels[: result.label_count]
    return [(_text(each.name), each.score, each.id, bool(each.chosen)) for each in labels]


def _span(result: Result, texts: Sequence[bytes]) -> dict:
    best, *others = _spans(result.spans, result.span_count, texts[1])
    others = [{name: each[name] for name in each if name != "label"} for each in others]
    assert best.pop("label") == ""
    return best | ({"alternatives": others} if others else {})


def _tags(result: Result, texts: Sequence[bytes]) -> dict:
    words, source = _spans(result.spans, result.span_count, b" ".join(texts)), b" ".join(texts)
    columns = {"words": "text", "labels": "label", "starts": "start", "ends": "end", "scores": "score"}
    found = {name: [word[column] for word in words] for name, column in columns.items()}
    return found | {"entities": _spans(result.entities, result.entity_count, source)}


def _tokens(result: Result, texts: Sequence[bytes]) -> dict:
    tokens, each = _labels(result), result.label_count // result.mask_count
    rows = [tokens[i : i + each] for i in range(0, len(tokens), each)]
    assert [[token[3] for token in row] for row in rows] == [[True] + [False] * (each - 1)] * result.mask_count
    named = [[{"token": name, "score": score, "id": id} for name, score, id, _ in row] for row in rows]
    return {"text": _text(result.text), "tokens": named}


def as_json(result: Result, kind: str, texts: Sequence[bytes]) -> dict:
    """What the json of an answer would be, of the typed one; offsets are checked against the texts of the input."""
    labels = _labels(result)
    chosen = [each for each in labels if each[3]]
    if kind != "tokens":
        assert [each[2] for each in labels] == list(range(len(labels)))
    scores = {each[0]: each[1] for each in labels}
    if kind == "classification":
        answer: dict = {"label": chosen[0][0], "score": chosen[0][1], "scores": scores}
    elif kind == "multi_label":
        answer = {"labels": [each[0] for each in chosen], "scores": scores}
    elif kind == "choice":
        ((text, score, index, _),) = chosen
        answer = {"index": index, "text": text, "score": score, "scores": [each[1] for each in labels]}
    elif kind == "generation":
        written = [{"text": each[0], "score": each[1]} for each in labels]
        assert (chosen, _text(result.text)) == (labels[:1], labels[0][0])
        answer = {**written[0], **({"sequences": written} if len(written) > 1 else {})}
    elif kind == "regression":
        answer = {"value": result.values[0]}
    elif kind == "vector":
        answer = {"values": result.values[: result.value_count]}
    else:
        answer = {"span": _span, "tags": _tags, "tokens": _tokens}[kind](result, texts)
    return answer | ({"truncated": True} if result.truncated else {})
