"""Text <-> ids. Nothing here imports TensorFlow; `kerasbert.text.graph` and `kerasbert.text.train` do, when called."""

from kerasbert.text.answers import Classification, Regression, Vector
from kerasbert.text.files import load_tokenizer, save_hf
from kerasbert.text.wordpiece import Tokens, WordPiece

__all__ = ["Classification", "Regression", "Tokens", "Vector", "WordPiece", "load_tokenizer", "save_hf"]
