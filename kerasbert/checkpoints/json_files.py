"""Json files of checkpoints and model directories, which may come from anywhere."""

import json
import math
from pathlib import Path
from typing import NoReturn, TypeVar

from kerasbert.errors import InputError
from kerasbert.storage.json_view import unrepeated

LONGEST = 64_000_000  # bytes; the index of a sharded model names every tensor once
DEEPEST = 64  # objects and lists within one another
Read = TypeVar("Read")


def read_json(path: Path, kind: type[Read] = dict) -> Read:
    """A json object, or a value of another kind, from a file of bounded size, or an InputError.

    A key twice in an object, NaN and infinite numbers are refused: of two values one would be lost, and json has no NaN.
    """
    try:
        if path.stat().st_size > LONGEST:
            raise InputError(f"{path} has {path.stat().st_size} bytes, expected at most {LONGEST}")
        text = path.read_text("utf-8")
        value = json.loads(text, object_pairs_hook=unrepeated, parse_constant=_constant, parse_float=_number)
        _check_depth(value)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} is no json: {str(error).splitlines()[0]}") from error
    if not isinstance(value, kind):
        expected = "a json object" if kind is dict else f"a json {kind.__name__}"
        raise InputError(f"{path} holds {type(value).__name__}, expected {expected}")
    return value


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number there")


def _number(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"the number {digits[:40]} is too large")
    return value


def _check_depth(value: object) -> None:
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > DEEPEST:
            raise ValueError(f"nested more than {DEEPEST} deep")
        inner = [each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list)]
        level = [each for values in inner for each in values if isinstance(each, dict | list)]
