"""Text <-> ids. Nothing here imports TensorFlow; `kerasbert.text.graph` and `kerasbert.text.train` do, when called."""

from kerasbert.text.base import Tokenizer, Tokens
from kerasbert.text.bpe import BytePairEncoding
from kerasbert.text.files import held_tokenizer, load_tokenizer
from kerasbert.text.hf_save import save_hf
from kerasbert.text.unigram import Unigram
from kerasbert.text.wordpiece import WordPiece

__all__ = [
    "BytePairEncoding",
    "Classification",  # pyright: ignore[reportUnsupportedDunderAll]  # of `__getattr__`
    "Regression",  # pyright: ignore[reportUnsupportedDunderAll]  # of `__getattr__`
    "Tokenizer",
    "Tokens",
    "Unigram",
    "Vector",  # pyright: ignore[reportUnsupportedDunderAll]  # of `__getattr__`
    "WordPiece",
    "held_tokenizer",
    "load_tokenizer",
    "save_hf",
]


def __getattr__(name: str) -> type:
    """The answers, which were here once; they bring numpy, which a tokenizer does without."""
    if name not in ("Classification", "Regression", "Vector"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from kerasbert import answers

    return getattr(answers, name)
