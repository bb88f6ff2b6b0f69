"""Settings of decoding: what makes no sense is refused in one line."""

import numpy as np
import pytest

from kerasbert.answers.decoding import Decoding, grown
from kerasbert.errors import InputError


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"beams": 0}, "beams must be a whole number of at least 1. Received: 0"),
        ({"beams": 2.5}, "beams must be a whole number"),
        ({"max_new_tokens": 0}, "max_new_tokens must be a whole number of at least 1"),
        ({"top_k": 0}, "top_k must be a whole number of at least 1"),
        ({"seed": -1}, "seed must be a whole number of at least 0"),
        (
            {"temperature": 0},
            "temperature must be a number above 0, or None for none: greedy decoding has no temperature. Received: 0",
        ),
        ({"temperature": float("nan")}, "temperature must be a number above 0, or None .*Received: nan"),
        ({"repetition_penalty": -1.0}, "repetition_penalty must be a number above 0. Received: -1.0"),
        ({"top_p": 1.5}, "top_p must be a number above 0 and at most 1. Received: 1.5"),
        ({"coverage_penalty": -0.1}, "coverage_penalty must be a number of at least 0. Received: -0.1"),
        ({"length_penalty": "1"}, "length_penalty must be a number. Received: '1'"),
        ({"min_new_tokens": 9, "max_new_tokens": 9}, "min_new_tokens is 9, expected less than max_new_tokens, 9"),
        ({"forced_bos_token_id": -1}, "forced_bos_token_id must be a whole number of at least 0. Received: -1"),
        ({"no_repeat_ngram_size": -1}, "no_repeat_ngram_size must be a whole number of at least 0. Received: -1"),
        ({"suppress_tokens": [1, "a"]}, "suppress_tokens must be of whole numbers of at least 0. Received"),
        ({"begin_suppress_tokens": 3}, "begin_suppress_tokens must be of whole numbers of at least 0. Received: 3"),
        ({"bad_words_ids": [3]}, "bad_words_ids must be a list of lists of ids. Received"),
        ({"bad_words_ids": [[]]}, "bad_words_ids must be of whole numbers"),
        ({"early_stopping": "often"}, "early_stopping must be true, false or never. Received: 'often'"),
        ({"num_return_sequences": 3, "beams": 2}, "num_return_sequences is 3, expected at most beams, 2"),
        ({"num_return_sequences": 2}, "num_return_sequences is 2, expected at most beams, 1, or tokens that are drawn"),
        ({"beams": 4, "top_p": 0.9}, "beams is 4 and temperature, top_k or top_p is given"),
    ],
)
def test_settings_that_make_no_sense(settings, message):
    with pytest.raises(InputError, match=message):
        Decoding(**settings)


@pytest.mark.parametrize(
    "settings",
    [
        *({"beams": 2, "early_stopping": value} for value in (None, False, True, "never")),
        {"beams": 1, "temperature": 0.01, "top_k": 1, "top_p": 1, "num_return_sequences": 9},
        {"beams": 2, "num_return_sequences": 2, "length_penalty": -3, "coverage_penalty": 0, "repetition_penalty": 0.1},
        {"min_new_tokens": 8, "max_new_tokens": 9, "seed": 0, "no_repeat_ngram_size": 0},
        {"min_new_tokens": 0, "max_new_tokens": 1, "forced_bos_token_id": 0, "forced_eos_token_id": 0},
        {"suppress_tokens": [0], "begin_suppress_tokens": (0,), "bad_words_ids": [[0], (0, 1)]},
    ],
)
def test_settings_at_the_edge_are_taken(settings):
    assert {name: getattr(Decoding(**settings), name) for name in settings} == settings
    Decoding(**settings).check(2, 100)


def test_what_is_forced_and_what_is_never_written():
    plain = Decoding(max_new_tokens=5)
    assert (plain.forced, plain.begin, plain.banned(0)) == ({}, 0, ((), ()))
    both = Decoding(max_new_tokens=5, forced_bos_token_id=3, forced_eos_token_id=2)
    assert (both.forced, both.begin) == ({0: 3, 4: 2}, 1)
    assert Decoding(max_new_tokens=1, forced_bos_token_id=3, forced_eos_token_id=2).forced == {0: 3}  # it stands first
    words = Decoding(suppress_tokens=[9, 4], bad_words_ids=[[7], [0], [5, 6], [1, 2, 3]])
    assert words.banned(end_id=0) == ((4, 7, 9), ((5, 6), (1, 2, 3)))


def test_what_a_model_just_can():
    Decoding(forced_bos_token_id=6, suppress_tokens=[6], bad_words_ids=[[6]], max_new_tokens=2).check(7, 16, 15)
    with pytest.raises(InputError, match="set max_new_tokens to 2"):
        Decoding(max_new_tokens=3).check(7, 16, 15)


def test_what_a_model_cannot_do():
    Decoding(beams=7, max_new_tokens=8).check(7, 16, 9)
    with pytest.raises(InputError, match="beams is 8, expected at most the vocabulary's 7 tokens"):
        Decoding(beams=8).check(7)
    with pytest.raises(InputError, match="the forced token 7 is none of the vocabulary's 7 tokens"):
        Decoding(forced_bos_token_id=7).check(7)
    with pytest.raises(InputError, match="the suppressed token 9 is none of the vocabulary's 7 tokens"):
        Decoding(bad_words_ids=[[3, 9]]).check(7)
    with pytest.raises(InputError, match="the prompt has no tokens, expected at least one"):
        Decoding().check(7, 16, 0)
    with pytest.raises(
        InputError, match="the prompt has 16 tokens, expected less than the model's 16 positions: shorten it"
    ):
        Decoding(max_new_tokens=1).check(7, 16, 16)
    with pytest.raises(InputError, match="shorten the prompt, or set max_new_tokens to 7"):
        Decoding(max_new_tokens=8).check(7, 16, 10)


def test_tokens_are_drawn_where_something_says_so():
    assert not Decoding(beams=3).draws
    assert all(Decoding(**each).draws for each in ({"temperature": 1.0}, {"top_k": 1}, {"top_p": 1.0}))


def test_a_state_grows():
    state = {"key_0": np.ones((1, 2, 3, 4), "float16"), "source_key_0": np.ones((1, 2, 5, 4))}
    wider = grown(state, 6)
    assert wider["key_0"].shape == (1, 2, 6, 4)
    assert wider["key_0"].dtype == "float16"
    assert wider["key_0"].sum() == 24
    assert wider["source_key_0"] is state["source_key_0"]
