"""GLUE put into words: sources, targets, scores to the nearest fifth, by hand."""

import pytest

from kerasbert import registry
from kerasbert.errors import InputError
from kerasbert.tasks.text_to_text import TEMPLATES, read


def rows(tmp_path, name, content, file="x.tsv"):
    (tmp_path / file).write_text(content)
    return read(tmp_path / file, registry.task(f"text_to_text/{name}"))


def test_labels_are_names(tmp_path):
    assert rows(tmp_path, "sst2", "sentence\tlabel\na film\t1\nb\t0\n") == [
        (2, {"source": "a film", "target": "positive"}),
        (3, {"source": "b", "target": "negative"}),
    ]
    assert rows(tmp_path, "sst2", "sentence\na film\n") == [(2, {"source": "a film"})]  # without labels
    with pytest.raises(InputError, match="line 2: label '2', expected one of 0, 1"):
        rows(tmp_path, "sst2", "sentence\tlabel\na film\t2\n")


def test_two_texts_are_named(tmp_path):
    found = rows(tmp_path, "rte", "sentence1\tsentence2\tlabel\na\tb\tentailment\n")
    assert found == [(2, {"source": "sentence1: a sentence2: b", "target": "entailment"})]


@pytest.mark.parametrize(
    ("score", "said"), [("3.25", "3.2"), ("3.31", "3.4"), ("0", "0.0"), ("5", "5.0"), ("0.09", "0.0")]
)
def test_a_score_is_the_nearest_fifth(score, said, tmp_path):
    content = f"sentence1\tsentence2\tscore\na\tb\t{score}\n"
    assert rows(tmp_path, "stsb", content)[0][1]["target"] == said


@pytest.mark.parametrize("score", ["much", "inf", "1" + 400 * "0"])
def test_what_is_no_score(tmp_path, score):
    with pytest.raises(InputError, match=f"line 2: '{score[:30]}.*is no number, expected a score"):
        rows(tmp_path, "stsb", f"sentence1\tsentence2\tscore\na\tb\t{score}\n")


def test_what_json_holds_in_the_place_of_a_label(tmp_path):
    with pytest.raises(InputError, match=r"line 1: label \['1'\], expected one of 0, 1"):
        rows(tmp_path, "sst2", '{"sentence": "a film", "label": ["1"]}\n', "x.jsonl")
    with pytest.raises(InputError, match=r"line 1: \[1\] is no number, expected a score"):
        rows(tmp_path, "stsb", '{"sentence1": "a", "sentence2": "b", "score": [1]}\n', "x.jsonl")


def test_each_task_has_its_prefix_and_room():
    for name, (prefix, _) in TEMPLATES.items():
        task = registry.task(f"text_to_text/{name}")
        assert (task.options["prefix"], task.options["target_length"]) == (prefix, 16)
        assert prefix.startswith(name)
