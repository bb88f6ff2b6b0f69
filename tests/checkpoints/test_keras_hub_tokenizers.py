"""Tokenizers of KerasHub presets that we write, read back by our own reader."""

import json
import re

import pytest

import kerasbert as kb
from kerasbert.checkpoints.keras_hub_tokenizers import read_tokenizer, write_tokenizer
from kerasbert.errors import InputError
from kerasbert.text import WordPiece
from kerasbert.text.added import finding_specials
from tests.checkpoints import presets
from tests.checkpoints.test_keras_hub_files import written


@pytest.mark.parametrize("case", presets.TOKENIZERS)
def test_tokenizers_come_back(case, tmp_path, capsys):
    tokenizer = presets.TOKENIZERS[case]
    _, back = written(tmp_path, case, tokenizer=tokenizer)
    read = kb.load_tokenizer(back / "tokenizer")
    assert read.digest() == tokenizer.digest()
    assert read.template == tokenizer.template
    assert [read.encode(text) for text in presets.TEXTS] == [tokenizer.encode(text) for text in presets.TEXTS]
    assert "the tokenizer" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("case", "other", "told"),
    [
        ("xlnet", "albert", "the tokenizer is left out: KerasHub has no XLNetTokenizer"),
        ("roberta", "bert", "left out: RobertaTokenizer is no wordpiece"),
        ("xlm-roberta", "albert", r"left out: XLMRobertaTokenizer has the special tokens <pad> <unk> <s> </s> <mask>"),
    ],
)
def test_a_tokenizer_that_they_have_not_is_left_out(case, other, told, tmp_path, capsys):
    _, back = written(tmp_path, case, tokenizer=presets.TOKENIZERS[other])
    assert told in capsys.readouterr().err
    assert not (tmp_path / "preset/tokenizer.json").exists()
    assert not (back / "tokenizer").exists()


def test_added_tokens_are_told(tmp_path, capsys):
    tokenizer = presets.TOKENIZERS["bert"].extended(["[E1]"])
    written(tmp_path, "bert", tokenizer=tokenizer)
    assert "BertTokenizer finds no added tokens in a text ([E1])" in capsys.readouterr().err


CLASSES = {
    "bert": "BertTokenizer",
    "xlm-roberta": "XLMRobertaTokenizer",
    "roberta": "RobertaTokenizer",
    "albert": "AlbertTokenizer",
    "gpt2": "GPT2Tokenizer",
}
FILES = {
    "bert": ["vocabulary.txt"],
    "roberta": ["merges.txt", "vocabulary.json"],
    "gpt2": ["merges.txt", "vocabulary.json"],
}


@pytest.mark.parametrize("case", CLASSES)
def test_files_of_a_tokenizer(case, tmp_path):
    name = CLASSES[case]
    write_tokenizer(tmp_path, presets.TOKENIZERS[case], name.replace("Tokenizer", "Backbone"), tmp_path)
    assert sorted(path.name for path in (tmp_path / "assets/tokenizer").iterdir()) == FILES.get(
        case, ["vocabulary.spm"]
    )
    described = json.loads((tmp_path / "tokenizer.json").read_text())
    config = described.pop("config")
    assert described == {"module": "keras_hub.models", "class_name": name, "registered_name": f"keras_hub>{name}"}
    own = {"bert": {"vocabulary": None, "lowercase": True, "strip_accents": True}}
    own |= {key: {"add_prefix_space": False} for key in ("roberta", "gpt2")}
    assert config == {"name": "tokenizer", "trainable": True} | own.get(case, {"proto": None})
    again = read_tokenizer(tmp_path)
    assert again.digest() == presets.TOKENIZERS[case].digest()


def test_settings_of_a_tokenizer_are_read_and_others_refused(tmp_path):
    assert read_tokenizer(tmp_path) is None
    write_tokenizer(tmp_path, presets.TOKENIZERS["bert"], "BertBackbone", tmp_path)
    described = json.loads((tmp_path / "tokenizer.json").read_text())

    def changed(**settings):
        config = {name: value for name, value in (described["config"] | settings).items() if value != "absent"}
        (tmp_path / "tokenizer.json").write_text(json.dumps(described | {"config": config}))
        return read_tokenizer(tmp_path).settings()

    for lowercase, accents in ((True, False), (False, True), (False, False)):
        found = changed(lowercase=lowercase, strip_accents=accents)
        assert (found["lowercase"], found["strip_accents"]) == (lowercase, accents)
    found = changed(lowercase="absent", strip_accents="absent")
    assert (found["lowercase"], found["strip_accents"]) == (False, False)
    with pytest.raises(InputError, match=r"tokenizer.json has split False, expected True: no such tokenizer here"):
        changed(split=False)
    (tmp_path / "tokenizer.json").unlink()
    assert read_tokenizer(tmp_path) is None


