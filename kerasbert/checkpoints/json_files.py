"""Json files of checkpoints and model directories, which may come from anywhere."""

import json
from pathlib import Path
from typing import Any

from kerasbert.errors import InputError

LONGEST = 64_000_000  # bytes; the index of a sharded model names every tensor once


def read_json(path: Path, kind: type = dict) -> Any:
    """A json object, or a value of another kind, from a file of bounded size, or an InputError."""
    try:
        if path.stat().st_size > LONGEST:
            raise InputError(f"{path} has {path.stat().st_size} bytes, expected at most {LONGEST}")
        value = json.loads(path.read_text("utf-8"))
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
