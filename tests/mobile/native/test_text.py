"""Text -> ids and offsets in C == in Python, `tokenizers` and sentencepiece as the third voice."""

import json
import random
from pathlib import Path

import pytest

from kerasbert.errors import InputError
from kerasbert.mobile.native import build
from kerasbert.mobile.runtime import native
from kerasbert.mobile.runtime.native import NativeTokenizer, Unsupported
from kerasbert.text import load_tokenizer
from kerasbert.text.added import finding_specials
from kerasbert.text.bpe import BytePairEncoding
from tests.mobile.native.tokenizers import SHARED, SMALL, byte_strings, differences, files, texts
from tests.support import ROOT, shared
from tests.text.kinds import (
    byte_level_reference,
    gpt2_bpe,
    sentencepiece_tokens,
    shared_unigram,
    small_bpe,
    small_unigram,
    small_word_bpe,
)
from tests.text.strings import generate, hugging_face, reference_tokens
from tests.text.test_finding_specials import texts as special_texts


@pytest.mark.parametrize("name", SMALL)
def test_c_gives_the_ids_and_offsets_of_python(name):
    tokenizer = SMALL[name]()
    assert differences(tokenizer, texts(80, seed=5)[:-1] + ["x" * 3000 + " é" * 500]) == []
    assert differences(tokenizer, byte_strings(150, seed=6)) == []
    assert differences(tokenizer, ["", " ", "\x00", "a\x00b", "\ud83d\ude00 a\ud800", b"\xf0\x9f\x98"]) == []


@pytest.mark.parametrize("name", SMALL)
def test_special_tokens_are_found_in_texts_where_the_tokenizer_does_so(name):
    tokenizer = finding_specials(SMALL[name]())
    assert differences(tokenizer, special_texts(tokenizer, 60, 3)) == []


def test_a_row_without_special_tokens_holds_a_token():
    """As `Tokenizer.join`: of no text one padding token."""
    pieces = small_bpe()
    bare = BytePairEncoding(pieces.vocabulary, pieces.merges, specials=pieces.specials, template=("$A", "$A $B:1"))
    fast = NativeTokenizer(files(bare))
    assert fast.pack("") == fast.pack("", "") == fast.pack("", "", 4) == ([bare.pad_id], [0])
    for pair in (("a", "b"), ("", "b"), ("a", "")):
        assert fast.pack(*pair) == bare.pack(*pair)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in SMALL if name.startswith("unigram")])
def test_words_are_forgotten_where_no_place_is_free(name, tmp_path, monkeypatch):
    monkeypatch.setenv(native.VARIABLE, str(build.build(tmp_path / build.NAME, ["-DKB_MEMOS=8"])))
    assert differences(SMALL[name](), texts(200, seed=11)) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", SHARED)
def test_shared_vocabularies(name):
    assert differences(SHARED[name](), texts(120, seed=7)) == []


@pytest.mark.full
@pytest.mark.parametrize("name", [*SMALL, *SHARED])
def test_100_000_strings(name):
    """And 10,000 strings of bytes, and every line of the texts beside the project."""
    tokenizer = (SMALL | SHARED)[name]()
    for seed in range(20):
        assert differences(tokenizer, texts(5_000, seed=100 + seed)) == []
    assert differences(tokenizer, byte_strings(10_000, seed=8)) == []


def real_lines() -> list[str]:
    """Every line of the texts beside the project, each once."""
    paths = [path for name in ("lm", "xquad") for path in sorted(shared(f"data/{name}").rglob("*")) if path.is_file()]
    found: list[str] = []
    for path in paths:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".json":
            for document in json.loads(text)["data"]:
                for paragraph in document["paragraphs"]:
                    found += [paragraph["context"], *(each["question"] for each in paragraph["qas"])]
        found += text.split("\n")
    return list(dict.fromkeys(found))


@pytest.mark.full
@pytest.mark.parametrize("name", SHARED)
def test_every_line_of_real_texts(name):
    assert differences(SHARED[name](), real_lines()) == []


