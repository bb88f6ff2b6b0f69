"""What is done by the kind of a tokenizer: a row of `registry.TOKENIZERS`. Standard library only."""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

from kerasbert.errors import InputError
from kerasbert.text.base import Tokenizer
from kerasbert.text.in_memory import File

if TYPE_CHECKING:
    from kerasbert.text.graph import GraphTokenizer


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of tokenizer; `registry.register_tokenizer(name, Kind(...))` adds one.

    Args:
        tokenizer: a subclass of Tokenizer, made as tokenizer(*assets(folder), **settings); its `kind` is the row's name.
        assets: folder of a tokenizer.json -> the tokenizer's first arguments. The folder is a Path, or files in memory
            (`text.in_memory.InMemory`): `folder / NAME` has `read_bytes()`.
        learn: (lines, size, lowercase=bool) -> tokenizer, `lowercase` where it is asked for; None: it cannot be learned.
        graph: tokenizer -> `text.graph.GraphTokenizer`; None: it has no form as TensorFlow operations.
    """

    tokenizer: type[Tokenizer]
    assets: Callable[[File], tuple]
    learn: Callable[..., Tokenizer] | None = None
    graph: "Callable[[Tokenizer], GraphTokenizer] | None" = None


def check(name: str, kind: object) -> None:
    """The rules of `registry.TOKENIZERS`.

    Raises:
        InputError: no Kind, a class that is no Tokenizer or has another `kind`, a part that is no function.
    """
    if not isinstance(kind, Kind):
        raise InputError(f"the tokenizer kind {name!r} is {kind!r:.80}, expected a kerasbert.text.kinds.Kind")
    made = kind.tokenizer
    if not (isinstance(made, type) and issubclass(made, Tokenizer)):
        raise InputError(f"the tokenizer of the kind {name!r} is {made!r:.80}, expected a subclass of Tokenizer")
    if made.kind != name:
        raise InputError(f"{made.__name__}.kind is {made.kind!r} and is registered as {name!r}: give both one name")
    for part in ("assets", "learn", "graph"):
        value = getattr(kind, part)
        if not (callable(value) or (value is None and part != "assets")):
            raise InputError(f"{part} of the tokenizer kind {name!r} is {value!r:.80}, expected a function")
