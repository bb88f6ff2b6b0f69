"""Gemma's kind of BPE: answers by hand, `tokenizers`' answers, files in and out, long texts, what is refused."""

import itertools
import json
import random

import pytest

from kerasbert.errors import InputError
from kerasbert.text import load_tokenizer, save_hf
from kerasbert.text.graph import graph_tokenizer
from kerasbert.text.metaspace_bpe import SPACE, SPECIALS, MetaspacePairEncoding
from tests.text.kinds import small_metaspace
from tests.text.strings import generate

BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
MERGES = [("l", "o"), ("lo", "w"), (SPACE, "lo"), ("\n", "\n"), (SPACE, "low"), ("e", "\u0301")]
PIECES = [*SPECIALS.values(), *BYTES, *"low\ne\u0301", SPACE, *map("".join, MERGES)]
TOKENIZER = MetaspacePairEncoding(PIECES, MERGES)


@pytest.mark.parametrize(
    ("text", "pieces", "places"),
    [
        ("low lo", ["low", "▁lo"], [(0, 3), (3, 6)]),
        (" low", ["▁low"], [(0, 4)]),  # l o w first, then with the blank
        ("lo  lo", ["lo", "▁", "▁lo"], [(0, 2), (2, 3), (3, 6)]),
        ("▁lo\n\n\n", ["▁lo", "\n\n", "\n"], [(0, 3), (3, 5), (5, 6)]),
        ("éol", ["<0xC3>", "<0xA9>", "o", "l"], [(0, 1), (0, 1), (1, 2), (2, 3)]),
        ("e\u0301", ["e\u0301"], [(0, 2)]),
        ("<eos>", ["<0x3C>", "e", "o", "<0x73>", "<0x3E>"], [(i, i + 1) for i in range(5)]),
        ("", [], []),
        (" ", ["▁"], [(0, 1)]),
    ],
)
def test_by_hand(text, pieces, places):
    found = TOKENIZER.tokenize(text)
    assert (found.pieces, list(zip(found.starts, found.ends))) == (pieces, places)
    assert TOKENIZER.encode(text) == found.ids
    assert TOKENIZER.decode(found.ids) == text.replace(SPACE, " ")


def random_merges(draw: random.Random) -> MetaspacePairEncoding:
    """Pieces of a, b and blanks by merges in any order, those that go over a word's beginning too."""
    pieces = list(dict.fromkeys("".join(draw.choices(f"ab{SPACE}", k=draw.randint(2, 5))) for _ in range(14)))
    known = {"a", "b", SPACE, *pieces}
    merges = [(p[:i], p[i:]) for p in pieces for i in range(1, len(p)) if {p[:i], p[i:]} <= known]
    draw.shuffle(merges)
    return MetaspacePairEncoding([*SPECIALS.values(), *BYTES, "a", "b", SPACE, *pieces], merges)


def merged(tokenizer: MetaspacePairEncoding, text: str) -> list[str]:
    """The definition: the pair of the lowest rank, the leftmost of equal ones, again and again."""
    ranks = {pair: rank for rank, pair in reversed([*enumerate(tokenizer.merges)])}
    parts = [*text.replace(" ", SPACE)]
    while known := [(ranks[pair], i) for i, pair in enumerate(itertools.pairwise(parts)) if pair in ranks]:
        i = min(known)[1]
        parts[i : i + 2] = ["".join(parts[i : i + 2])]
    return parts


@pytest.mark.parametrize("seed", range(4))
def test_any_merges_give_what_the_definition_gives_in_the_graph_too(seed):
    draw = random.Random(seed)
    tokenizer = random_merges(draw)
    texts = ["".join(draw.choices("ab ", k=draw.randint(0, 24))) for _ in range(150)]
    wanted = [merged(tokenizer, text) for text in texts]
    assert [tokenizer.tokenize(text).pieces for text in texts] == wanted
    assert graph_tokenizer(tokenizer).encode(texts).to_list() == [[number(tokenizer, p) for p in row] for row in wanted]


def number(tokenizer: MetaspacePairEncoding, piece: str) -> int:
    return tokenizer.vocabulary.index(piece)


def test_a_long_text_without_a_blank_ends_soon():
    """Rounds of the graph are as many as merges follow one another, not as there are characters."""
    tokenizer = small_metaspace()
    graph = graph_tokenizer(tokenizer)
    for text in ("a" * 6_000, "中文字" * 500):
        assert graph.encode([text]).to_list() == [tokenizer.encode(text)]


@pytest.mark.slow
def test_ids_and_offsets_are_those_of_tokenizers(tmp_path):
    from tokenizers import Tokenizer

    save_hf(small_metaspace(), tmp_path / "tokenizer.json")
    theirs = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    ours = load_tokenizer(tmp_path)
    assert ours.digest() == small_metaspace().digest()
    specials = tuple(SPECIALS.values())
    texts = [text for text in generate(2000, seed=5) if not any(piece in text for piece in specials)]
    for text in [*texts, "a  b   c\n\n\n\nd\t▁▁ x", "😀 unaffable\u0301"]:
        found, wanted = ours.tokenize(text), theirs.encode(text, add_special_tokens=False)
        assert (found.ids, list(zip(found.starts, found.ends))) == (wanted.ids, wanted.offsets), text[:80]
        assert theirs.encode(text).ids == ours.pack(text)[0]
    assert theirs.decode(ours.pack("the  unaffable é\n")[0]) == "the  unaffable é\n"


def test_files_in_and_out(tmp_path):
    made = small_metaspace()
    made.save(tmp_path / "ours")
    assert load_tokenizer(tmp_path / "ours").digest() == made.digest()
    (tmp_path / "ours" / "merges.txt").write_text("5 99999\n")
    with pytest.raises(InputError, match="merges.txt has no two ids below 1505 on each line"):
        load_tokenizer(tmp_path / "ours")
    save_hf(made, tmp_path / "tokenizer.json")
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    content["pre_tokenizer"] = None
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    assert load_tokenizer(tmp_path).digest() == made.digest()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"normalizer": None}, "normalizer.type is None, expected 'Replace'"),
        (
            {"normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "_"}},
            "normalizer.pattern and content is",
        ),
        ({"pre_tokenizer": {"type": "Split", "pattern": {"String": "."}}}, "pre_tokenizer.type and pattern is"),
        ({"pre_tokenizer": {"type": "Digits", "individual_digits": True}}, "pre_tokenizer.type and pattern is"),
        ({"decoder": {"type": "ByteLevel"}}, "decoder.type is 'ByteLevel'"),
    ],
)
def test_what_is_not_applied_is_refused(change, message, tmp_path):
    save_hf(small_metaspace(), tmp_path / "tokenizer.json")
    content = json.loads((tmp_path / "tokenizer.json").read_text()) | change
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match=message):
        load_tokenizer(tmp_path)


def test_vocabularies_that_cannot_work_are_refused():
    with pytest.raises(InputError, match="no piece for 1 of the 256 bytes, first <0x00>"):
        MetaspacePairEncoding([piece for piece in PIECES if piece != "<0x00>"], [])
    with pytest.raises(InputError, match="the merge <0x41> l joins a byte"):
        MetaspacePairEncoding([*PIECES, "<0x41>l"], [("<0x41>", "l")])
