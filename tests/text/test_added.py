"""Added tokens (`@USER`, `[E1]`, "New York"): pure Python == graph == `tokenizers`, ids and offsets, whatever the flags.

Contents, flags and texts are drawn with fixed seeds. Unigram's own pieces take in the blank before a word, theirs do not
(WhitespaceSplit drops it), so that starts of pieces are compared without blanks.
"""

import json
import random
from collections import Counter

import pytest
import tensorflow as tf
from tokenizers import Tokenizer as Theirs

from kerasbert.errors import InputError
from kerasbert.mobile.vocabulary.trimming import keep
from kerasbert.text import Tokenizer, WordPiece, load_tokenizer, save_hf
from kerasbert.text.added import FLAGS, AddedToken
from kerasbert.text.graph import graph_tokenizer
from kerasbert.text.wordpiece import SPECIALS
from tests.support import often
from tests.text.kinds import small_bpe, small_unigram, with_added
from tests.text.saved import assert_it_loads_without_kerasbert

CONTENTS = [
    "@USER",
    "HTTPURL",
    "[E1]",
    "[/E1]",
    "New York",
    "New",
    "<e1>",
    "é",
    "Été",
    "中国",
    "a中",
    "x_y",
    "#",
    "covid19",
    "ß",
]
AROUND = [
    " ",
    "  ",
    "",
    "",
    "",
    ".",
    "a",
    "_",
    "7",
    "中",
    "é",
    "e\u0301",
    "\u0301",
    "\n",
    "\t ",
    "\u3000",
    "\u00a0",
    "(",
    "😀",
    "ﬁ",
]
WORDS = [
    "the",
    "unaffable",
    "new york",
    "NEW YORK",
    "@user",
    "[e1]",
    "Covid19",
    "été",
    "中国中国",
    "ETE",
    "news",
    "york",
    "don't",
]
KINDS = ["uncased", "cased", "bpe", "bpe with prefix", "unigram", "uncased unigram"]
PIECES = [*"abcdefghijklmnopqrstuvwxyz0123456789@#[]/<>_.()中国é", "the", "un", "new", "york", "user"]


def plain(kind: str) -> Tokenizer:
    """A tokenizer without added tokens."""
    if "unigram" in kind:
        return small_unigram(kind == "uncased unigram")
    if "bpe" in kind:
        return small_bpe(kind == "bpe with prefix")
    return WordPiece([*SPECIALS, *PIECES, *("##" + piece for piece in PIECES)], lowercase=kind == "uncased")


def drawn_tokens(draw: random.Random, tokenizer: Tokenizer) -> list[AddedToken]:
    """Some contents with some flags."""
    known, tokens = set(tokenizer.vocabulary), []
    for content in draw.sample(CONTENTS, draw.randint(1, 6)):
        flags = {name: draw.random() < 0.35 for name in FLAGS[:-1]}
        if not (tokenizer.kind == "unigram" and content in known):
            tokens.append(AddedToken(content, **flags, piece=content in known))
    return tokens or [AddedToken("@USER")]


def drawn_text(draw: random.Random) -> str:
    """Words, contents and what may stand beside them."""
    items = [draw.choice([*CONTENTS, *CONTENTS, *WORDS, *AROUND, *AROUND, *AROUND]) for _ in range(draw.randint(0, 12))]
    return "".join(items)


def theirs_of(tokenizer: Tokenizer, path) -> Theirs:
    """What `tokenizers` makes of our tokenizer.json."""
    save_hf(tokenizer, path)
    return Theirs.from_file(str(path))


def tied(tokenizer: Tokenizer, one: list[int], other: list[int]) -> bool:
    """Whether two segmentations of a text are equally likely: `ee e` and `e ee`. Theirs takes the other one of the two."""
    if sorted(one) != sorted(other):
        return False
    return [i for i in one if i in tokenizer.added_ids] == [i for i in other if i in tokenizer.added_ids]


