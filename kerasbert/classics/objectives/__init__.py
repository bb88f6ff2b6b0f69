"""Objectives of recurrent networks, of sentences and of word vectors."""
