"""Decoding in the graph and in numpy, around a model that is a table. Against transformers: test_parity_decoding.py."""

import dataclasses
import itertools
import types

import numpy as np
import pytest
import tensorflow as tf

from kerasbert.answers import beam_search as numbers
from kerasbert.answers.beam_search import searched
from kerasbert.answers.decoding import Decoding
from kerasbert.errors import InputError
from kerasbert.layers import random
from kerasbert.layers.beam_search import generate

V, S, END = 7, 3, 2


class Toy:
    """Logits = the sum of what the tokens so far say, each half as much as the one after it; a source adds its own.

    Args:
        seed: int, of the tables.
        rows: int, of batches.
        end: float, added to the end's logit.
    """

    prompt = "decoder_"
    spec = types.SimpleNamespace(embeddings=types.SimpleNamespace(vocabulary=V))

    def __init__(self, seed=0, rows=4, end=0.0, scale=2.0):
        rng = np.random.default_rng(seed)
        self.table = rng.normal(0, scale, (V, V)).astype("float32")
        self.table[:, END] += end
        self.inputs = {"token_ids": rng.normal(0, 1, (rows, V)).astype("float32")}
        self.attention = rng.dirichlet(np.ones(S), V).astype("float32")

    def start(self, inputs, places):
        rows = inputs["token_ids"].shape[0]
        state = {"source_bias": inputs["token_ids"], "source_mask": np.array([[1, 1, 0]] * rows, "float32")}
        return {
            name: tf.convert_to_tensor(x) for name, x in (state | {"memory": np.zeros((rows, V), "float32")}).items()
        }

    def step(self, token_ids, column, state):
        """In TensorFlow or numpy."""
        gather = np.take if isinstance(token_ids, np.ndarray) else tf.gather
        memory = state["memory"] * np.float32(0.5) + gather(self.table, token_ids, axis=0)
        after = {**state, "memory": memory}
        if "coverage" in state:
            after["coverage"] = state["coverage"] + gather(self.attention, token_ids, axis=0) * state["source_mask"]
        return memory + state["source_bias"], after

    def batch(self, decoding, **more):
        # in a graph: as it is used
        call = tf.function(
            lambda ids: generate(self, {"token_ids": ids}, decoding, start_id=0, end_id=END, **more), autograph=False
        )
        out = call(tf.constant(self.inputs["token_ids"]))
        if decoding.num_return_sequences > 1:
            return out["sequences"].numpy(), out["scores"].numpy()
        return out["token_ids"].numpy(), out["score"].numpy()

    def alone(self, row, decoding):
        """A row by the numpy form."""
        state = self.start({"token_ids": self.inputs["token_ids"][row : row + 1]}, 0)
        state = {name: x.numpy() for name, x in state.items()}
        if decoding.coverage_penalty:
            state["coverage"] = 1 - state["source_mask"]

        def step(token_ids, column, origin):
            nonlocal state
            logits, state = self.step(token_ids, column, {name: x[origin] for name, x in state.items()})
            return logits, state.get("coverage")

        texts = searched(step, [0], decoding, end_id=END, row=row)
        assert len(texts) == decoding.num_return_sequences
        return texts[0] if len(texts) == 1 else texts

    def score(self, row, ids, log_softmax=None):
        """The log-probability of a text."""
        total, memory = 0.0, np.zeros(V)
        for before, token in zip([0, *ids], ids):
            memory = memory / 2 + self.table[before]
            logits = memory + self.inputs["token_ids"][row]
            total += logits[token] - np.log(np.exp(logits).sum())
        return total