@pytest.mark.full
def test_the_third_voice_on_100_000_strings():
    for seed in range(20):
        third_voice(generate(5_000, seed=200 + seed)[:-1])
    third_voice([line for line in real_lines() if line.strip()])


def third_voice(strings: list[str]) -> None:
    """C == `tokenizers` (WordPiece and byte-level BPE) and sentencepiece, ids and offsets."""
    tokenizer = load_tokenizer(shared("data/vocab/bert-base-uncased"))
    for ours, theirs in ((tokenizer, hugging_face(tokenizer)), (gpt2_bpe(), byte_level_reference(gpt2_bpe()))):
        fast = NativeTokenizer(files(ours))
        for text, tokens in zip(strings, reference_tokens(theirs, strings)):
            assert fast.offsets(text) == (tokens.ids, tokens.starts, tokens.ends), text[:80]
    unigram = shared_unigram("sentencepiece-tflite")
    fast = NativeTokenizer(files(unigram))
    for text, tokens in zip(strings, sentencepiece_tokens(unigram, strings)):
        ids = fast.encode(text)
        # versions of sentencepiece decide differently between paths of equal score (text/unigram.py)
        assert ids == tokens.ids or (ids == unigram.encode(text) and len(ids) == len(tokens.ids)), text[:80]


@pytest.mark.slow
def test_the_third_voice():
    third_voice(generate(300, seed=9)[:-1])


@pytest.mark.parametrize("name", SMALL)
def test_pack_is_the_python_one(name):
    tokenizer, draw = SMALL[name](), random.Random(1)
    fast, strings = NativeTokenizer(files(tokenizer)), texts(40, seed=10)[:-1]
    for text in strings:
        other, length = draw.choice(strings), draw.randint(8, 60)
        for arguments in ((text,), (text, None, length), (text, other), (text, other, length)):
            assert fast.pack(*arguments) == tokenizer.pack(*arguments), arguments
    with pytest.raises(InputError, match="length is 1, expected at least"):
        fast.pack("a", "b", 1)


def test_the_tables_are_those_of_python():
    """mobile/native/tables.h is what the generator writes from kerasbert/text/tables.py."""
    from tests.golden.native_tables import header

    assert (build.FOLDER / "tables.h").read_text() == header()


def test_other_tokenizers_are_refused_by_name():
    with pytest.raises(
        Unsupported,
        match="does not read a tokenizer of kind 'word_bpe', expected wordpiece, bpe, metaspace_bpe or unigram",
    ):
        NativeTokenizer(files(small_word_bpe()))
    with pytest.raises(Unsupported, match="a tokenizer with a knowledge graph"):
        NativeTokenizer(files(SMALL["wordpiece"]()) | {"knowledge.bin": b""})
    with pytest.raises(Unsupported, match="has the setting 'color', which is not known here"):
        NativeTokenizer({"tokenizer.json": b'{"kind": "wordpiece", "settings": {"color": 1}}', "vocab.txt": b"a"})
    with pytest.raises(Unsupported, match="a tokenizer.json of others, without kind"):
        NativeTokenizer({"tokenizer.json": b'{"model": {}}'})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"vocab.txt": b"a\nb"}, r"the vocabulary has no \[PAD\]"),
        ({"vocab.txt": b"a\na"}, "the piece 'a' occurs more than once"),
        ({"vocab.txt": b"\xff"}, "vocab.txt is not UTF-8"),
        ({"vocab.txt": b"\n\n"}, "the vocabulary is empty"),
        (
            {"tokenizer.json": b'{"kind": "wordpiece", "settings": {"lowercase": 3}}'},
            "lowercase is neither true nor false",
        ),
        (
            {"tokenizer.json": b'{"kind": "wordpiece", "settings": {"added": [{"content": "zzz"}]}}'},
            "an added token is no piece",
        ),
        ({"tokenizer.json": b'{"kind": "wordpiece", }'}, "tokenizer.json is not json from byte"),
        ({"tokenizer.json": b"[" * 100_000}, "tokenizer.json is not json from byte 64"),
        (
            {"tokenizer.json": b'{"kind": "unigram"}', "spiece.model": b"\x0a\xff\xff\xff\xff\x0f"},
            "not a SentencePiece model",
        ),
        (
            {"tokenizer.json": b'{"kind": "bpe"}', "vocab.json": b'{"a": 0}', "merges.txt": b""},
            "the vocabulary has no <pad>",
        ),
        (
            {"tokenizer.json": b'{"kind": "bpe"}', "vocab.json": b'{"a": 9}', "merges.txt": b""},
            "are not 0 to 0, each once",
        ),
        ({"tokenizer.json": b'{"kind": "bpe"}'}, "the tokenizer has no file vocab.json"),
    ],
)
def test_damaged_files_are_refused(change, said):
    with pytest.raises(InputError, match=said):
        NativeTokenizer(files(SMALL["wordpiece"]()) | change)


