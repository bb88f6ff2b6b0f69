"""Vocabulary trimming: the same vectors for texts of kept pieces, readable text for the others."""

from collections import Counter

import numpy as np
import pytest

import kerasbert as kb
from kerasbert import registry, text
from kerasbert.checkpoints import ModelParts, load_encoder, read_tensors, save_model, write_model
from kerasbert.errors import InputError
from kerasbert.mobile import prune, trim
from kerasbert.mobile.vocabulary.trimming import keep, rates, smaller_tokenizer
from kerasbert.tasks.task import find_task
from kerasbert.testing.battery import Subject
from kerasbert.text.languages import read_languages, write_languages
from kerasbert.training.runs import DataPlaces, open_run
from kerasbert.training.splits import measured, split
from tests import tiny as world
from tests.mobile.prune.conftest import vectors
from tests.models.cover import families
from tests.support import shared

CORPUS = ["the cat sees the dog", "the dog runs", ("a good film", "xylo")]
UNUSED = ("happy", "sad", "bad", "very", "old", "new", "house", "river", "stone")


def test_what_stays_by_hand():
    tokenizer = text.WordPiece([*"[PAD] [UNK] [CLS] [SEP] [MASK] the cat ##s dog a b ##b ##c ##".split()])
    counts = Counter(tokenizer.encode("the cats"))
    kept = keep(tokenizer, counts)
    smaller = smaller_tokenizer(tokenizer, kept)
    assert smaller.vocabulary == (*"[PAD] [UNK] [CLS] [SEP] [MASK] the cat ##s a b ##b ##c".split(),)
    assert smaller.settings() == tokenizer.settings()
    # 5 special, 5 of one character; "the" and "cat" are as frequent, the first of the vocabulary stays
    assert [tokenizer.vocabulary[i] for i in keep(tokenizer, counts, 11) if i < 8] == [*tokenizer.vocabulary[:6], "##s"]
    with pytest.raises(InputError, match="size must be at least 10: special tokens and single char.* Received: 9"):
        keep(tokenizer, counts, 9)


def test_rates_by_hand():
    found = rates(world.tokenizer(), ["the cat", "cab €"])  # c ##a ##b and an unknown word
    assert found == {"words": 4, "unknown": 0.25, "split": 0.25, "tokens": 3.0}


def test_a_classifier_answers_the_same_to_the_bit(run, tmp_path):
    texts = ["a good film", "the plot is not good"]
    report = trim(run, [*texts, "un-good"], out=tmp_path / "t")
    assert report["vocabulary"] == (26, 15)  # 5 special, 7 words, un, - and ##s, which is one character
    before, after = kb.load(run), kb.load(tmp_path / "t")
    assert after.spec.embeddings.vocabulary == after.tokenizer.size == report["vocabulary"][1]
    np.testing.assert_array_equal(vectors(before.encoder, texts), vectors(after.encoder, texts))
    kernels = (model.heads["classifier"].kernel.numpy() for model in (before, after))
    np.testing.assert_array_equal(*kernels)
    assert (after.labels, after.task) == (before.labels, before.task)
    assert report["unknown"] == (0, 0)
    # what is not there any more is unknown, for the letters of this vocabulary are few
    assert after.tokenizer.tokenize("dull film").pieces == ["[UNK]", "film"]


@pytest.mark.parametrize("name", ["bert", "roberta", pytest.param("albert", marks=pytest.mark.slow)])
def test_each_kind_of_tokenizer(name, tmp_path):
    subject = Subject(name, tmp_path)
    encoder = subject.encoder()
    save_model(tmp_path / "m", encoder=encoder, name=subject.name, tokenizer=subject.tokenizer)
    report = trim(tmp_path / "m", CORPUS, out=tmp_path / "t")
    assert report["vocabulary"][1] < report["vocabulary"][0]
    assert report["split"][0] == report["split"][1]
    smaller, _ = load_encoder(tmp_path / "t")
    texts = ["the cat runs", "a dog sees a good film"]
    np.testing.assert_array_equal(vectors(encoder, texts), vectors(smaller, texts))
    # any text stays readable
    sentence = "the sad river"
    pieces = [smaller.tokenizer.vocabulary[i] for i in smaller.tokenizer.encode(sentence)]
    assert smaller.tokenizer.unk_id not in smaller.tokenizer.encode(sentence)
    assert len(pieces) > len(subject.tokenizer.encode(sentence))
    assert smaller.tokenizer.decode(smaller.tokenizer.encode(sentence)).strip() == sentence


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram"])
def test_real_vocabularies_give_the_same_pieces(kind):
    """Each text of the corpus, whatever is in it; the texts are of several languages."""
    names = {"wordpiece": "bert-base-uncased", "bpe": "gpt2-roberta-bpe", "unigram": "sentencepiece-1k"}
    folder = shared(f"data/vocab/{names[kind]}")
    models = sorted(folder.glob("*.model"))
    tokenizer = text.load_tokenizer(models[0] if kind == "unigram" else folder)
    lines = shared("data/glue/SST-2/dev.tsv").read_text(encoding="utf-8").splitlines()[1:151]
    lines += ["Größe ‰ 北京 naïve café 🎈", "  two  blanks ", "e\u0301 \u200b"]
    counts = Counter(i for line in lines for i in tokenizer.encode(line))
    smaller = smaller_tokenizer(tokenizer, keep(tokenizer, counts))
    assert smaller.size < tokenizer.size
    for line in lines:
        one, other = tokenizer.tokenize(line), smaller.tokenize(line)
        assert one[1:] == other[1:]
        assert [smaller.vocabulary[i] for i in smaller.encode(line)] == [
            tokenizer.vocabulary[i] for i in tokenizer.encode(line)
        ]


