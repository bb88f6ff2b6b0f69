"""The vocabulary of a model: pieces that a corpus does not use go. Imports nothing heavy."""
