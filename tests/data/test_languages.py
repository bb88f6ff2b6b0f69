"""Rows that hold the numbers of their languages, and pairs of translations (XLM)."""

import numpy as np
import pytest

from kerasbert.data import Records, write_records
from kerasbert.errors import InputError
from kerasbert.text import load_tokenizer
from kerasbert.text.languages import read_languages
from tests import tiny

TOKENIZER = tiny.tokenizer()


def rows(records):
    return np.concatenate([records.rows(shard) for shard in records.shards])


def part(records, row):
    """(tokens of the first part, of the second, numbers of their languages)."""
    length = records.length
    first, second = row[length : length + 2]
    return row[:first].tolist(), row[first : first + second].tolist(), row[length + 2 : length + 4].tolist()


@pytest.mark.parametrize(("name", "text"), [("a.tsv", "fr\ten\nthe cat\tbad film\n"), ("a.jsonl", None)])
def test_translations_by_hand(tmp_path, name, text):
    text = text or '{"en": "bad film", "fr": "the cat", "id": 3}\n'
    (tmp_path / name).write_text(text)
    records = write_records(
        [tmp_path / name], TOKENIZER, tmp_path / "out", length=12, packing="translations", text_field="fr,en"
    )
    assert list(records.features) == ["token_ids", "segment_lengths", "languages"]
    (row,) = rows(records)
    cls, sep = TOKENIZER.cls_id, TOKENIZER.sep_id
    # the columns are fr, en; en is the first name in alphabetical order
    expected = [cls, *TOKENIZER.encode("the cat"), sep], [*TOKENIZER.encode("bad film"), sep], [1, 0]
    assert part(records, row) == expected
    assert records.manifest["settings"]["language_ids"] == ["en", "fr"]


def test_a_row_without_translation_is_left_out_and_long_ones_are_cut(tmp_path):
    lines = ["en\tfr", "the cat sees\t ", "the cat\tbad film", "\t".join(["old house " * 9, "new river " * 9])]
    (tmp_path / "a.tsv").write_text("\n".join(lines) + "\n")
    records = write_records(
        [tmp_path / "a.tsv"], TOKENIZER, tmp_path / "out", length=12, packing="translations", text_field="en,fr"
    )
    found = rows(records)
    assert sorted(found[:, 12:14].sum(1).tolist()) == [7, 12]
    assert records.examples == 2


@pytest.mark.parametrize("packing", ["doc", "pairs"])
def test_each_part_has_the_language_of_its_document(tmp_path, packing):
    words = {"en": "the cat sees", "fr": "bad film", "de": "old house"}
    for language, line in words.items():
        documents = [f"{line} {'good ' * number}.\n{line}" for number in range(1, 12)]
        (tmp_path / f"{language}.txt").write_text("\n\n".join(documents) + "\n")
    files = {language: [tmp_path / f"{language}.txt"] for language in words}
    settings = {"length": 16, "packing": packing, "shards": 2, "language_ids": True}
    records = write_records(files, TOKENIZER, tmp_path / "out", **settings)
    own = {language: TOKENIZER.encode(line)[0] for language, line in words.items()}
    names = records.manifest["settings"]["language_ids"]
    assert names == ["de", "en", "fr"]
    seen = set()
    for row in rows(records):
        label = 1 if packing == "pairs" else 0
        length = records.length
        first, second = row[length : length + 2]
        for begin, end, number in (
            (0, first, row[length + 2 + label]),
            (first, first + second, row[length + 3 + label]),
        ):
            if begin < end:
                languages = {name for name, token in own.items() if token in row[begin:end]}
                assert languages <= {names[number]}
                seen.add(names[number])
    assert seen == set(words)
    again = write_records(files, TOKENIZER, tmp_path / "plain", **settings | {"language_ids": False})
    assert "languages" not in again.features


def tokenizer_with(table):
    tokenizer = tiny.tokenizer()
    tokenizer.languages = table
    return tokenizer