def test_merges_stay_closed_at_any_size():
    """The most frequent pieces with all that they are merged from; a tokenizer whose merges do not fit is refused."""
    tokenizer = text.load_tokenizer(shared("data/vocab/gpt2-roberta-bpe"))
    counts = Counter(i for word in ("film", " film", " films", " actors") for i in tokenizer.encode(word))
    least = keep(tokenizer, Counter())
    everything = keep(tokenizer, counts)
    for size in range(len(least), len(everything) + 1, 3):
        kept = keep(tokenizer, counts, size)
        smaller = smaller_tokenizer(tokenizer, kept)
        assert smaller.size <= size
        # nothing is there that cannot be reached: every piece is a byte, special, or merged
        merged = {left + right for left, right in smaller.merges}
        assert all(len(p) == 1 or p in merged or i in smaller.special_ids for i, p in enumerate(smaller.vocabulary))
    assert smaller.tokenize(" actors film").pieces == tokenizer.tokenize(" actors film").pieces


@pytest.mark.parametrize("name", families("trim"))
def test_every_family_and_its_token_heads(name, tmp_path):
    subject = Subject(name, tmp_path)
    encoder = subject.encoder()
    program = subject.program(encoder)
    generator = np.random.default_rng(0)
    for weight in program.model.weights:
        if weight.path.endswith("bias"):
            weight.assign(generator.normal(size=weight.shape))
    parts = {"encoder": encoder, "name": subject.name, "tokenizer": subject.tokenizer}
    save_model(tmp_path / "m", heads=program.model.heads, **parts)
    trim(tmp_path / "m", CORPUS, out=tmp_path / "t")
    smaller, _ = load_encoder(tmp_path / "t")
    ids = [subject.tokenizer.vocabulary.index(piece) for piece in smaller.tokenizer.vocabulary]
    np.testing.assert_array_equal(vectors(encoder, ["the cat sees"]), vectors(smaller, ["the cat sees"]))
    before, after = read_tensors(tmp_path / "m"), read_tensors(tmp_path / "t")
    token_heads = 0
    for weight in before.names():
        one, other = before.read(weight), after.read(weight)
        rows = one.shape[0] == subject.tokenizer.size != other.shape[0]
        token_heads += rows and weight.startswith("heads/")
        np.testing.assert_array_equal(one[ids] if rows else one, other)
    # a family without an objective has the head of a row's label
    assert bool(token_heads) == any(name.startswith("heads/") for name in before.names() if subject.pretrained)
    if subject.family.objective:  # the heads fit it again
        registry.objective(subject.family.objective)(
            smaller, smaller.tokenizer, features=subject.records().features, seed=0
        )


def test_bad_input(run, tmp_path):
    for arguments, message in (
        ({}, "give texts or data, one of them"),
        ({"texts": []}, "the corpus is empty, expected texts like those that the model will read"),
        ({"texts": ["", "  "]}, "2 texts without a piece, expected a corpus"),
        ({"texts": "one"}, "texts is 'one', expected a list of texts"),
        ({"texts": ["a film"], "size": 2}, "size must be at least"),
    ):
        with pytest.raises(InputError, match=message):
            trim(run, out=tmp_path / "t", **arguments)
    assert not (tmp_path / "t").exists()
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "mine").touch()
    with pytest.raises(InputError, match="exists already"):
        trim(run, ["a film"], out=tmp_path / "t")


def test_a_run_that_was_trimmed_is_measured_on_the_rows_it_held_out(tmp_path):
    """A trimmed or pruned run forgot them: `evaluate` then reported on nine training rows of ten."""
    task = find_task("classification")
    rows = split(task, world.labelled(tmp_path / "rows.tsv", 60))
    settings = {"steps": 1, "seed": 0, "data": rows.digests, "task": rows.task.to_json()}
    run = tmp_path / "run"
    open_run(run, "finetune", settings, data=DataPlaces(rows.sources, rows.held_out))
    made = Subject("bert", tmp_path).encoder()
    write_model(run, ModelParts(made, "bert", tokenizer=world.tokenizer(), task=rows.task.to_json()))
    write_languages(run / "tokenizer", {"de": 0, "en": 1})
    trim(run, out=tmp_path / "t", texts=["the cat"])
    prune.layers(tmp_path / "t", out=tmp_path / "p", keep=[0])
    found, told = measured(rows.task, tmp_path / "rows.tsv", run=tmp_path / "p")
    assert told == f"{len(rows.dev.texts)} rows held out of rows.tsv"
    assert found.texts == rows.dev.texts
    assert measured(rows.task, run=tmp_path / "p")[0].texts == rows.dev.texts  # the rows of the run, not named again
    assert read_languages(tmp_path / "p/tokenizer") == {"de": 0, "en": 1}
    with pytest.raises(InputError, match="kind 'rewritten' instead of 'finetune'"):
        open_run(tmp_path / "p", "finetune", settings, data=DataPlaces(rows.sources))
