"""Characters and tags with blanks between them."""

import re

import pytest

from kerasbert.errors import InputError
from kerasbert.tasks.task import find_labels, find_task, read_rows
from tests.support import shared

TASK = find_task("medical_ner")


def test_k_berts_files_by_hand():
    path = shared("data/kbert/medical_ner/dev.tsv")
    task = find_labels(TASK, path)
    kinds = ["BodyPart", "Cure", "Disease", "Examine", "Symptom"]
    assert list(task.labels) == [*(f"{tag}-{kind}" for tag in "BI" for kind in kinds), "O"]
    rows = read_rows(task, path)
    assert len(rows.texts) == 939
    (words,), tags = rows.texts[2], [list(task.labels)[i] for i in rows.targets[2]]
    assert "".join(words) == "左膝摔伤后疼痛约1小时入院。"
    assert tags == "B-BodyPart I-BodyPart O O O B-Symptom I-Symptom O O O O O O O".split()
    assert all(len(tags) == len(words) for (words,), tags in zip(rows.texts, rows.targets, strict=True))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("腹  痛\tB-Symptom I-Symptom", "line 2: two blanks side by side in 'text_a', expected one between two"),
        ("腹 痛\tB-Symptom", "line 2: 1 tags of 2 words, expected one each: '腹 痛'"),
        ("腹 痛\tB-Symptom X-Symptom", "line 2: tag 'X-Symptom' of the word '痛' is unknown"),
    ],
)
def test_bad_rows_are_told_with_file_and_line(tmp_path, line, said):
    path = tmp_path / "train.tsv"
    path.write_text(f"text_a\tlabel\n{line}\n", encoding="utf-8")
    task = find_labels(TASK, shared("data/kbert/medical_ner/dev.tsv"))
    with pytest.raises(InputError, match=f"train.tsv, {re.escape(said)}"):
        read_rows(task, str(path))


def test_texts_without_tags_are_read_as_texts(tmp_path):
    path = tmp_path / "texts.tsv"
    path.write_text("text_a\n左膝疼痛\n", encoding="utf-8")
    assert read_rows(TASK, str(path), targets=False).texts == ["左膝疼痛"]
