"""The folder of an index, as its index.json tells it. Standard library alone: the command line asks."""

import json
import os
from pathlib import Path

from kerasbert.errors import InputError, nearest
from kerasbert.storage.json_view import Json

INDEX, VECTORS = "index.json", "vectors.npy"
FORMAT = 1
SETTINGS = ("pooling", "dims", "length", "language", "prompt_name")
"""What `kb.encode` was told of the texts, and is of a query."""


def damaged(path: str | os.PathLike, name: str) -> InputError:
    """The error of an index whose file of that name is not what was written."""
    return InputError(f"{path} is damaged ({name}): build it again with --overwrite")


def is_index(path: str | os.PathLike) -> bool:
    """Whether a folder is an index."""
    return os.path.isfile(os.path.join(path, INDEX))


def missing(path: Path) -> InputError:
    """The error of an index that is not there, with the nearest one beside it."""
    beside = sorted(each.name for each in path.parent.iterdir() if is_index(each)) if path.parent.is_dir() else []
    best = nearest(path.name, beside) or (beside[0] if len(beside) == 1 else None)
    told = f" Nearest: {str(path.parent / best)!r}." if best else ""
    return InputError(f"no index {path}.{told} kerasbert index RUN FILE --out {path} makes one")


def about(path: str | os.PathLike) -> Json:
    """What index.json says, without TensorFlow.

    Raises:
        InputError: it is no index, or one of another version.
    """
    from kerasbert.retrieval import forms
    from kerasbert.tasks import early_checks

    path = Path(path)
    if not path.exists():
        raise missing(path)
    if not is_index(path):
        raise InputError(f"{path} is no index (no {INDEX}), expected a folder that kerasbert index wrote")
    try:
        found = json.loads((path / INDEX).read_text(encoding="utf-8"))
        version = found["index"]
        early_checks.check_name_of_precision(found["model"]["precision"])
        _ = found["model"]["path"], found["count"] + found["width"], forms.DTYPES[found["dtype"]], found["query_prompt"]
        whole = set(found["settings"]) == set(SETTINGS)
    except (ValueError, KeyError, TypeError, OSError, InputError) as error:
        raise damaged(path, INDEX) from error
    if not whole:
        raise damaged(path, INDEX)
    if version != FORMAT:
        raise InputError(f"{path} has the format {version} of an index, this kerasbert reads {FORMAT}: build it again")
    return found
