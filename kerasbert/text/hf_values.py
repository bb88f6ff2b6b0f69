"""Values of Hugging Face's json files, with their types checked. Standard library only."""

from collections.abc import Container, Iterator, Mapping
from typing import Any

from kerasbert.errors import InputError

LARGEST = 1 << 22  # ids of a vocabulary


def short(value: object) -> str:
    """A value for an error's text."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def field(part: Mapping, name: str, kind: type, where: str, default: Any) -> Any:
    """A value of a checked type; `default` where it is absent or null.

    Raises:
        InputError: another type.
    """
    value = part.get(name)
    if value is None:
        return default
    wanted = Mapping if kind is dict else kind
    if not isinstance(value, wanted) or (isinstance(value, bool) and kind is not bool):
        names = {dict: "an object", list: "a list", str: "a string", bool: "true or false", int: "a whole number"}
        raise InputError(f"{name} of {where} is {short(value)}, expected {names[kind]}")
    return value


def expect(*expected: tuple[str, object, object], kind: str) -> None:
    """Refuse values that are not the wanted ones: (name, received, wanted)."""
    for name, received, wanted in expected:
        if received != wanted:
            raise InputError(f"{name} is {short(received)}, expected {wanted!r}: only {kind} can be read")


def steps(part: object, key: str, where: str) -> Iterator[Mapping]:
    """A step, or those of a Sequence."""
    if part is None:
        return
    if not isinstance(part, Mapping) or not isinstance(part.get("type"), str):
        raise InputError(f"{where} is {short(part)}, expected an object with a type")
    if part["type"] == "Sequence":
        for inner in field(part, key, list, where, []):
            yield from steps(inner, key, where)
    else:
        yield part


def only_step(part: object, key: str, where: str, wanted: str, kind: str) -> Mapping:
    """The one step of a section.

    Raises:
        InputError: another one, none or several.
    """
    found = list(steps(part, key, where))
    expect((f"{where}.type", found[0]["type"] if found else None, wanted), kind=kind)
    if len(found) > 1:
        names = ", ".join(step["type"] for step in found)
        raise InputError(f"{where} has the steps {names}, expected {wanted} alone: only {kind} can be read")
    return found[0]


def by_id(ids: Mapping[str, int]) -> list[str]:
    """Pieces in the order of their ids, which are 0 to n - 1."""
    try:
        whole = sorted(ids.values()) == list(range(len(ids)))
    except TypeError:
        whole = False
    if not whole:
        raise InputError(f"the {len(ids)} ids of the vocabulary are not 0 to {len(ids) - 1}, each once")
    return sorted(ids, key=ids.__getitem__)


def filled(ids: Mapping[str, int], top: int) -> dict[str, int]:
    """The vocabulary with a piece that no text gives for each id up to `top` that it leaves out, so that ids stay as they are.

    >>> filled({"a": 0, "b": 2, "c": 3}, top=2)
    {'a': 0, 'b': 2, 'c': 3, '[gap 1]': 1}

    Raises:
        InputError: an id that is no number from 0, or is far beyond the number of pieces.
    """
    numbers = ids.values()
    if any(type(number) is not int or number < 0 for number in numbers):
        wrong = next(piece for piece, number in ids.items() if type(number) is not int or number < 0)
        raise InputError(
            f"the piece {short(wrong)} of the vocabulary has the id {short(ids[wrong])}, expected a number from 0"
        )
    if top > min(LARGEST, 2 * len(ids) + 1000):
        raise InputError(
            f"the {len(ids)} ids of the vocabulary go up to {top}, expected about as many ids as there are pieces"
        )
    held = set(numbers)
    return {**ids, **{gap(number, ids): number for number in range(top + 1) if number not in held}}


def gap(number: int, taken: Container[str]) -> str:
    """What stands for an id that no text gives: it has a blank and brackets, which no piece that a text gives has."""
    name = f"[gap {number}]"
    while name in taken:
        name = f"[{name}]"
    return name
