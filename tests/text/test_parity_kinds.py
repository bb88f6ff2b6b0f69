"""Byte-level BPE and unigram: pure Python == graph == 512-line batches in tf.data == `tokenizers` / `sentencepiece`.

Ids and character offsets. Nothing is skipped. One difference is allowed for, by name:

equal scores: sentencepiece 0.2 rounds a path's score to float32 before it compares, sentencepiece 0.1 (which
    tensorflow-text 2.20 links) after. Where two paths are equal but for rounding (runs of one character: xx x / x xx),
    they may choose differently. Ours is the graph's choice; `equally_good` checks that such a difference is nothing else.
"""

import pytest

from kerasbert.text import Tokenizer, Tokens, Unigram
from tests.text.kinds import (
    SENTENCEPIECE,
    byte_level_reference,
    gpt2_bpe,
    sentencepiece_tokens,
    shared_unigram,
    small_bpe,
    small_unigram,
)
from tests.text.strings import generate, reference_tokens
from tests.text.test_parity import corpus


def in_graph(tokenizer: Tokenizer, texts: list[str]) -> list[tuple]:
    """(encoded, ids, starts, ends) of each text from tf.data with batches of 512 lines."""
    import tensorflow as tf

    from kerasbert.text.graph import graph_tokenizer

    graph = graph_tokenizer(tokenizer)
    batches = tf.data.Dataset.from_tensor_slices([text.encode() for text in texts]).batch(512)
    rows = batches.map(lambda batch: (graph.encode(batch), *graph.tokenize(batch)))
    found = [row for batch in rows for row in zip(*(part.to_list() for part in batch))]
    assert len(found) == len(texts)
    return found


def equally_good(tokenizer: Unigram, ours: Tokens, theirs: Tokens) -> bool:
    """Whether two paths over the same text have one score, but for what float32 rounds in as many additions."""
    score = [sum(tokenizer.model.scores[i] for i in tokens.ids) for tokens in (ours, theirs)]
    same_text = [[tokens.starts[:1], tokens.ends[-1:], tokens.ids.count(tokenizer.unk_id)] for tokens in (ours, theirs)]
    bound = max(len(ours.ids), len(theirs.ids)) * 2.0**-24 * abs(score[0])
    return abs(score[0] - score[1]) <= bound and same_text[0] == same_text[1]


def differences(tokenizer: Tokenizer, texts: list[str]) -> tuple[list[str], int]:
    """Texts on which the four do not agree, in words, and the number of equal scores."""
    wrong, equal = [], 0
    if isinstance(tokenizer, Unigram):
        references = sentencepiece_tokens(tokenizer, texts)
    else:
        references = reference_tokens(byte_level_reference(tokenizer), texts)
    for text, reference, (encoded, *tokenized) in zip(texts, references, in_graph(tokenizer, texts)):
        ours = tokenizer.tokenize(text)
        if tokenizer.encode(text) != ours.ids:
            wrong.append(f"encode: {text[:80]!r}")
        if ours != reference:
            if isinstance(tokenizer, Unigram) and equally_good(tokenizer, ours, reference):
                equal += 1
            else:
                wrong.append(f"python: {text[:80]!r}")
        if encoded != ours.ids or tokenized != [ours.ids, ours.starts, ours.ends]:
            wrong.append(f"graph: {text[:80]!r}")
    return wrong, equal


@pytest.mark.slow
@pytest.mark.parametrize("prefix", [False, True])
def test_byte_level_on_generated_strings(prefix):
    assert differences(small_bpe(prefix), generate(300, seed=7)) == ([], 0)


@pytest.mark.parametrize("lowercase", [False, True])
def test_unigram_on_generated_strings(lowercase):
    wrong, equal = differences(small_unigram(lowercase), generate(200, seed=7))
    assert wrong == []
    assert equal <= 8


# every tenth line and string in CI, all of them under `full`
SHARES = [pytest.param(30, marks=pytest.mark.slow), pytest.param(1, marks=pytest.mark.full)]


@pytest.mark.parametrize("step", SHARES)
@pytest.mark.parametrize("prefix", [False, True])
def test_byte_level_on_lines_of_the_corpora_and_generated_strings(prefix, step):
    texts = generate(10_000, seed=1)
    assert differences(gpt2_bpe(prefix), (texts if prefix else [*corpus(), *texts])[::step]) == ([], 0)


@pytest.mark.parametrize("step", SHARES)
@pytest.mark.parametrize("name", SENTENCEPIECE)
def test_unigram_on_lines_of_the_corpora_and_generated_strings(name, step):
    texts = [*corpus(), *generate(10_000, seed=1)[:-1]][::step]
    wrong, equal = differences(shared_unigram(name), texts)
    assert wrong == []
    assert equal <= 0.01 * len(texts)
