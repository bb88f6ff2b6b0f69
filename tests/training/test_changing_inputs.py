"""What a training reads and begins from may change meanwhile, or between two starts: no run is of two contents in silence."""

import os
import shutil

import pytest

import kerasbert as kb
from kerasbert.checkpoints import ModelParts
from kerasbert.data import Records
from kerasbert.errors import InputError
from kerasbert.text import WordPiece
from kerasbert.training import finetune, model_files, splits
from tests import tiny

TOLD = "changed while it was read: give the same command again"
PIECES = tiny.tokenizer().vocabulary
SETTINGS = {"batch": 8, "length": 16, "quiet": True, "save_every": 2}


def encoder(vocabulary=PIECES, **changes):
    """Weights that are always the same."""
    import keras

    keras.utils.set_random_seed(0)
    tokenizer = WordPiece(vocabulary)
    made = kb.build("bert/tiny", **tiny.SPEC, **{"embeddings.vocabulary": tokenizer.size}, **changes)
    made.tokenizer = tokenizer
    return made


@pytest.fixture
def begun(tmp_path):
    """What a fine-tuning begins from, and its rows."""
    kb.save(encoder(), tmp_path / "base")
    return tmp_path / "base", tiny.labelled(tmp_path / "rows.tsv", 40)


def test_rows_that_change_between_their_hash_and_their_reading(begun, tmp_path, monkeypatch):
    """run.json held the hash of the old ones, by which an old run was gone on with on the new ones."""
    base, rows = begun
    real = splits._read
    monkeypatch.setattr(splits, "_read", lambda *given: tiny.labelled(rows, 40, seed=2) and real(*given))
    with pytest.raises(InputError, match=f"rows.tsv {TOLD}"):
        kb.finetune(base, "classification", rows, out=tmp_path / "run", steps=1, **SETTINGS)
    assert not (tmp_path / "run").exists()


def test_a_model_that_is_replaced_while_texts_are_tokenized(begun, tmp_path, monkeypatch):
    base, rows = begun
    real = finetune.encode_texts

    def encode(*given, **settings):
        if not (tmp_path / "old").exists():
            shutil.copytree(base, tmp_path / "new")
            os.rename(base, tmp_path / "old")
            os.rename(tmp_path / "new", base)
        return real(*given, **settings)

    monkeypatch.setattr(finetune, "encode_texts", encode)
    with pytest.raises(InputError, match=f"base {TOLD}"):
        kb.finetune(base, "classification", rows, out=tmp_path / "run", steps=1, **SETTINGS)


OTHERS = {
    "the tokenizer is .* there, .* of what it begins from": ([*PIECES[:5], *reversed(PIECES[5:])], {}),
    "the settings of the network are others": (PIECES, {"dropout": 0.3}),
}


@pytest.mark.parametrize(("told", "other"), OTHERS.items(), ids=["tokenizer", "settings"])
def test_what_the_weights_do_not_tell(begun, told, other):
    """A run's own directory, here the base, holds what it began from."""
    base, _ = begun
    pieces, changes = other
    for made in (encoder(), kb.load(base)):
        model_files._check_begun(base, ModelParts(made, "bert/tiny", tokenizer=made.tokenizer))
    made = encoder(pieces, **changes)
    with pytest.raises(InputError, match=f"base holds another run: {told}. Choose another --out"):
        model_files._check_begun(base, ModelParts(made, "bert/tiny", tokenizer=made.tokenizer))


@pytest.mark.slow
def test_another_vocabulary_of_the_same_weights_is_another_run(begun, tmp_path):
    """The run went on with other tokens, and left a model of the new vocabulary."""
    base, rows = begun
    kb.finetune(base, "classification", rows, out=tmp_path / "run", steps=2, **SETTINGS)
    kb.save(encoder([*PIECES[:5], *reversed(PIECES[5:])]), base, overwrite=True)
    with pytest.raises(InputError, match="run holds another run: the tokenizer is .* there, .* of what it begins from"):
        kb.finetune(base, "classification", rows, out=tmp_path / "run", steps=4, **SETTINGS)
    kb.save(encoder(), base, overwrite=True)
    kb.finetune(base, "classification", rows, out=tmp_path / "run", steps=4, **SETTINGS)


@pytest.fixture
def records(tmp_path):
    return Records(tiny.records(tmp_path)).verify()


def other_records(records, folder):
    """Records of the same sizes in their place."""
    folder.mkdir()
    from kerasbert.data import write_records

    write_records([tiny.corpus(folder / "corpus.txt", seed=5)], tiny.tokenizer(), folder / "out", length=24)
    shutil.rmtree(records.directory)
    os.rename(folder / "out", records.directory)


def test_records_that_are_made_anew_while_they_are_trained_on(records, tmp_path):
    records.check_read()
    other_records(records, tmp_path / "other")
    with pytest.raises(InputError, match="records-pairs changed while it was trained on: .* the same command goes on"):
        records.check_read()


def test_records_that_are_copied_or_deleted_are_no_others(records, tmp_path):
    """The stream opens a file each time: nothing else was read."""
    shutil.copytree(records.directory, tmp_path / "copy")
    shutil.rmtree(records.directory)
    records.check_read()
    os.rename(tmp_path / "copy", records.directory)
    records.check_read()
    records.check_read()


@pytest.mark.slow
def test_a_pretraining_keeps_no_checkpoint_of_two_corpora(records, tmp_path, monkeypatch):
    from kerasbert.training.trainer import Trainer

    real = Trainer._save

    def save(self, step):
        if step == 4 and not (tmp_path / "other").exists():
            other_records(records, tmp_path / "other")
        real(self, step)

    monkeypatch.setattr(Trainer, "_save", save)
    settings = {"steps": 6, "batch": 8, "save_every": 2, "changes": tiny.SPEC, "quiet": True}
    with pytest.raises(InputError, match="changed while it was trained on"):
        kb.pretrain("bert/tiny", records.directory, out=tmp_path / "run", **settings)
    assert sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir()) == ["step_2"]


def test_a_corpus_that_changes_while_records_are_made_of_it(tmp_path, monkeypatch):
    """Its hash is in the manifest."""
    from kerasbert.data import writer

    corpus, real = tiny.corpus(tmp_path / "corpus.txt"), writer._fill
    monkeypatch.setattr(writer, "_fill", lambda *given: tiny.corpus(corpus, seed=3) and real(*given))
    with pytest.raises(InputError, match=f"corpus.txt {TOLD}"):
        writer.write_records([corpus], tiny.tokenizer(), tmp_path / "records", length=24)
    assert [path.name for path in tmp_path.iterdir()] == ["corpus.txt"]