CASES = {
    "greedy": {},
    "greedy with penalties": {"repetition_penalty": 1.7, "min_new_tokens": 3},
    "beams": {"beams": 3},
    "as many beams as tokens": {"beams": V, "length_penalty": 0.6},
    "long": {"beams": 4, "length_penalty": 2.0, "min_new_tokens": 3, "repetition_penalty": 1.3},
    "short": {"beams": 2, "length_penalty": -1.0},
    "covered": {"beams": 3, "coverage_penalty": 0.7},
    "drawn": {"temperature": 0.8, "seed": 5},
    "top k": {"top_k": 3, "min_new_tokens": 2},
    "top p": {"top_p": 0.7, "temperature": 1.5, "seed": 2**40 + 3},
    "forced": {"forced_bos_token_id": 5, "forced_eos_token_id": END, "repetition_penalty": 1.2},
    "forced beams": {"beams": 3, "forced_bos_token_id": 5, "forced_eos_token_id": END, "length_penalty": 1.5},
    "forced and drawn": {"temperature": 0.8, "forced_bos_token_id": 1},
    "both": {"top_k": 4, "top_p": 0.9, "repetition_penalty": 1.2},
    "once": {"no_repeat_ngram_size": 1, "min_new_tokens": 3},
    "pairs once": {"no_repeat_ngram_size": 2, "min_new_tokens": 7},
    "triples once, beams": {"beams": 3, "no_repeat_ngram_size": 3, "min_new_tokens": 7, "repetition_penalty": 1.1},
    "longer than a text": {"no_repeat_ngram_size": 20},
    "suppressed": {"suppress_tokens": [4, 6], "begin_suppress_tokens": [1, 3], "beams": 2},
    "suppressed after a forced one": {"begin_suppress_tokens": [1, 3], "forced_bos_token_id": 5},
    "bad words": {"bad_words_ids": [[3], [4, 4], [5, 6, 1], [END]], "min_new_tokens": 5},
    "bad words, beams": {"bad_words_ids": [[3], [4, 4], [5, 1]], "beams": 3, "no_repeat_ngram_size": 2},
    "early": {"beams": 3, "early_stopping": True, "length_penalty": 2.0},
    "never": {"beams": 3, "early_stopping": "never", "length_penalty": 2.0},
    "several": {"beams": 4, "num_return_sequences": 3},
    "several drawn": {"temperature": 1.2, "num_return_sequences": 3, "no_repeat_ngram_size": 2},
}


@pytest.mark.parametrize("name", ["greedy with penalties", "beams", "long", "short", "forced", "forced beams"])
def test_each_row_has_a_most_of_its_own(name):
    """As the numpy form with that many: the rows beside it, which write longer, change nothing."""
    decoding = Decoding(max_new_tokens=9, **CASES[name])
    toy, most = Toy(end=-3.0), [9, 4, 5, 7]
    ids, scores = toy.batch(decoding, asked={"max_tokens": tf.constant(most)})
    for row, count in enumerate(most):
        wanted, score = toy.alone(row, dataclasses.replace(decoding, max_new_tokens=count))
        assert ids[row].tolist() == [*wanted, *[0] * (9 - len(wanted))]
        assert scores[row] == pytest.approx(score, abs=1e-5)