def test_one_table_numbers_the_languages_of_all_records(tmp_path, capsys):
    """Masked LM of ar, de, en, fr numbered en 2 and fr 3, translations of en, fr 0 and 1: each trained the other's vectors."""
    from kerasbert.cli import main

    TOKENIZER.save(tmp_path / "vocabulary")
    languages = ["ar", "de", "en", "fr"]
    for name in languages:
        (tmp_path / f"{name}.txt").write_text(f"the cat {name[0]}.\nold house.\n\nbad film.\n")
    (tmp_path / "a.tsv").write_text("fr\ten\nthe cat\tbad film\n")
    (tmp_path / "b.tsv").write_text("de\ten\nold house\tgood film\nthe dog\tgood dog\n")

    def made(name, *more):
        common = ["--tokenizer", tmp_path / "vocabulary", "--length", 12, "--out", tmp_path / name]
        assert main([*map(str, ["data", *common, *more])]) == 0
        return Records(tmp_path / name)

    each = [word for name in languages for word in ("--language", name, tmp_path / f"{name}.txt")]
    alone = made("mlm", *each, "--language-ids", "--packing", "doc")
    assert "languages: ar 0, de 1, en 2, fr 3, kept in" in capsys.readouterr().out
    assert read_languages(tmp_path / "vocabulary") == {"ar": 0, "de": 1, "en": 2, "fr": 3}
    one = made("tlm", tmp_path / "a.tsv", "--packing", "translations", "--text-field", "fr,en")
    pairs = ["--language", "en-de", tmp_path / "b.tsv", "--language", "fr-en", tmp_path / "a.tsv"]
    several = made("pairs", *pairs, "--packing", "translations", "--smoothing", 1)
    assert alone.languages == one.languages == several.languages == languages
    assert [part(one, row)[2] for row in rows(one)] == [[3, 2]]
    made("sw", "--language", "sw", tmp_path / "ar.txt", "--language-ids", "--packing", "doc")
    assert read_languages(tmp_path / "vocabulary") == {"ar": 0, "de": 1, "en": 2, "fr": 3, "sw": 4}
    capsys.readouterr()
    made("tlm", tmp_path / "a.tsv", "--packing", "translations", "--text-field", "fr,en")
    assert "unchanged, reused" in capsys.readouterr().out  # a table that has grown changes no number
    cat = [TOKENIZER.cls_id, *TOKENIZER.encode("the cat"), TOKENIZER.sep_id]
    found = sorted((part(several, row)[2], part(several, row)[0] == cat) for row in rows(several))
    assert found == [([2, 1], False), ([2, 1], False), ([3, 2], True)]
    assert several.manifest["languages"].keys() == {"en-de", "fr-en"}
    assert read_languages(tmp_path / "pairs" / "tokenizer") == {"ar": 0, "de": 1, "en": 2, "fr": 3}
    assert load_tokenizer(tmp_path / "pairs" / "tokenizer").languages["fr"] == 3


def test_new_languages_follow_those_that_have_a_number(tmp_path):
    (tmp_path / "a.tsv").write_text("fr\ten\nthe cat\tbad film\n")
    tokenizer = tokenizer_with({"sw": 0, "fr": 1})
    settings = {"length": 12, "packing": "translations", "text_field": "fr,en"}
    records = write_records([tmp_path / "a.tsv"], tokenizer, tmp_path / "out", **settings)
    assert records.languages == ["sw", "fr", "en"]
    assert [part(records, row)[2] for row in rows(records)] == [[1, 2]]
    assert tokenizer.languages == {"sw": 0, "fr": 1}
    assert tokenizer.digest() == TOKENIZER.digest()


@pytest.mark.parametrize("table", ["[1]", '{"en": 1}', '{"en": 0, "fr": 0}', '{"en": "x"}', "{"])
def test_a_table_that_is_none_is_refused(tmp_path, table):
    (tmp_path / "languages.json").write_text(table)
    with pytest.raises(
        InputError, match=r"languages\.json is no table of languages, expected names and numbers from 0"
    ):
        read_languages(tmp_path)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"packing": "translations"}, "text_field 'text', expected two columns with translations, such as en,fr"),
        ({"packing": "translations", "text_field": "en,en"}, "expected two columns with translations"),
        ({"packing": "doc", "language_ids": True}, "language_ids without languages"),
    ],
)
def test_what_cannot_be(tmp_path, settings, message):
    (tmp_path / "a.txt").write_text("the cat\n")
    with pytest.raises(InputError, match=message):
        write_records([tmp_path / "a.txt"], TOKENIZER, tmp_path / "out", length=16, **settings)
    with pytest.raises(
        InputError, match="--language 'en', expected a pair of columns with translations, such as en-fr"
    ):
        write_records({"en": [tmp_path / "a.txt"]}, TOKENIZER, tmp_path / "out", length=16, packing="translations")
    with pytest.raises(InputError, match="packing 'full' puts several languages into a row"):
        write_records(
            {"en": [tmp_path / "a.txt"]}, TOKENIZER, tmp_path / "out", length=16, packing="full", language_ids=True
        )
