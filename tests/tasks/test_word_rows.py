"""Tables with a word a row are read as sentences."""

import pytest

from kerasbert.errors import InputError
from kerasbert.tasks.answer_tables import inputs_of, read
from kerasbert.tasks.tables import in_memory
from kerasbert.tasks.task import find_task, read_rows, table

KAGGLE = """Sentence #,Word,POS,Tag
Sentence: 1,Anna,NNP,B-per
,saw,VBD,O
,London,NNP,B-geo
Sentence: 2,Ben,NNP,B-per
,ran,VBD,O
"""
NAMED = {"text": "Word", "label": "Tag"}
SENTENCES = [("Anna", "saw", "London"), ("Ben", "ran")]


def written(tmp_path, content, name="x.csv"):
    path = tmp_path / name
    path.write_text(content)
    return path


@pytest.mark.parametrize(
    ("content", "how"),
    [
        (KAGGLE, "begin where 'Sentence #' changes"),
        (
            KAGGLE.replace("Sentence: ", "").replace("\n,", "\n1,", 2).replace("\n,", "\n2,"),
            "begin where 'Sentence #' changes",
        ),
        ("Word,Tag\nAnna,B-per\nsaw,O\nLondon,B-geo\n\nBen,B-per\nran,O\n", "end at blank lines"),
        ("Word;Tag\nAnna;B-per\nsaw;O\nLondon;B-geo\n\n\nBen;B-per\nran;O\n", "end at blank lines"),
    ],
)
def test_sentences_of_a_word_a_row(tmp_path, capsys, content, how):
    path = written(tmp_path, content)
    rows = table(find_task("ner", **NAMED), path, ["Word", "Tag"])
    assert [tuple(row["Word"]) for _, row in rows] == SENTENCES
    assert [row["Tag"] for _, row in rows] == [["B-per", "O", "B-geo"], ["B-per", "O"]]
    assert capsys.readouterr().err.count(f"x.csv: each row holds one word; its 2 sentences {how}\n") == 1


def test_the_task_s_own_names_and_rows_in_memory(tmp_path):
    own = written(tmp_path, KAGGLE.replace("Word", "words").replace("Tag", "tags"))
    assert [tuple(text) for (text,) in read_rows(find_task("ner"), own, targets=False).texts] == SENTENCES
    lines = [line.split(",") for line in KAGGLE.splitlines()]
    rows = in_memory([dict(zip(lines[0], line)) for line in lines[1:]])
    assert [tuple(row["Word"]) for _, row in table(find_task("ner", **NAMED), rows, ["Word", "Tag"])] == SENTENCES
    for row in rows.rows[1:3]:
        row["Sentence #"] = float("nan")  # as pandas reads an empty cell
    assert [tuple(row["Word"]) for _, row in table(find_task("ner", **NAMED), rows, ["Word", "Tag"])] == SENTENCES


@pytest.mark.parametrize("rows", [[("Anna", "B-per"), ("ran", "O")], [{"words": "Anna", "tags": "B-per"}] * 2])
def test_words_of_no_sentence_are_refused(rows):
    """Each would be learnt without what stands beside it."""
    with pytest.raises(
        InputError, match="the rows in memory: each row holds one word, and nothing says where a sentence ends"
    ):
        table(find_task("ner"), in_memory(rows), ["words", "tags"])


@pytest.mark.parametrize(
    "rows",
    [
        [("Anna ran", "B-per O"), ("ran", "O")],
        [(["Anna"], ["B-per"]), (["ran"], ["O"])],
        [("Anna", "B-per")],
    ],
)
def test_sentences_of_one_word_stay(rows):
    assert len(table(find_task("ner"), in_memory(rows), ["words", "tags"])) == len(rows)


def test_what_is_answered_is_sentences_too(tmp_path):
    """A row a sentence; a table of texts, one of them a word, is answered row by row."""
    path, task = written(tmp_path, KAGGLE), find_task("ner", **NAMED)
    assert [tuple(words) for (words,) in (text for _, _, text in read(path, ["Word"], task))] == SENTENCES
    assert [tuple(words) for (words,) in inputs_of(task, path)] == SENTENCES
    texts = written(tmp_path, "sentence,Word\n1,London\n2,Ben saw London\n", "texts.csv")
    assert [text for _, _, text in read(texts, ["Word"], task)] == ["London", "Ben saw London"]
