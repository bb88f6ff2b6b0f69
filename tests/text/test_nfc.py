"""NFC by hand (forms as tokenizers 0.23.3 gives them), in the graph, and all of it against `tokenizers`."""

import random

import pytest
import tensorflow as tf

from kerasbert.text import BytePairEncoding
from kerasbert.text.added import AddedToken
from kerasbert.text.graph import graph_tokenizer
from kerasbert.text.nfc import composed, compositions, decompositions, joining, placed
from kerasbert.text.nfc_graph import Composer
from kerasbert.text.words_graph import decode
from tests.text.kinds import byte_level_reference, nfc_bpe, with_added

FORMS = [
    ("e\u0301", "\u00e9"),
    ("o\u0302\u0323", "\u1ed9"),  # marks in another order
    ("a\u0334\u0301", "\u00e1\u0334"),  # a mark between that does not block
    ("a\u0315\u0300\u05ae\u0300b", "\u00e0\u05ae\u0300\u0315b"),  # the second is blocked
    ("\u1100\u1161\u11a8\u1100\u1161", "\uac01\uac00"),
    ("\uac00\u11a8", "\uac01"),
    ("\u212b\u2126\uf900", "\u00c5\u03a9\u8c48"),  # singletons
    ("\u0958\u2adc", "\u0915\u093c\u2add\u0338"),  # excluded from composition
    ("\u0bc6\u0bbe\u0cc6\u0cc2\u0cd5", "\u0bca\u0ccb"),
    ("\u0f73\u0f71", "\u0f71\u0f71\u0f72"),
    ("\U00011935\U00011930", "\U00011935\U00011930"),  # composed by Unicode 13, which theirs is not
    ("a\u0898\u0323", "a\u0898\u0323"),  # a mark since Unicode 14
    ("\U0001f469\u200d\U0001f4bb", "\U0001f469\u200d\U0001f4bb"),
    ("plain \u00e9", "plain \u00e9"),
    ("", ""),
]


def odd_texts(count: int, seed: int) -> list[str]:
    """Of marks, of what has forms and of what composes, beside any characters."""
    draw = random.Random(seed)
    marks, made, firsts = sorted(joining()), sorted(decompositions()), sorted({first for first, _ in compositions()})
    anything = [*range(0xD800), *range(0xE000, 0x20000)]
    latin = [*range(0x1EA0, 0x1F00)]
    pools = [marks, marks, made, firsts, range(0x1100, 0x1200), range(0x900, 0xE00), latin, anything]
    some = [*map(ord, "abceo \u200d中😀\u0344\u0f73\u0f81\u0898\u1acb")]
    return [
        "".join(chr(draw.choice(draw.choice([*pools, some]))) for _ in range(draw.randint(0, 9))) for _ in range(count)
    ]


def test_forms_by_hand_here_and_in_the_graph():
    texts = [text for text, _ in FORMS]
    assert [composed(text) for text in texts] == [form for _, form in FORMS]
    forms, _, _ = Composer()(decode(tf.constant(texts)))
    assert [text.decode() for text in tf.strings.unicode_encode(forms, "UTF-8").numpy()] == [form for _, form in FORMS]


def test_what_changes_together_is_one_place():
    assert placed("xe\u0301\u0323 y") == ("x\u1eb9\u0301 y", [0, 1, 1, 4, 5], [1, 4, 4, 5, 6])


def test_the_graph_is_python_on_odd_texts():
    texts = odd_texts(1500, seed=2)
    forms, starts, ends = Composer()(decode(tf.constant(texts)))
    found = [text.decode() for text in tf.strings.unicode_encode(forms, "UTF-8").numpy()]
    rows = zip(found, forms.with_flat_values(starts).to_list(), forms.with_flat_values(ends).to_list())
    assert [*rows] == [placed(text) for text in texts]


def test_added_tokens_are_found_in_the_composed_text():
    tokenizer = with_added(nfc_bpe(), [AddedToken("caf\u00e9", normalized=True, lstrip=True)])
    text = "le  cafe\u0301 e\u0301"
    tokens = tokenizer.tokenize(text)
    place = tokens.pieces.index("caf\u00e9")
    assert (tokens.starts[place], tokens.ends[place]) == (4, 9)
    ids, starts, ends = (part.to_list()[0] for part in graph_tokenizer(tokenizer).tokenize([text]))
    assert (ids, starts, ends) == (tokens.ids, tokens.starts, tokens.ends)


def test_a_text_that_is_not_composed_has_the_ids_of_the_composed_one():
    made, plain = nfc_bpe(), BytePairEncoding(nfc_bpe().vocabulary, nfc_bpe().merges)
    assert made.encode("nai\u0308ve") == plain.encode("na\u00efve") != plain.encode("nai\u0308ve")


@pytest.mark.slow
def test_forms_are_those_of_tokenizers():
    from tokenizers import normalizers

    theirs, reference, ours = normalizers.NFC(), byte_level_reference(nfc_bpe()), nfc_bpe()
    for code in (*range(0xD800), *range(0xE000, 0x110000)):
        for text in (chr(code), f"a{chr(code)}\u0301\u0334", f"\u0301{chr(code)}\u0334"):
            assert composed(text) == theirs.normalize_str(text), hex(code)
    for text in odd_texts(20_000, seed=3):
        assert composed(text) == theirs.normalize_str(text), ascii(text)
        assert ours.encode(text) == reference.encode(text, add_special_tokens=False).ids, ascii(text)
