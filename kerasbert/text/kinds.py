"""What is done by the kind of a tokenizer: a row of `registry.TOKENIZERS`. Standard library only."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kerasbert.text.base import Tokenizer


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
    assets: Callable[[Path], tuple]
    learn: Callable[..., Tokenizer] | None = None
    graph: Callable[[Tokenizer], Any] | None = None