def differences(tokenizer: Tokenizer, theirs: Theirs, texts: list[str]) -> list[str]:
    """Texts on which ours, the graph's and theirs do not agree."""
    graph = graph_tokenizer(tokenizer)
    rows = tf.constant([text.encode() for text in texts])
    encoded, (ids, starts, ends) = graph.encode(rows), graph.tokenize(rows)
    wrong = []
    for i, text in enumerate(texts):
        ours = tokenizer.tokenize(text)
        if tokenizer.encode(text) != ours.ids or encoded[i].numpy().tolist() != ours.ids:
            wrong.append(f"encode {text!r}")
        if [part[i].numpy().tolist() for part in (ids, starts, ends)] != [ours.ids, ours.starts, ours.ends]:
            wrong.append(f"graph {text!r}")
        if tokenizer.kind == "unigram" and "\u0301" in text:
            continue  # their Precompiled works by grapheme
        reference = theirs.encode(text, add_special_tokens=False)
        offsets = list(zip(ours.starts, ours.ends))
        expected = reference.offsets
        if tokenizer.kind == "unigram":
            own = tokenizer.added_ids
            offsets, expected = (
                [pair for pair, number in zip(pairs, ours.ids) if number in own] for pairs in (offsets, expected)
            )
        alike = reference.ids == ours.ids or (tokenizer.kind == "unigram" and tied(tokenizer, reference.ids, ours.ids))
        if not alike or offsets != expected:
            wrong.append(f"theirs {text!r} {ours} {reference.ids} {reference.offsets}")
    return wrong


@pytest.mark.parametrize("kind", KINDS)
def test_random_tokens_in_random_texts_are_theirs(kind, tmp_path):
    draw = random.Random(KINDS.index(kind))
    for _ in range(2):
        tokenizer = with_added(plain(kind), drawn_tokens(draw, plain(kind)))
        texts = ["", " ", *(drawn_text(draw) for _ in range(60))]
        assert differences(tokenizer, theirs_of(tokenizer, tmp_path / "tokenizer.json"), texts) == [], tokenizer.added


@pytest.mark.parametrize("kind", often(KINDS, "bpe with prefix"))
def test_more_random_tokens_are_theirs(kind, tmp_path):
    draw = random.Random(1000 + KINDS.index(kind))
    for _ in range(4):
        tokenizer = with_added(plain(kind), drawn_tokens(draw, plain(kind)))
        texts = [drawn_text(draw) for _ in range(60)]
        assert differences(tokenizer, theirs_of(tokenizer, tmp_path / "tokenizer.json"), texts) == [], tokenizer.added


@pytest.mark.parametrize("kind", KINDS[1:])
def test_they_outlive_files_trimming_and_packing(kind, tmp_path):
    tokens = [
        AddedToken("@USER", normalized=True),
        AddedToken("[E1]", special=True),
        AddedToken("New York", lstrip=True),
    ]
    tokenizer = with_added(plain(kind), tokens)
    text = "the [E1] film @USER in New York"
    tokenizer.save(tmp_path / "ours")
    save_hf(tokenizer, tmp_path / "tokenizer.json")
    for place in (tmp_path / "ours", tmp_path / "tokenizer.json"):
        again = load_tokenizer(place)
        assert (again.added, again.encode(text)) == (tokenizer.added, tokenizer.encode(text))
        assert again.special_ids == tokenizer.special_ids
    ids = tokenizer.encode(text)
    added = [tokenizer.vocabulary.index(token.content) for token in tokens]
    assert [i for i in ids if i in added] == [added[1], added[0], added[2]]
    assert added[1] in tokenizer.special_ids  # no objective selects it
    assert added[0] not in tokenizer.special_ids
    assert not any(tokenizer.continues(i) for i in added)
    assert "@USER" in tokenizer.decode(ids)
    packed, _ = tokenizer.pack(text, text)
    assert packed.count(added[0]) == 2
    kept = keep(tokenizer, Counter(tokenizer.encode("the film")))
    assert {*added} <= {*kept}
    kept = keep(tokenizer, Counter(ids))
    assert [kept[i] for i in tokenizer.renumbered(kept).encode(text)] == ids


def test_special_tokens_stay_ordinary_text():
    tokenizer = with_added(plain("uncased"), [AddedToken("[E1]")])
    assert not {*tokenizer.special_ids} & {*tokenizer.encode("[MASK] [E1] [SEP]")} - {tokenizer.unk_id}
    with pytest.raises(InputError, match=r"the added token '\[MASK\]' occurs twice: leave one out"):
        with_added(plain("uncased"), [AddedToken("[MASK]"), AddedToken("[MASK]")])


def test_digests_without_added_tokens_stay():
    tokenizer = WordPiece([*SPECIALS, "a"])
    assert tokenizer.digest() == "04e057c0f5af72d9dae21625912a5ceea5adb5ba41afe8fc65a93896ed089e7d"
    assert "added" not in tokenizer.settings()


