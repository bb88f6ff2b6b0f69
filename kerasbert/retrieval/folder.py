"""The folder of an index, as its index.json tells it. Standard library alone: the command line asks."""

import json
import os
from pathlib import Path
from typing import Any

from kerasbert.errors import InputError

INDEX, VECTORS = "index.json", "vectors.npy"
FORMAT = 1


def is_index(path: str | os.PathLike) -> bool:
    """Whether a folder is an index."""
    return os.path.isfile(os.path.join(path, INDEX))


def about(path: str | os.PathLike) -> dict[str, Any]:
    """What index.json says, without TensorFlow.

    Raises:
        InputError: it is no index, or one of another version.
    """
    from kerasbert.retrieval import forms

    path = Path(path)
    if not is_index(path):
        raise InputError(f"{path} is no index (no {INDEX}), expected a folder that kerasbert index wrote")
    try:
        found = json.loads((path / INDEX).read_text(encoding="utf-8"))
        version = found["index"]
        _ = found["model"]["path"], found["count"] + found["width"], forms.DTYPES[found["dtype"]], found["settings"]
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise InputError(f"{path} is damaged ({INDEX}): build it again with --overwrite") from error
    if version != FORMAT:
        raise InputError(f"{path} has the format {version} of an index, this kerasbert reads {FORMAT}: build it again")
    return found
