"""Tokenizers in and out of files."""

import json

import pytest
from tokenizers import Tokenizer

from kerasbert.errors import InputError
from kerasbert.text import WordPiece, load_tokenizer, save_hf
from kerasbert.text.wordpiece import SPECIALS

PIECES = [*SPECIALS, "un", "##aff", "##able", "中", "\u2028", "!"]


def write(path, pieces, end="\n"):
    """A vocab.txt."""
    path.write_bytes((end.join(pieces) + end).encode())
    return path


def test_save_and_load(tmp_path):
    tokenizer = WordPiece(PIECES, lowercase=False, strip_accents=True, split_cjk=False, max_word_chars=7)
    tokenizer.save(tmp_path / "tokenizer")
    again = load_tokenizer(tmp_path / "tokenizer")
    assert again.digest() == tokenizer.digest()
    assert (again.vocabulary, again.settings()) == (tokenizer.vocabulary, tokenizer.settings())
    again.save(tmp_path / "again")
    for name in ("tokenizer.json", "vocab.txt"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "tokenizer" / name).read_bytes()


def test_a_vocabulary_alone_tells_its_case(tmp_path):
    assert load_tokenizer(write(tmp_path / "a.txt", [*PIECES, "<S>"])).lowercase
    assert not load_tokenizer(write(tmp_path / "b.txt", [*PIECES, "##Able"])).lowercase
    assert load_tokenizer(tmp_path / "b.txt", lowercase=True).lowercase


def test_windows_line_ends_and_an_empty_last_line(tmp_path):
    assert load_tokenizer(write(tmp_path / "vocab.txt", [*PIECES, ""], "\r\n")).vocabulary == tuple(PIECES)


def test_hugging_face_directory_with_vocab_and_config(tmp_path):
    write(tmp_path / "vocab.txt", PIECES)
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"do_lower_case": False, "tokenize_chinese_chars": False})
    )
    tokenizer = load_tokenizer(tmp_path)
    assert (tokenizer.lowercase, tokenizer.strip_accents, tokenizer.split_cjk) == (False, False, False)


@pytest.mark.parametrize(
    "settings", [{}, {"lowercase": False}, {"strip_accents": False, "split_cjk": False, "max_word_chars": 8}]
)
def test_hugging_face_reads_what_we_write_and_we_read_it_back(tmp_path, settings):
    tokenizer = WordPiece(PIECES, **settings)
    save_hf(tokenizer, tmp_path / "tokenizer.json")
    assert load_tokenizer(tmp_path).digest() == tokenizer.digest()
    theirs = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    for text in ("Unaffable unaffable!", "unaffable中unaffable", "", "ùn"):
        assert theirs.encode(text, add_special_tokens=False).ids == tokenizer.encode(text)
        single, pair = theirs.encode(text), theirs.encode(text, "un!")
        assert (single.ids, single.type_ids) == tokenizer.pack(text)
        assert (pair.ids, pair.type_ids) == tokenizer.pack(text, "un!")


def test_hugging_face_added_tokens_join_the_vocabulary(tmp_path):
    save_hf(WordPiece(PIECES), tmp_path / "tokenizer.json")
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    content["added_tokens"].append({"id": len(PIECES), "content": "[EXTRA]", "special": True})
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    assert load_tokenizer(tmp_path).vocabulary == (*PIECES, "[EXTRA]")


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("model", "type"), "WordLevel", "model.type is 'WordLevel', expected one of WordPiece, BPE, Unigram"),
        (("normalizer",), None, "normalizer.type is None, expected 'BertNormalizer'"),
        (("normalizer", "clean_text"), False, "normalizer.clean_text is False, expected True"),
        (("model", "vocab"), {"[PAD]": 0, "x": 0}, r"'\[PAD\]' and 'x' have one id, 0: each needs its own"),
    ],
)
def test_a_hugging_face_tokenizer_that_is_not_berts(tmp_path, path, value, message):
    save_hf(WordPiece(PIECES), tmp_path / "tokenizer.json")
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    target = content
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match=message):
        load_tokenizer(tmp_path)


def test_errors_name_the_file_and_what_is_missing(tmp_path):
    with pytest.raises(InputError, match=r"no tokenizer at .*nowhere, expected a tokenizer directory"):
        load_tokenizer(tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"expected tokenizer.json or vocab.txt there"):
        load_tokenizer(tmp_path)
    with pytest.raises(InputError, match=r"vocab.txt: the vocabulary of 10 pieces has no \[MASK\]"):
        load_tokenizer(write(tmp_path / "vocab.txt", [piece for piece in PIECES if piece != "[MASK]"]))
    with pytest.raises(InputError, match=r"empty.txt: the vocabulary is empty"):
        load_tokenizer(write(tmp_path / "empty.txt", []))
    (tmp_path / "latin.txt").write_bytes("é".encode("latin-1"))
    with pytest.raises(InputError, match=r"latin.txt is not UTF-8 \(byte 0\)"):
        load_tokenizer(tmp_path / "latin.txt")


def test_a_broken_or_foreign_json(tmp_path):
    file = tmp_path / "tokenizer.json"
    file.write_text("{")
    with pytest.raises(InputError, match=r"tokenizer.json: not json \(line 1"):
        load_tokenizer(tmp_path)
    file.write_text("[]")
    with pytest.raises(InputError, match="a json list, expected an object"):
        load_tokenizer(tmp_path)
    file.write_text('{"kind": "wordpeice"}')
    with pytest.raises(InputError, match=r"no tokenizer 'wordpeice'\. Nearest: 'wordpiece'"):
        load_tokenizer(tmp_path)
    file.write_text('{"kind": "wordpiece", "settings": {"lower": true}}')
    write(tmp_path / "vocab.txt", PIECES)
    with pytest.raises(InputError, match="settings do not fit"):
        load_tokenizer(tmp_path)
    (tmp_path / "vocab.txt").unlink()
    file.write_text('{"kind": "wordpiece", "settings": {}}')
    with pytest.raises(InputError, match=r"cannot read vocab.txt: No such file"):
        load_tokenizer(tmp_path)


def test_a_tokenizer_of_special_tokens_alone_is_refused(tmp_path):
    """As transformers 5 saves one that was given a vocabulary by an older argument: every text was [UNK], in silence."""
    special = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n"
    (tmp_path / "vocab.txt").write_text(special)
    with pytest.raises(InputError, match=r"vocab\.txt holds special tokens alone"):
        load_tokenizer(tmp_path)
    (tmp_path / "vocab.txt").write_text(special + "a\n")
    assert load_tokenizer(tmp_path).encode("a") == [5]
