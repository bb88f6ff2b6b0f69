"""MacBERT: similar words against plain loops, rates, and what a row depends on."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

import kerasbert as kb
from kerasbert import models, registry
from kerasbert.checkpoints.vectors import WordVectors
from kerasbert.classics.word_vectors import save_vectors
from kerasbert.data.records import Records
from kerasbert.errors import InputError
from kerasbert.layers import random
from kerasbert.models.macbert import MACBERT, Correction, MacBertPretraining
from kerasbert.objectives import similar
from kerasbert.testing import check_objective
from kerasbert.text import WordPiece
from tests import tiny

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
SYLLABLES = [f"{first}{second}" for first in "bdfgklmn" for second in "aeiou"]
# 40 words of one piece, 40 of two and 40 of three
TOKENIZER = WordPiece([*SPECIALS, *SYLLABLES, *(f"##{each}" for each in SYLLABLES), "odd"])
WORDS = [*SYLLABLES, *(a + b for a, b in zip(SYLLABLES, SYLLABLES[7:] + SYLLABLES)), *(3 * a for a in SYLLABLES)]
FIRST, ODD = len(SPECIALS), TOKENIZER.size - 1
ORDINARY = np.arange(FIRST, TOKENIZER.size, dtype="int32")


def vectors(width=6):
    table = np.random.default_rng(0).normal(size=(len(WORDS) + 2, width)).astype("float32")
    return WordVectors([*WORDS, "x-ray", "basso" * 9], table)  # not of these pieces; of too many


@pytest.fixture(scope="module")
def found():
    return similar.SimilarWords(vectors(), TOKENIZER, nearest=3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("macbert") / "vectors"
    save_vectors(vectors(), path, "vec", {})
    return str(path)


def features(rows=400, length=48, seed=1):
    """Rows of [CLS] words [SEP] words [SEP]; every tenth word is one without a vector."""
    rng = np.random.default_rng(seed)
    ids, lengths = np.zeros((rows, length), "int32"), np.zeros((rows, 2), "int32")
    for row in range(rows):
        parts = []
        for most in (length // 2, length - 2):
            part = [] if parts else [TOKENIZER.cls_id]
            while len(parts) + len(part) < most - 3:
                part += [ODD] if rng.random() < 0.1 else TOKENIZER.encode(WORDS[rng.integers(len(WORDS))])
            lengths[row, int(bool(parts))] = len(part) + 1
            parts += [*part, TOKENIZER.sep_id]
        ids[row, : len(parts)] = parts
    counted = {name: np.arange(rows) for name in ("example", "row")}
    counted |= {"epoch": np.zeros(rows), "step": np.full(rows, 7), "order_label": rng.integers(0, 2, rows)}
    named = {"token_ids": ids, "segment_lengths": lengths} | counted
    return {name: tf.constant(value, tf.int32) for name, value in named.items()}


def prepare(given, seed=0, **settings):
    made = MacBertPretraining.without_model(TOKENIZER, Correction(**MacBertPretraining.defaults | settings), seed)
    return {name: value.numpy() for name, value in made.prepare(given).items()}


def words_of(row, total):
    """Columns of the words of a row."""
    runs = []
    for column in range(total):
        if row[column] in TOKENIZER.special_ids:
            continue
        if TOKENIZER.continues(int(row[column])):
            runs[-1].append(column)
        else:
            runs.append([column])
    return runs


def test_similar_words_are_the_nearest_of_as_many_tokens(found):
    given = vectors()
    unit = given.table / np.linalg.norm(given.table, axis=1, keepdims=True)
    pieces = [TOKENIZER.encode(word) for word in WORDS]
    assert len(found.tokens) == len(WORDS)
    padded = tf.constant([word + [-1] * (found.width - len(word)) for word in pieces])
    rows, known = (x.numpy() for x in found.find(padded))
    assert known.all()
    for number, (row, word) in enumerate(zip(rows, pieces)):
        near = {tuple(id for id in found.tokens[other] if id >= 0) for other in found.similar[row, : found.counts[row]]}
        others = [other for other in range(len(WORDS)) if len(pieces[other]) == len(word) and other != number]
        best = sorted(others, key=lambda other: -unit[number] @ unit[other])[:3]
        assert near == {tuple(pieces[other]) for other in best}
    assert not found.find(tf.constant([ODD] + [-1] * (found.width - 1)))[1]
    assert not found.find(tf.constant([FIRST, ODD, *[-1] * (found.width - 2)]))[1]


def test_words_alone_in_their_length_or_without_a_direction_have_none():
    table = np.array([[1, 0], [0, 1], [0, 0], [1, 1]], "float32")
    found = similar.SimilarWords(WordVectors(["ba", "be", "bi", "babe"], table), TOKENIZER)
    counts = {tuple(id for id in row if id >= 0): count for row, count in zip(found.tokens.tolist(), found.counts)}
    assert [counts[tuple(TOKENIZER.encode(word))] for word in ("ba", "be", "bi", "babe")] == [1, 1, 0, 0]


def test_vectors_of_another_language_are_refused():
    with pytest.raises(InputError, match="no word of the vectors is made of this tokenizer's tokens"):
        similar.SimilarWords(WordVectors(["x-ray"], np.ones((1, 2), "float32")), TOKENIZER)


def test_rates(folder):
    given = features()
    batch, ids = prepare(given, vectors=folder), given["token_ids"].numpy()
    known = similar.of_file(folder, TOKENIZER, 10, 50_000)
    chosen, positions = batch["mlm_weights"] == 1, batch["mlm_positions"]
    total = batch["padding_mask"].sum(1)
    assert 0.93 < chosen.sum() / np.round(0.15 * total).sum() <= 1.0  # whole words leave a little
    assert not (batch["token_ids"] == TOKENIZER.mask_id).any()
    row_of = {tuple(word): row for row, word in enumerate(known.tokens.tolist())}
    kinds, odd = [], []
    for row in range(len(ids)):
        taken = set(positions[row][chosen[row]].tolist())
        assert (np.delete(batch["token_ids"][row], list(taken)) == np.delete(ids[row], list(taken))).all()
        np.testing.assert_array_equal(batch["mlm_labels"][row][chosen[row]], ids[row][positions[row][chosen[row]]])
        for columns in words_of(ids[row], total[row]):
            assert len(taken & set(columns)) in (0, len(columns))
            if not taken & set(columns):
                continue
            was, now = (
                (*map(int, x[columns]), *[-1] * (known.width - len(columns)))
                for x in (ids[row], batch["token_ids"][row])
            )
            if was[0] == ODD:
                odd.append(now[0] == ODD)
                continue
            near = map(tuple, known.tokens[known.similar[row_of[was]]].tolist())
            assert now in row_of  # a word, not pieces of several
            kinds.append("kept" if now == was else "similar" if now in near else "random")
    # a random word is one of the 39 others of its length or itself; 10 of them are similar ones
    for kind, share in (("similar", 0.8 + 0.1 * 10 / 40), ("random", 0.1 * 29 / 40), ("kept", 0.1 + 0.1 / 40)):
        seen = np.mean([each == kind for each in kinds])
        assert abs(seen - share) < 3 * (share * (1 - share) / len(kinds)) ** 0.5, (kind, seen)
    assert abs(np.mean(odd) - 0.1) < 3 * (0.1 * 0.9 / len(odd)) ** 0.5  # no similar word: a random one


def test_a_row_depends_on_seed_step_and_row_alone(folder):
    given = features(rows=12)
    whole = prepare(given, vectors=folder)
    part = prepare({name: value[5:8] for name, value in given.items()}, vectors=folder)
    assert all((part[name] == whole[name][5:8]).all() for name in whole)
    for other in (prepare(given, seed=1, vectors=folder), prepare(given | {"step": given["step"] + 1}, vectors=folder)):
        assert (other["token_ids"] != whole["token_ids"]).any()


@pytest.mark.slow
def test_a_pipeline_gives_the_same(folder):
    given = features(rows=12)
    made = MacBertPretraining.without_model(TOKENIZER, Correction(**MacBertPretraining.defaults, vectors=folder))
    graph, whole = tf.function(made.prepare, autograph=False)(given), made.prepare(given)
    assert all((graph[name] == whole[name]).numpy().all() for name in whole)


def test_tokens_of_a_word_share_a_draw_and_a_special_token_ends_one(found):
    ids = np.array([[2, *TOKENIZER.encode("bababa"), 3, *TOKENIZER.encode(WORDS[45]), ODD]], "int32").repeat(200, 0)
    starts = np.array([[1, 1, 0, 0, 1, 1, 0, 1]], bool).repeat(200, 0)
    positions = np.array([[1, 2, 3, 5, 6, 7]], "int32").repeat(200, 0)
    every = {"words": found, "ordinary_ids": ORDINARY, "shares": (1.0, 0.0)}
    key = random.key(3, np.arange(200))
    made = similar.corrupt(
        key, tf.constant(ids), (tf.constant(positions), tf.ones_like(positions, bool)), starts, **every
    )
    rows = {tuple(row) for row in made.numpy()[:, 1:7].tolist()}
    three, two = ({row[:3] for row in rows}, {row[4:6] for row in rows})
    assert (len(three), len(two)) == (3, 3)  # the nearest three, in every combination
    assert len(rows) == 9
    assert tuple(ids[0, 1:4]) not in three
    none = similar.corrupt(
        key, tf.constant(ids), (tf.constant(positions), tf.zeros_like(positions, bool)), starts, **every
    )
    np.testing.assert_array_equal(none, ids)


@pytest.mark.full
@pytest.mark.filterwarnings("ignore:Even though the `tf.config")
def test_it_is_an_objective_with_vectors_too(tmp_path):
    """All but that a target is not shown: which words are similar to it is what the input tells."""
    table = np.random.default_rng(0).normal(size=(len(tiny.WORDS), 4)).astype("float32")
    save_vectors(WordVectors(tiny.WORDS, table), tmp_path / "vectors", "vec", {})
    check_objective("macbert", tmp_path, shown=1.0, settings={"vectors": str(tmp_path / "vectors")}, replicas=1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"similar": 0}, "similar 0 and words 50000"), ({"words": 0}, "expected at least 1 each")],
)
def test_settings_that_are_none_are_refused(settings, message):
    with pytest.raises(InputError, match=message):
        Correction(**settings)


def test_without_vectors_pretraining_is_refused_and_told_the_way_out(tmp_path):
    records = tiny.records(tmp_path, "order")
    with pytest.raises(InputError, match="has no word vectors to find them: --set objective.vectors=DIR"):
        kb.pretrain("macbert/base", records, out=tmp_path / "run", steps=1, batch=2, changes=tiny.SPEC)
    assert not (tmp_path / "run").exists()
    MacBertPretraining.check(Correction(mask=0.0, random=0.9), Records(records))


def test_it_is_berts_network_with_chinese_characters():
    counts = [models.parameters(MACBERT.encoder, registry.find(f"macbert/{size}")[1]) for size in ("base", "large")]
    assert counts == [102267648, 325522432]  # BERT's of 21,128 characters: bert-base-chinese has 102,267,648
    hf = MACBERT.names["hf"]
    assert hf.classes["BertForPreTraining"].heads == ("mlm", "sop")
    assert hf.theirs("heads/sop/kernel") == ("cls.seq_relationship.weight", True)
    assert dataclasses.replace(hf, rows=hf.rows[1:]).theirs("heads/nsp/kernel")[0] == "cls.seq_relationship.weight"