@pytest.mark.parametrize("name", ["drawn", "forced and drawn"])
def test_each_row_is_drawn_by_its_own_options(name):
    asked = [(0.8, 0, 1.0, 9), (2.5, 3, 1.0, 6), (0.4, 0, 0.6, 9), (1.3, 5, 0.8, 2)]
    names, dtypes = ("temperature", "top_k", "top_p", "max_tokens"), ("float32", "int32", "float32", "int32")
    toy = Toy(end=-3.0)
    columns = {key: tf.constant(values, kind) for key, values, kind in zip(names, zip(*asked), dtypes)}
    ids, scores = toy.batch(Decoding(max_new_tokens=9, **CASES[name]), asked=columns)
    for row, (temperature, top_k, top_p, most) in enumerate(asked):
        options = {**CASES[name], "temperature": temperature, "top_k": top_k or None, "top_p": top_p}
        wanted, score = toy.alone(row, Decoding(max_new_tokens=most, **options))
        assert ids[row].tolist() == [*wanted, *[0] * (9 - len(wanted))]
        assert scores[row] == pytest.approx(score, abs=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_numpy_is_the_graph_and_rows_are_alone(case, monkeypatch):
    monkeypatch.setattr(numbers, "FEW", 2)
    decoding = Decoding(max_new_tokens=8, **CASES[case])
    toy = Toy(1, rows=16, end=1.0)
    ids, scores = toy.batch(decoding)
    assert len({tuple(row.ravel()) for row in ids}) > 3
    for row in range(16):
        alone = toy.alone(row, decoding)
        several = np.reshape(ids[row], (-1, 8)), np.ravel(scores[row])
        for (text, score), of, its in zip(alone if isinstance(alone, list) else [alone], *several, strict=True):
            assert text == of[: len(text)].tolist()
            assert (of[len(text) :] == 0).all()
            assert abs(score - its) < 1e-5


def test_nothing_is_written_that_may_not_be():
    toy = Toy(1, rows=16, end=-9.0)
    before, _ = toy.batch(Decoding(max_new_tokens=8))
    for beams in (1, 3):
        once, _ = toy.batch(Decoding(max_new_tokens=8, beams=beams, no_repeat_ngram_size=2))
        for texts, repeats in ((before, True), (once, False)):
            pairs = [list(zip([0, *row], row)) for row in texts.tolist()]  # the start token counts
            assert any(len(set(each)) < len(each) for each in pairs) == repeats
        words = {"bad_words_ids": [[3], [5, 1]], "suppress_tokens": [6], "begin_suppress_tokens": [1]}
        ids, _ = toy.batch(Decoding(max_new_tokens=8, beams=beams, **words))
        assert not np.isin(ids, [3, 6]).any()
        assert not (ids[:, 0] == 1).any()
        assert not ((ids[:, :-1] == 5) & (ids[:, 1:] == 1)).any()


def test_several_texts_are_the_best_of_the_beams_and_draws_of_their_own():
    toy = Toy(1, rows=8, end=1.0)
    ids, scores = toy.batch(Decoding(max_new_tokens=6, beams=4, num_return_sequences=4))
    best, top = toy.batch(Decoding(max_new_tokens=6, beams=4))
    np.testing.assert_array_equal(ids[:, 0], best)
    np.testing.assert_allclose(scores[:, 0], top, atol=1e-6)
    assert (np.diff(scores, axis=1) <= 0).all()
    assert all(len({tuple(text) for text in row}) == 4 for row in ids)
    drawn, _ = toy.batch(Decoding(max_new_tokens=6, temperature=2.0, num_return_sequences=4))
    assert sum(len({tuple(text) for text in row}) for row in drawn) > 24


def test_forced_tokens_stand_where_they_must():
    toy = Toy(1, rows=16, end=-9.0)
    for beams in (1, 3):
        forced = {"forced_bos_token_id": 5, "forced_eos_token_id": END}
        ids, _ = toy.batch(Decoding(max_new_tokens=6, beams=beams, **forced))
        assert (ids[:, 0] == 5).all()
        assert (ids[:, 5] == END).all()


def test_greedy_by_hand():
    """Token a is followed by a + 1; 2 is the end; the table's largest entry is 4, the others 0."""
    toy = Toy(rows=2)
    toy.table = np.zeros((V, V), "float32")
    toy.table[np.arange(V), (np.arange(V) + 1) % V] = 4
    toy.inputs = {"token_ids": np.zeros((2, V), "float32")}
    ids, scores = toy.batch(Decoding(max_new_tokens=5))
    assert ids.tolist() == [[1, 2, 0, 0, 0]] * 2
    # 4 among six zeros; then 4 and what is left of the first step, 2, for the token before
    expected = 4 - np.log(np.exp(4) + 6) + 4 - np.log(np.exp(4) + np.exp(2) + 5)
    np.testing.assert_allclose(scores, expected, atol=1e-6)
    assert toy.batch(Decoding(max_new_tokens=5, min_new_tokens=2))[0][0, 1] == 1  # the second best


def test_beams_that_leave_nothing_out_find_the_best_text():
    """Texts of 2 tokens at most: with 7 beams all are considered."""
    toy = Toy(3, rows=3, end=1.0)
    for penalty in (0.0, 1.0, 2.0):
        ids, scores = toy.batch(Decoding(max_new_tokens=2, beams=V, length_penalty=penalty))
        for row in range(3):
            texts = [(END,), *((a, b) for a, b in itertools.product(range(V), range(V)) if a != END)]
            best = max(texts, key=lambda text: toy.score(row, text) / len(text) ** penalty)
            assert ids[row, : len(best)].tolist() == list(best)
            assert abs(scores[row] - toy.score(row, best) / len(best) ** penalty) < 1e-5


def test_more_beams_find_better_texts_and_a_penalty_longer_ones():
    better, lengths = [], []
    toy = Toy(1, rows=40, end=1.5, scale=1.0)
    for beams in (1, 2, 5):
        ids, _ = toy.batch(Decoding(max_new_tokens=8, beams=beams, length_penalty=0.0))
        cut = [row[: row.index(END) + 1] if END in row else row for row in ids.tolist()]
        better.append(np.mean([toy.score(i, text) for i, text in enumerate(cut)]))
    assert better[0] < better[1] < better[2]
    for penalty in (-2.0, 0.0, 3.0):
        ids, _ = toy.batch(Decoding(max_new_tokens=8, beams=4, length_penalty=penalty))
        lengths.append((ids != 0).sum())
    assert lengths[0] < lengths[1] < lengths[2]


def test_the_coverage_penalty_is_the_papers():
    """beta * sum over the source's real tokens of log(min(attention in all, 1)): Wu et al., 2016, equation 14."""
    toy = Toy(2, rows=6)
    ids, scores = toy.batch(Decoding(max_new_tokens=3, beams=4, coverage_penalty=0.8, length_penalty=0.5))
    for row, text in enumerate(ids.tolist()):
        text = text[: text.index(END) + 1] if END in text else text
        covered = np.minimum(toy.attention[[0, *text[:-1]]].sum(axis=0)[:2], 1)
        expected = toy.score(row, text) / len(text) ** 0.5 + 0.8 * np.log(covered).sum()
        assert abs(scores[row] - expected) < 1e-5


def test_what_is_drawn_has_the_models_probabilities():
    """20,000 first tokens: shares within 4 deviations; of 3 tokens, of those that reach 0.6, at a temperature."""
    toy = Toy(4, rows=1)
    toy.inputs = {"token_ids": np.repeat(toy.inputs["token_ids"], 20000, axis=0)}
    logits = toy.table[0] + toy.inputs["token_ids"][0]
    order = np.argsort(-logits)

    def softmax(x):
        return np.exp(x - x.max()) / np.exp(x - x.max()).sum()

    p = softmax(logits)
    reach = int((np.cumsum(p[order]) - p[order] < 0.6).sum())
    for settings, count, temperature in (
        ({"temperature": 2.0}, V, 2.0),
        ({"top_k": 3}, 3, 1.0),
        ({"top_p": 0.6}, reach, 1.0),
    ):
        ids, _ = toy.batch(Decoding(max_new_tokens=1, **settings))
        expected = np.zeros(V)
        expected[order[:count]] = softmax(logits[order[:count]] / temperature)
        found = np.bincount(ids[:, 0], minlength=V) / 20000
        assert (np.abs(found - expected) <= 4 * np.sqrt(expected * (1 - expected) / 20000)).all()


def test_draws_are_a_function_of_seed_text_and_step():
    toy = Toy(5, rows=6, scale=0.3)
    same = {"token_ids": np.repeat(toy.inputs["token_ids"][:1], 6, axis=0)}
    toy.inputs = same
    ids, _ = toy.batch(Decoding(max_new_tokens=6, temperature=1.0))
    assert len({tuple(row) for row in ids}) == 6
    turned, _ = toy.batch(Decoding(max_new_tokens=6, temperature=1.0), rows=np.arange(6)[::-1].astype("int32"))
    np.testing.assert_array_equal(turned, ids[::-1])
    other, _ = toy.batch(Decoding(max_new_tokens=6, temperature=1.0, seed=1))
    assert (other != ids).any(axis=1).all()


def test_the_numbers_are_the_graphs_to_the_bit():
    for words in ((0, 0, 0), (7, 3, 12), (2**40 + 5, 2**31, 9)):
        key = random.key(words[0], np.array([words[1]], "uint32"), tf.constant(words[2]))
        assert tuple(int(word) for word in key[0]) == numbers.key(*words)
        element = np.array([0, 1, 5, 49999])
        np.testing.assert_array_equal(
            random.bits(key, (50000,))[0].numpy()[element], numbers.bits(numbers.key(*words), element)
        )


@pytest.mark.parametrize("beams", [1, 3])
def test_the_loop_ends_with_the_last_row(beams):
    toy, steps = Toy(1, rows=4, end=6.0), tf.Variable(0)
    plain = toy.step

    def counted(token_ids, column, state):
        steps.assign_add(1)
        return plain(token_ids, column, state)

    toy.step = counted
    ids, _ = toy.batch(Decoding(max_new_tokens=50, beams=beams))
    assert (ids == END).any(axis=1).all()
    longest = 1 + int((ids == END).argmax(axis=1).max())
    assert longest <= int(steps) <= longest + (beams > 1) * 6


def test_tokens_of_prompts_count_as_repeated_and_padding_does_not():
    """Token 3 is the best of all, 0 and 2 the worst; of 4 and 5 one stands in the prompt."""
    toy = Toy(rows=3)
    toy.table = np.zeros((V, V), "float32")
    toy.inputs = {"token_ids": np.array([[-9, 0, -9, 3, 2, 2.5, 0]] * 3, "float32")}
    ids = tf.constant([[4, 3, 0], [5, 3, 1], [3, 4, 5]])
    mask = tf.constant([[1, 1, 0], [1, 1, 1], [1, 0, 0]])
    given = {"token_ids": tf.constant(toy.inputs["token_ids"]), "decoder_token_ids": ids, "decoder_padding_mask": mask}
    out = generate(toy, given, Decoding(max_new_tokens=1, repetition_penalty=4.0), start_id=0, end_id=END)
    assert out["token_ids"].numpy().tolist() == [[5], [4], [5]]


def test_more_beams_than_tokens_are_refused():
    with pytest.raises(InputError, match="beams is 8, expected at most the vocabulary's 7 tokens"):
        Toy().batch(Decoding(beams=8))
