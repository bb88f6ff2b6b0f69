"""What models answer: numbers -> objects, the same from `kb.predict` and from the phone. One file a kind; numpy at most.

A third party adds a kind by `register(ITS_KIND)`, and its side of training by `tasks.base.register`. Ours are imported when
they are asked for: a phone answers with one of them.
"""

import importlib
from collections.abc import Iterator, MutableMapping
from typing import TYPE_CHECKING

from kerasbert import lazy
from kerasbert.answers.base import Kind
from kerasbert.errors import InputError, unknown

if TYPE_CHECKING:
    from kerasbert.answers.choice import Choice
    from kerasbert.answers.classification import Classification
    from kerasbert.answers.generation import Generation
    from kerasbert.answers.multi_label import MultiLabel
    from kerasbert.answers.regression import Regression
    from kerasbert.answers.span import Span
    from kerasbert.answers.tags import Entity, Tags
    from kerasbert.answers.tokens import FillMask
    from kerasbert.answers.vector import Vector

__all__ = [
    "Choice",
    "Classification",
    "Entity",
    "FillMask",
    "Generation",
    "Kind",
    "MultiLabel",
    "Regression",
    "Span",
    "Tags",
    "Vector",
    "find",
    "register",
]

_HOMES = {  # class -> its module; the module of a kind has the kind's name
    "Choice": "choice",
    "Classification": "classification",
    "Generation": "generation",
    "MultiLabel": "multi_label",
    "Regression": "regression",
    "Span": "span",
    "Entity": "tags",
    "Tags": "tags",
    "FillMask": "tokens",
    "Vector": "vector",
}
_OURS = tuple(dict.fromkeys(_HOMES.values()))
__getattr__, _, _ = lazy.public(__name__, _HOMES)


class _Kinds(MutableMapping[str, Kind]):
    """Names -> kinds. Ours enter when their name is asked for; all of them when another name or every name is."""

    def __init__(self) -> None:
        self.rows: dict[str, Kind] = {}
        self.waiting = dict.fromkeys(_OURS)  # ours that nobody asked for yet

    def _load(self, name: str) -> None:
        kind = importlib.import_module(f"{__name__}.{name}").KIND
        self.rows.setdefault(kind.name, kind)
        self.waiting.pop(name, None)

    def _load_all(self) -> None:
        for name in tuple(self.waiting):
            self._load(name)

    def __contains__(self, name: object) -> bool:
        if name in self.waiting:
            self._load(str(name))
        elif name not in self.rows:
            self._load_all()
        return name in self.rows

    def __getitem__(self, name: str) -> Kind:
        if name not in self:
            raise KeyError(name)
        return self.rows[name]

    def __setitem__(self, name: str, kind: Kind) -> None:
        self.rows[name] = kind

    def __delitem__(self, name: str) -> None:
        del self.rows[name]

    def __iter__(self) -> Iterator[str]:
        self._load_all()
        return iter(self.rows)

    def __len__(self) -> int:
        self._load_all()
        return len(self.rows)


KINDS = _Kinds()


def register(kind: Kind) -> Kind:
    """Make a kind known by its name.

    Raises:
        InputError: no instance of a subclass of Kind, no name, or one that another kind has.
    """
    if not isinstance(kind, Kind) or not kind.name:
        raise InputError(
            f"a kind of answer is an instance of a subclass of answers.Kind with a name. Received: {kind!r:.80}"
        )
    if kind.name in KINDS and type(KINDS[kind.name]) is not type(kind):
        raise InputError(f"the kind {kind.name!r} is registered already: choose another name")
    KINDS[kind.name] = kind
    return kind


def find(name: str) -> Kind:
    """The kind of that name.

    Raises:
        InputError: no such kind: a file of another kerasbert, or of a plug-in that is not loaded.
    """
    if name not in KINDS:
        raise unknown("kind of answer", name, sorted(KINDS), "a plug-in: --plugin FILE")
    return KINDS[name]