def test_a_library_that_is_not_there_or_another(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(native.VARIABLE, "off")
    assert native.path() is None
    assert not native.quicken(small_bpe(), {})
    with pytest.raises(InputError, match="the portable core is not built: python -m kerasbert.mobile.native.build"):
        NativeTokenizer({})
    monkeypatch.setenv(native.VARIABLE, "none.so")
    with pytest.raises(
        InputError, match=r"KERASBERT_NATIVE is none.so, and there is no such file. Do: .* --out none.so"
    ):
        native.quicken(small_bpe(), {})
    (tmp_path / "none.so").write_bytes(b"no library")
    with pytest.raises(InputError, match="is not the portable core .* Build it: python -m"):
        NativeTokenizer({})


def test_a_library_of_this_folder_is_loaded(compiled, tmp_path, monkeypatch):
    """As `build --out mine.so` says it: the system's loader would look for a bare name elsewhere."""
    (tmp_path / "mine.so").write_bytes(compiled.read_bytes())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(native.VARIABLE, "mine.so")
    assert native.quicken(small_bpe(), files(small_bpe()))


def test_the_library_is_small(compiled):
    assert compiled.stat().st_size <= 300_000


def test_no_compiler_is_said(monkeypatch, tmp_path):
    monkeypatch.setenv("CC", "/none")
    with pytest.raises(InputError, match="no C compiler: cc, gcc or clang, or name one in CC"):
        build.build(tmp_path / "x.so")


def test_one_tokenizer_in_several_works():
    """The cache of words of one tokenizer is not another's."""
    one, two = small_bpe(), small_bpe(True)
    first, second = NativeTokenizer(files(one)), NativeTokenizer(files(two))
    second._tokens, second._view = first._tokens, first._view
    for text in ("the unaffable", "the embeddings", "the unaffable"):
        assert first.encode(text) == one.encode(text)
        assert second.encode(text) == two.encode(text)


def test_every_c_file_is_in_the_package():
    """setup.cfg names what is no Python file."""
    listed = (ROOT / "setup.cfg").read_text()
    assert "kerasbert.mobile.native = *.c, *.h" in listed
    assert {path.suffix for path in Path(build.FOLDER).iterdir() if path.is_file()} <= {
        ".c",
        ".h",
        ".hpp",
        ".txt",
        ".py",
        ".md",
        ".so",
    }
    assert small_unigram().kind == "unigram"


def test_words_that_unigram_remembers():
    """Long texts, whose sum of scores leaves near ties to float32; unknown characters at each end of a word; long words."""
    for make in (small_unigram, lambda: small_unigram(True)):
        tokenizer = make()
        for words in ("the unaffable embeddings", "☃a a☃ ☃☃ a☃☃b ☃", "ab" * 12 + " " + "ab" * 15 + " " + "é" * 16):
            assert differences(tokenizer, [words, f"{words} " * 3, f" {words} " * 800, words.replace(" ", "  ")]) == []
    one, two = small_unigram(), small_unigram(True)
    first, second = NativeTokenizer(files(one)), NativeTokenizer(files(two))
    second._tokens, second._view = first._tokens, first._view
    for text in ("The Unaffable", "The embeddings", "The Unaffable"):
        assert first.encode(text) == one.encode(text)
        assert second.encode(text) == two.encode(text)
