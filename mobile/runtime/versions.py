"""Interpreters that are known to compute a kind of file wrongly, refused before they answer."""

import re
from pathlib import Path

from kerasbert.errors import InputError
from kerasbert.export.bundle import Bundle


def check(path: Path, bundle: Bundle) -> None:
    """Refuse a file that the installed ai-edge-litert computes wrongly.

    Raises:
        InputError: it is older than what the bundle names, or does not say its version.
    """
    if not bundle.litert:
        return
    try:
        import ai_edge_litert
    except ImportError:  # `interpreter` says what there is
        return
    installed = getattr(ai_edge_litert, "__version__", "unknown")
    if numbers(installed) < numbers(bundle.litert):
        raise InputError(
            f"{path} is {bundle.quantization}, which ai-edge-litert {installed} computes wrongly, expected at least "
            f"{bundle.litert}. Do: pip install 'ai-edge-litert>={bundle.litert}'"
        )


def numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version; none in what is not one.

    >>> numbers("2.1.3"), numbers("2.2.0.dev20260101"), numbers("unknown")
    ((2, 1, 3), (2, 2, 0), ())
    """
    found = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, found[0].split("."))) if found else ()
