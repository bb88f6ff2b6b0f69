"""The tiny world of the tests, which `kerasbert.testing` gives to others too."""

from kerasbert.testing.world import BAD, GOOD, SPEC, WORDS, corpus, labelled, records, sentences, tokenizer

__all__ = ["BAD", "GOOD", "SPEC", "WORDS", "corpus", "labelled", "records", "sentences", "tokenizer"]
