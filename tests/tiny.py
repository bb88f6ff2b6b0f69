"""The tiny world of the tests, which `kerasbert.testing` gives to others too."""

from kerasbert.testing import world
from kerasbert.testing.world import BAD, GOOD, WORDS, corpus, labelled, records, sentences, tokenizer

SPEC = world.SPEC | {"blocks.layers": 1}  # tracing is most of a tiny run, and grows with the layers

__all__ = ["BAD", "GOOD", "SPEC", "WORDS", "corpus", "labelled", "records", "sentences", "tokenizer"]
