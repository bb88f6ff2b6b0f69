"""One annotation of a text: where it begins and ends and what it says that this is, in any of the forms of annotation tools."""

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kerasbert.errors import InputError
from kerasbert.tasks.tables import Source, where

STARTS = ("start", "start_offset", "start_char", "begin")
ENDS = ("end", "end_offset", "end_char")
NAMES = ("label", "labels", "entity_group", "type", "tag", "entity", "entity_type")
OWN = ("text", "word")  # what an annotation says that it covers


class Annotated(NamedTuple):
    """What a row is of.

    Args:
        text: str. spans: [start, end, label] each, or objects of them; `Unlabelled` where nobody annotated it.
        utf16: bool, whether offsets count UTF-16 units where nothing else decides.
        others: int, annotations of the same text that are left out.
    """

    text: object
    spans: object
    utf16: bool = False
    others: int = 0


class Marked(NamedTuple):
    """An annotation: characters from `start` to `end`, exclusive, and what it says that they are."""

    start: int
    end: int
    label: str
    text: str | None = None


def span_of(value: object, place: str) -> Marked:
    """An annotation of any of the forms.

    Raises:
        InputError: it has no offsets, or not one label.
    """
    text = None
    if isinstance(value, Mapping):
        offsets = value.get("offsets")
        if isinstance(offsets, list) and len(offsets) == 1 and isinstance(offsets[0], list) and offsets[0]:  # BigBIO's
            value = {**value, "start": offsets[0][0], "end": offsets[0][-1]}
        start, end, label = (next((value[n] for n in names if n in value), None) for names in (STARTS, ENDS, NAMES))
        text = next((value[name] for name in OWN if isinstance(value.get(name), str)), None)
        label = label[0] if isinstance(label, list) and len(label) == 1 else label
    elif isinstance(value, list | tuple) and len(value) >= 3:
        start, end, label = value[:3]
    else:
        start = end = label = None
    numbers = [each for each in (start, end) if type(each) is int or (isinstance(each, float) and each.is_integer())]
    if len(numbers) < 2 or not isinstance(label, str | int) or label == "":
        raise InputError(f"{place}: {json.dumps(value, default=str)!s:.80} is no [start, end, label] with one label")
    return Marked(int(numbers[0]), int(numbers[1]), str(label).strip(), text)


def counted(source: Source, line: int, text: str, spans: Sequence[object]) -> Sequence[object]:
    """Spans in UTF-16 units in characters, but for those whose own text says that they are in characters."""
    if max(map(ord, text), default=0) < 2**16:
        return spans
    units = [place for place, character in enumerate(text) for _ in range(1 + (ord(character) >= 2**16))] + [len(text)]
    found = []
    for value in spans:
        span = span_of(value, where(source, line))
        if span.text is not None and same(text[max(0, span.start) : span.end], span.text):
            found.append(span)
            continue
        if not 0 <= span.start < span.end < len(units):
            raise outside(source, line, span, len(units) - 1)
        found.append(span._replace(start=units[span.start], end=units[span.end - 1] + 1))
    return found


def same(one: str, other: str) -> bool:
    """Whether two texts have the same letters and digits: tools write line breaks and blanks otherwise."""
    return [each for each in one if each.isalnum()] == [each for each in other.replace("\\n", "") if each.isalnum()]


def outside(source: Source, line: int, span: Marked, length: int) -> InputError:
    what = "ends before it begins" if span.end <= span.start and span.start >= 0 else "lies outside the text"
    return InputError(
        f"{where(source, line)}: the entity {span.label!r} from {span.start} to {span.end} {what}, of {length} characters"
    )
