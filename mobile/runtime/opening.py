"""What is looked at before a file is run: its bytes, the plug-in that it was made with, its tokenizer."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from kerasbert import answers, registry
from kerasbert.errors import InputError, TextError
from kerasbert.export import bundle as bundles
from .versions import check


def opened(path: Path, plugins: Sequence[str | os.PathLike]) -> bundles.Bundle:
    """The bundle of a file whose bytes are those that it was written behind, and whose kind is known.

    Args:
        plugins: files, which are run.
    """
    bundle = bundles.read(path)
    digest = bundles.digest(path)
    if digest != bundle.digest:
        raise InputError(
            f"{path} is damaged: its first part has sha256 {digest[:12]}, its bundle says {bundle.digest[:12] or 'nothing'!r}. "
            "Copy it again or write it again"
        )
    check(path, bundle)
    _plug_in(path, bundle, plugins)
    return bundle


def _plug_in(path: Path, bundle: bundles.Bundle, plugins: Sequence[str | os.PathLike]) -> None:
    """Run the plug-ins' files, and refuse a bundle whose kind or makers are not known then."""
    wanted = bundle.plugin
    sums = {str(file): registry.plugin_digest(file) for file in plugins}
    if wanted and sums and wanted["sha256"] not in sums.values():
        held = ", ".join(f"{file} with {digest[:12]}" for file, digest in sums.items())
        raise InputError(
            f"{path} was made with the plug-in {wanted['file']!r:.80} of sha256 {wanted['sha256'][:12]}, received {held}: give "
            "that file, or compress again"
        )
    for file in plugins:
        try:
            registry.load_plugin(file)
        except ImportError as error:
            raise InputError(
                f"the plug-in {file} needs {error.name}, which is not installed: import it inside functions, or keep what a "
                "phone needs (answers, makers) in a file of its own"
            ) from error
    try:
        kind = answers.find(bundle.kind).configured(bundle.options)
        for each in bundle.inputs:
            each.declared()
    except InputError as error:
        if not wanted:
            raise InputError(f"{path}: {error}") from error
        raise InputError(
            f"{path} answers with {bundle.kind!r:.40}, which the plug-in {wanted['file']!r:.80} brings: give that file to "
            "load(FILE, plugin=PATH) or --plugin PATH"
        ) from error
    if kind.labelled != bool(bundle.labels):
        raise InputError(f"{path} has {len(bundle.labels)} labels of a {kind.name}. Write the file again")


@contextlib.contextmanager
def tokenizing(path: Path) -> Iterator[None]:
    """Whatever a tokenizer raises that came in a file becomes an InputError of one line; a mistake in a text stays one."""
    try:
        yield
    except TextError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{path} carries a damaged tokenizer: {reason[:200]}") from error