@pytest.mark.parametrize(
    ("added", "message"),
    [
        ("@USER", "added must be a list of tokens. Received: '@USER'"),
        ([{"content": "zz", "colour": True}], "expected content and single_word, lstrip"),
        ([{"content": ""}], "an added token is '', expected 1 to 1000 characters"),
        ([{"content": "a", "lstrip": 1}], "lstrip of the added token 'a' must be true or false"),
        ([{"content": "zz"}], "the vocabulary has no 'zz', which is an added token: add it as the last piece"),
        ([{"content": "a"}, {"content": "a"}], "the added token 'a' occurs twice"),
        ([{"content": "\u0301", "normalized": True}], "nothing is left of the added token .* after normalisation"),
    ],
)
def test_bad_added_tokens(added, message):
    with pytest.raises(InputError, match=message):
        WordPiece([*SPECIALS, "a", "\u0301"], added=added)


def transformers_folder(folder, cls, pieces, **flags):
    """A folder that transformers wrote, with added tokens."""
    (folder / "v").mkdir(parents=True)
    (folder / "v/vocab.txt").write_text("\n".join(pieces) + "\n")
    theirs = cls.from_pretrained(str(folder / "v"), **flags)
    theirs.add_tokens(["@USER", "New York"])
    theirs.add_special_tokens({"extra_special_tokens": ["[E1]", "[/E1]"]})
    theirs.save_pretrained(str(folder / "o"))
    return theirs


@pytest.mark.slow
def test_a_folder_of_transformers(tmp_path):
    """tokenizer.json, then the vocabulary with the files of older versions beside it."""
    transformers = pytest.importorskip("transformers")
    theirs = transformers_folder(tmp_path, transformers.BertTokenizer, [*SPECIALS, *PIECES])
    texts = ["the [E1] @user in new york", "[E1]the[/E1]", "@USER@User new yorkers", "un [e1]"]
    ours = load_tokenizer(tmp_path / "o")
    assert [ours.pack(text)[0] for text in texts] == theirs(texts)["input_ids"]
    old = tmp_path / "old"
    old.mkdir()
    (old / "vocab.txt").write_text("\n".join([*SPECIALS, *PIECES]) + "\n")
    size = len(SPECIALS) + len(PIECES)
    (old / "added_tokens.json").write_text(json.dumps({"@USER": size, "[E1]": size + 1}))
    (old / "special_tokens_map.json").write_text(json.dumps({"extra_special_tokens": ["[E1]", "[/E1]"]}))
    (old / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer", "do_lower_case": True}))
    theirs, ours = transformers.AutoTokenizer.from_pretrained(str(old)), load_tokenizer(old)
    assert [ours.pack(text)[0] for text in texts] == theirs(texts)["input_ids"]
    assert [token.content for token in ours.added] == ["@USER", "[E1]", "[/E1]"]


def test_unigram_without_whitespace_split_is_refused_by_name(tmp_path):
    save_hf(with_added(plain("unigram"), [AddedToken("@USER", normalized=True)]), tmp_path / "tokenizer.json")
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    content["pre_tokenizer"] = content["pre_tokenizer"]["pretokenizers"][1]
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(
        InputError, match=r"the added token '@USER' \(normalized True\) cannot be matched as theirs here"
    ):
        load_tokenizer(tmp_path)
    content["pre_tokenizer"]["prepend_scheme"] = "first"
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match="prepend_scheme 'first' cannot be matched as theirs: only 'always' can"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("bpe with prefix", marks=pytest.mark.full),
        pytest.param("uncased", marks=pytest.mark.full),
        pytest.param("uncased unigram", marks=pytest.mark.full),
    ],
)
def test_saved_models_find_them_without_kerasbert(kind, tmp_path):
    tokens = [AddedToken("@USER", normalized=True, lstrip=True), AddedToken("[E1]", special=True, rstrip=True)]
    tokenizer = with_added(plain(kind), tokens)
    texts = ["the [E1] film @USER", "", "@user[E1]é中"]
    assert_it_loads_without_kerasbert(tokenizer, graph_tokenizer(tokenizer), texts, tmp_path)


def test_an_added_piece_is_no_piece_of_words(tmp_path):
    """`single_word` leaves covid19 inside a word alone; the model has no such piece, as theirs."""
    tokenizer = with_added(plain("uncased"), [AddedToken("covid19", single_word=True)])
    theirs = theirs_of(tokenizer, tmp_path / "tokenizer.json")
    assert differences(tokenizer, theirs, ["covid19x", "xcovid19 covid19", "covid19_", "covid19's"]) == []
    assert tokenizer.tokenize("covid19x").pieces[:2] == ["c", "##o"]
