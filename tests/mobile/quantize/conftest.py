"""Fine-tuned tiny models, as the tests of pruning make them."""

from tests.mobile.prune.conftest import files, finetuned

__all__ = ["files", "finetuned"]
