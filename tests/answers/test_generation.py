"""Texts that are written: decoding of scores and ids by hand. No TensorFlow."""

import dataclasses

import numpy as np

from kerasbert import answers
from kerasbert.answers.generation import About, Generation, text_of
from kerasbert.inputs import row
from tests import tiny


def test_scores_stand_before_the_ids_of_each_text():
    tokenizer = tiny.tokenizer()
    kind = answers.find("generation").configured({"num_return_sequences": 2, "temperature": 1.0})
    ids = [tokenizer.encode(text) for text in ("the cat runs", "a dog sees")]
    source = dataclasses.replace(row([2, 3], [0, 0], True), about=About(tokenizer, None, 0))
    output = np.array([[-0.5, *ids[0]], [-2.0, *ids[1]]], "float32")
    first, second = Generation("the cat runs", -0.5), Generation("a dog sees", -2.0)
    for given in (output, output.reshape(-1)):
        found = kind.decode(("x",), [source], [given], ())
        assert found == dataclasses.replace(first, truncated=True, sequences=(first, second))


def test_a_text_ends_at_its_end_token():
    tokenizer = tiny.tokenizer()
    ids = tokenizer.encode("the cat")
    assert text_of(tokenizer, [*ids, tokenizer.sep_id, *tokenizer.encode("a dog")]) == "the cat"
    assert text_of(tokenizer, ids) == "the cat"
    assert text_of(tokenizer, np.array([tokenizer.sep_id])) == ""
