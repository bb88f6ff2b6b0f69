"""Rows that hold the numbers of their languages, and pairs of translations (XLM)."""

import numpy as np
import pytest

from kerasbert.data import write_records
from kerasbert.errors import InputError
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
    with pytest.raises(InputError, match="packing 'full' puts several languages into a row"):
        write_records(
            {"en": [tmp_path / "a.txt"]}, TOKENIZER, tmp_path / "out", length=16, packing="full", language_ids=True
        )
