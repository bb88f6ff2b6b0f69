"""Text <-> ids. Nothing here imports TensorFlow; `kerasbert.text.graph` and `kerasbert.text.train` do, when called."""

from kerasbert.answers import Classification, Regression, Vector
from kerasbert.text.base import Tokenizer, Tokens
from kerasbert.text.bpe import BytePairEncoding
from kerasbert.text.files import held_tokenizer, load_tokenizer
from kerasbert.text.hf_save import save_hf
from kerasbert.text.unigram import Unigram
from kerasbert.text.wordpiece import WordPiece

__all__ = [
    "BytePairEncoding",
    "Classification",
    "Regression",
    "Tokenizer",
    "Tokens",
    "Unigram",
    "Vector",
    "WordPiece",
    "held_tokenizer",
    "load_tokenizer",
    "save_hf",
]
