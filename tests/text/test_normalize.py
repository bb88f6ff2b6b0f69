"""Normalisation beside Hugging Face's BertNormalizer, with every setting; where characters come from."""

import itertools

import pytest
from tokenizers import normalizers

from kerasbert.text import WordPiece
from kerasbert.text.normalize import TABLES, Normalizer
from kerasbert.text.wordpiece import SPECIALS
from tests.text.strings import generate, hugging_face, reference_tokens

FLAGS = ("lowercase", "strip_accents", "split_cjk")


@pytest.mark.parametrize("flags", [*itertools.product((False, True), repeat=3)])
def test_the_form_is_theirs_whatever_the_settings(flags):
    """Of generated texts, and of each character that accents or the order of marks change, between marks."""
    settings = dict(zip(FLAGS, flags))
    ours = Normalizer(**settings)
    theirs = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=settings["split_cjk"],
        strip_accents=settings["strip_accents"],
        lowercase=settings["lowercase"],
    )
    changed = [chr(code) for code in (*TABLES.strip, *TABLES.classes)]
    texts = [f"e\u0334{c}\u0316\u0301\u302a{c}b" for c in changed[:: 1 if all(flags) else 7]]
    texts += generate(120, seed=9)[:-1]
    for text in texts:
        form, sources = ours.form(text)
        assert form == theirs.normalize_str(text), (text, form)
        assert len(form) == len(sources)
        assert all(0 <= place < len(text) for place in sources)


def test_sources_are_the_characters_by_hand():
    ours = Normalizer(lowercase=True, strip_accents=True, split_cjk=True)
    assert ours.form("Éa 中b\x00c") == ("ea  中 bc", [0, 1, 2, 3, 3, 3, 4, 6])
    kept = Normalizer(lowercase=True, strip_accents=False, split_cjk=False)
    assert kept.form("Éa 中!İ") == ("éa 中!i\u0307", [0, 1, 2, 3, 4, 5, 5])
    assert [*ours.words("Don't, 中É")] == [
        ("don", [0, 1, 2]),
        ("'", [3]),
        ("t", [4]),
        (",", [5]),
        ("中", [7]),
        ("e", [8]),
    ]


def test_offsets_of_marks_that_change_places_are_theirs():
    """A note is a head and a stem; marks that go, before and between them, and marks that stay."""
    notes = [chr(code) for code, parts in TABLES.strip.items() if any(ord(c) in TABLES.classes for c in parts)]
    pieces = sorted({c for note in notes for c in TABLES.strip[ord(note)]})
    tokenizer = WordPiece([*SPECIALS, *pieces, *(f"##{piece}" for piece in pieces), "a", "##a"])
    marks = [chr(code) for code in TABLES.classes][::9]
    texts = [
        text
        for note in notes
        for mark in marks
        for text in (note + mark + "a", mark + note + note, f"a{mark}{note}{mark}")
    ]
    assert [tokenizer.tokenize(text) for text in texts] == reference_tokens(hugging_face(tokenizer), texts)
