"""Errors that a user can act on: what, received, expected, what to do, in one line."""

from collections.abc import Iterable

EXTRAS = {  # library -> the extra of setup.cfg that brings it
    "tensorflow": "tensorflow",
    "keras": "tensorflow",
    "tensorflow_text": "tensorflow",
    "rich": "tensorflow",
    "yaml": "tensorflow",
    "matplotlib": "tensorflow",
    "ai_edge_litert": "mobile",
    "flatbuffers": "mobile",
    "apache_beam": "beam",
    "gensim": "vectors",
    "pyarrow": "formats",
    "zstandard": "formats",
    "sacrebleu": "generation",
    "rouge_score": "generation",
    "jax": "tpu-check",
    "libtpu": "tpu-check",
}


class InputError(ValueError):
    """A mistake in what the user gave; the command line prints it as one line and exits with `status`."""

    status = 2


class NonFinite(InputError):
    """A loss or gradient that is not finite; the command line exits with status 3: restart scripts must not retry it."""

    status = 3


Exploded = NonFinite  # its old name


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name closest to `name`, or None where nothing is known."""
    import difflib  # here: a phone that makes no mistake does without

    known = list(known)
    close = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.0)
    return close[0] if close else None


def unknown(kind: str, name: str, known: Iterable[str], where: str) -> InputError:
    """The error for a name that does not exist.

    >>> str(unknown("task", "glue/sst-2", ["glue/sst2", "glue/cola"], "kerasbert list tasks"))
    "no task 'glue/sst-2'. Nearest: 'glue/sst2'. All: kerasbert list tasks"
    """
    best = nearest(str(name), known)
    hint = f" Nearest: {best!r}." if best else ""
    return InputError(f"no {kind} {str(name)!r}.{hint} All: {where}")


def install(extra: str) -> str:
    """How to install an extra. The package is not on PyPI: a bare `pip install kerasbert` would fetch a stranger's.

    >>> install("mobile")
    "in a checkout of kerasbert: pip install '.[mobile]'"
    """
    return f"in a checkout of kerasbert: pip install '.[{extra}]'"


def missing(library: str | None, extra: str | None = None) -> str | None:
    """What to say of a library that is not installed, or None for one that no extra brings.

    Args:
        library: str, the name of the module that was not found.
        extra: str, the extra that brings all that the caller needs; by default the library's own.

    >>> missing("yaml")
    "yaml, which is not installed. Do, in a checkout of kerasbert: pip install '.[tensorflow]'"
    """
    top = (library or "").partition(".")[0]
    if top not in EXTRAS and not (extra and top == "numpy"):
        return None
    return f"{top}, which is not installed. Do, {install(extra or EXTRAS[top])}"
