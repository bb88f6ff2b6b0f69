"""What models answer: numbers -> objects, the same from `kb.predict` and from the phone. One file a kind; numpy at most.

A third party adds a kind by `register(ITS_KIND)`, and its side of training by `tasks.base.register`.
"""

from kerasbert.answers.base import Kind
from kerasbert.answers.choice import KIND as _CHOICE
from kerasbert.answers.choice import Choice
from kerasbert.answers.classification import KIND as _CLASSIFICATION
from kerasbert.answers.classification import Classification
from kerasbert.answers.generation import KIND as _GENERATION
from kerasbert.answers.generation import Generation
from kerasbert.answers.multi_label import KIND as _MULTI_LABEL
from kerasbert.answers.multi_label import MultiLabel
from kerasbert.answers.regression import KIND as _REGRESSION
from kerasbert.answers.regression import Regression
from kerasbert.answers.span import KIND as _SPAN
from kerasbert.answers.span import Span
from kerasbert.answers.tags import KIND as _TAGS
from kerasbert.answers.tags import Entity, Tags
from kerasbert.answers.tokens import KIND as _TOKENS
from kerasbert.answers.tokens import FillMask
from kerasbert.answers.vector import KIND as _VECTOR
from kerasbert.answers.vector import Vector
from kerasbert.errors import InputError, unknown

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

KINDS: dict[str, Kind] = {}


def register(kind: Kind) -> Kind:
    """Make a kind known by its name and its older names."""
    for name in (kind.name, *kind.aliases):
        if name in KINDS and type(KINDS[name]) is not type(kind):
            raise InputError(f"the kind {name!r} is registered already: choose another name")
        KINDS[name] = kind
    return kind


def find(name: str) -> Kind:
    """The kind of that name, or of an older name.

    Raises:
        InputError: no such kind: a file of a later kerasbert, or of a plug-in that is not loaded.
    """
    if name not in KINDS:
        raise unknown(
            "kind of answer", name, sorted({kind.name for kind in KINDS.values()}), "a plug-in: --plugin FILE"
        )
    return KINDS[name]


for _kind in (_CHOICE, _CLASSIFICATION, _GENERATION, _MULTI_LABEL, _REGRESSION, _SPAN, _TAGS, _TOKENS, _VECTOR):
    register(_kind)
