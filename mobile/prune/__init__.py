"""Pruning: `magnitude` makes weights zero (the file zips smaller), `heads`, `width` and `layers` take them out (it runs faster).

Imports nothing heavy.
"""

from kerasbert import lazy

_HOMES = {
    "Magnitude": "sparsity",
    "magnitude": "sparsity",
    "sparsity_of": "sparsity",
    "heads": "structured",
    "layers": "structured",
    "width": "structured",
}
__getattr__, __dir__, __all__ = lazy.public(__name__, _HOMES)
