"""One paper, one file: differences with section numbers, new mathematics, one declaration."""

import math
from typing import TYPE_CHECKING

from kerasbert.spec import Spec

if TYPE_CHECKING:
    from collections.abc import Callable

    from kerasbert.layers.encoder import SpecModel


def parameters(encoder: "Callable[..., SpecModel]", spec: Spec) -> int:
    """Weights of an encoder without task heads, counted without allocating them."""
    from kerasbert.layers.naming import unallocated

    with unallocated():
        made = encoder(spec)
        made.build()
        return sum(math.prod(variable.shape) for variable in made.weights)