def test_a_model_of_pieces_is_of_a_known_class(tmp_path):
    write_tokenizer(tmp_path, presets.TOKENIZERS["albert"], "AlbertBackbone", tmp_path)
    path = tmp_path / "tokenizer.json"
    path.write_text(path.read_text().replace("AlbertTokenizer", "GemmaTokenizer"))
    with pytest.raises(InputError, match="is of a GemmaTokenizer, expected one of .*AlbertTokenizer"):
        read_tokenizer(tmp_path)
    (tmp_path / "assets/tokenizer/vocabulary.spm").unlink()
    assert read_tokenizer(tmp_path) is None


def test_chinese_characters_that_stay_together_are_no_bert_tokenizer_of_theirs(tmp_path, capsys):
    write_tokenizer(tmp_path, WordPiece(presets.WORDS, split_cjk=False), "BertBackbone", tmp_path)
    assert "BertTokenizer parts Chinese characters, this one does not" in capsys.readouterr().err
    assert not (tmp_path / "assets").exists()


DEFAULTS = {  # of KerasHub's tokenizers: with others they give other ids
    "split": True,
    "split_on_cjk": True,
    "suffix_indicator": "##",
    "sequence_length": None,
    "add_bos": False,
    "add_eos": False,
    "oov_token": "[UNK]",
}


@pytest.mark.parametrize(("key", "only"), DEFAULTS.items())
def test_settings_that_give_other_ids_are_refused(key, only, tmp_path):
    write_tokenizer(tmp_path, presets.TOKENIZERS["bert"], "BertBackbone", tmp_path)
    path = tmp_path / "tokenizer.json"
    described = json.loads(path.read_text())
    for value in (only, None, not only if isinstance(only, bool) else 7):
        path.write_text(json.dumps(described | {"config": described["config"] | {key: value}}))
        if value in (only, None):
            assert read_tokenizer(tmp_path).digest() == presets.TOKENIZERS["bert"].digest()
            continue
        told = re.escape(f"tokenizer.json has {key} {value!r}, expected {only!r}: no such tokenizer")
        with pytest.raises(InputError, match=told):
            read_tokenizer(tmp_path)


def test_special_tokens_are_found_in_texts_as_there(tmp_path, capsys):
    """`special_tokens_in_strings` of WordPiece; byte-level BPE finds them anyway, SentencePiece's models do not."""
    plain, found = presets.TOKENIZERS["bert"], finding_specials(presets.TOKENIZERS["bert"])
    write_tokenizer(tmp_path / "bert", found, "BertBackbone", tmp_path)
    assert json.loads((tmp_path / "bert/tokenizer.json").read_text())["config"]["special_tokens_in_strings"] is True
    assert read_tokenizer(tmp_path / "bert").digest() == found.digest() != plain.digest()
    write_tokenizer(tmp_path / "bart", finding_specials(presets.TOKENIZERS["bart"]), "BartBackbone", tmp_path)
    assert capsys.readouterr().err == ""
    write_tokenizer(tmp_path / "albert", finding_specials(presets.TOKENIZERS["albert"]), "AlbertBackbone", tmp_path)
    assert "AlbertTokenizer finds no added tokens in a text (<pad> <unk> [CLS])" in capsys.readouterr().err


def test_tokens_that_a_text_is_not_split_at_are_told(tmp_path, capsys):
    write_tokenizer(tmp_path, presets.TOKENIZERS["bart"], "BartBackbone", tmp_path)
    path = tmp_path / "tokenizer.json"
    described = json.loads(path.read_text())
    path.write_text(json.dumps(described | {"config": described["config"] | {"unsplittable_tokens": ["</s>"]}}))
    read_tokenizer(tmp_path)
    assert "not used: unsplittable_tokens (tokenizer.json)" in capsys.readouterr().err
