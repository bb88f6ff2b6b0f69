"""Rates and balance over real text: the quickstart's books, and in the slow run the books beside the project."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from kerasbert import registry
from kerasbert.data import write_records
from kerasbert.objectives.masked_lm import MaskedLM, masker
from kerasbert.registry import SELECTIONS
from kerasbert.text import load_tokenizer
from tests.objectives import books
from tests.support import shared

NAMES = [
    name for name in SELECTIONS if name != "entities"
]  # these records bring none along: tests/models/test_ernie.py


# what whole units leave of the budget
LEAST = {"tokens": 0.9999, "token_ngrams": 0.999, "words": 0.98, "ngrams": 0.95, "fourgrams": 0.93, "spans": 0.9999}


def batches(records, settings, tokenizer, count, rows=128):
    """(features, masked batch) as numpy, `count` times."""
    data = records.dataset(rows, seed=1).take(count)
    for given in data.map(lambda given: (given, masker(settings, tokenizer=tokenizer, seed=2)(given))):
        yield tuple({name: value.numpy() for name, value in part.items()} for part in given)


def word_runs(ids, tokenizer):
    """The words of a row, as lists of columns."""
    found, special = [], set(tokenizer.special_ids)
    for column, token in enumerate(ids.tolist()):
        if token in special:
            continue
        if found and found[-1][-1] == column - 1 and tokenizer.continues(token):
            found[-1].append(column)
        else:
            found.append([column])
    return found


def check(records, tokenizer, name, render, count):
    """Masks of `count` batches: budget, rates within 3 sigma, whole words, no special token."""
    settings = MaskedLM(select=name, render=render)
    special = list(tokenizer.special_ids)
    kinds, chosen_tokens, budget, cut, longest = [], 0, 0, 0, 0
    for given, batch in batches(records, settings, tokenizer, count):
        ids, total = given["token_ids"], given["segment_lengths"].sum(1)
        chosen = batch["mlm_weights"] == 1
        counts = settings.prediction_counts(ids.shape[1])[total]
        assert (chosen.sum(1) <= counts).all()
        budget += counts.sum()
        chosen_tokens += chosen.sum()
        labels = batch["mlm_labels"][chosen]
        assert not np.isin(labels, special).any()
        seen = np.take_along_axis(batch["token_ids"], batch["mlm_positions"], 1)[chosen]
        assert not np.isin(seen[seen != tokenizer.mask_id], special).any()
        kinds.append(np.where(seen == tokenizer.mask_id, 0, np.where(seen == labels, 2, 1)))
        if name in ("tokens", "token_ngrams"):
            continue
        for row in range(len(ids)):
            taken = set(batch["mlm_positions"][row][chosen[row]].tolist())
            parts = [len(taken & set(word)) for word in word_runs(ids[row], tokenizer)]
            sizes = list(map(len, word_runs(ids[row], tokenizer)))
            broken = sum(0 < part < size for part, size in zip(parts, sizes))
            cut += broken
            longest = max(longest, *sizes)
            assert broken <= (name == "spans")  # only the last span is cut
    assert longest > 2 or name in ("tokens", "token_ngrams")
    assert (cut > 0) == (name == "spans")
    assert chosen_tokens / budget > LEAST[name]
    if render == "token":
        kinds = np.concatenate(kinds)
        ordinary = tokenizer.size - len(special)
        for kind, share in enumerate((0.8, 0.1 * (1 - 1 / ordinary), 0.1 + 0.1 / ordinary)):
            assert abs((kinds == kind).mean() - share) < 3 * (share * (1 - share) / len(kinds)) ** 0.5


@functools.cache
def full(folder):
    return books.records(folder, "full")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("books")


@pytest.mark.parametrize("name", NAMES)
def test_masks_over_the_quickstarts_books(folder, name):
    check(full(folder), books.tokenizer(), name, "token", 6)


@pytest.mark.parametrize("packing", ["order", "place"])
def test_what_is_asked_about_pairs_is_balanced(folder, packing):
    records = books.records(folder, packing)
    labels = records.rows(records.shards[0])[:, -1].astype(int)
    assert len(labels) > 1000
    assert set(labels) == ({0, 1} if packing == "order" else {0, 1, 2})
    # where a segment stands alone, b is of another document: those are more than a third of the places
    beside = labels[labels < 2]
    assert abs(beside.mean() - 0.5) < 3 * 0.5 / len(beside) ** 0.5
    batch = next(iter(records.dataset(8, seed=1)))
    assert batch[f"{packing}_label"].dtype == tf.int32


@pytest.mark.parametrize("family", ["bert-wwm", "spanbert", "structbert", "albert"])
def test_the_objectives_of_the_papers(family):
    found = registry.objective(registry.family(family).objective)
    settings = MaskedLM(**found.defaults)
    assert (found.packing, settings.select, settings.render) == {
        "bert-wwm": ("pairs", "words", "token"),
        "spanbert": ("full", "spans", "span"),
        "structbert": ("place", "tokens", "token"),
        "albert": ("order", "ngrams", "token"),
    }[family]
    assert (settings.rate, settings.mask, settings.random) == (0.15, 0.8, 0.1)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_masks_over_books_with_berts_vocabulary(tmp_path, name):
    texts = sorted(shared("data/lm/gutenberg").rglob("*.txt"))
    tokenizer = load_tokenizer(shared("data/vocab/bert-base-uncased"))
    records = write_records(texts[:6], tokenizer, tmp_path / "out", length=128, packing="full")
    assert records.examples > 2000
    check(records, tokenizer, name, "token", 6)
