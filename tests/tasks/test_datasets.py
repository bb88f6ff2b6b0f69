"""Rows of datasets.Dataset and tf.data.Dataset, which are looked at and not imported."""

import numpy as np
import pytest

from kerasbert.errors import InputError
from kerasbert.tasks.datasets import plain
from kerasbert.tasks.given import listed
from kerasbert.tasks.task import find_task, read_rows, split_files


class ClassLabel:
    names = ("neg", "pos")


class Table:
    """As datasets.Dataset."""

    def __init__(self, rows, **features):
        self.rows, self.column_names = rows, list(rows)
        self.features = dict.fromkeys(rows) | features

    def __getitem__(self, name):
        return self.rows[name]

    def __iter__(self):
        return (dict(zip(self.rows, row)) for row in zip(*self.rows.values()))


class Stream:
    """As tf.data.Dataset."""

    def __init__(self, elements, cardinality=-2):
        self.elements, self.count = elements, cardinality

    def cardinality(self):
        return np.int64(self.count)

    def as_numpy_iterator(self):
        return iter(self.elements)

    def __iter__(self):
        return iter(self.elements)


def test_a_table_of_datasets_has_the_names_of_its_labels():
    table = Table({"text": ["a", "b"], "label": [0, 1]}, label=ClassLabel())
    assert plain(table) == {"text": ["a", "b"], "label": ["neg", "pos"]}
    sources = split_files({"train": table, "validation": table})
    assert sorted(sources) == ["dev", "train"]
    rows = read_rows(find_task("classification", labels={"neg": "neg", "pos": "pos"}), sources["train"])
    assert (rows.texts, list(rows.targets)) == (["a", "b"], [0, 1])
    assert listed(table) == ["a", "b"]


def test_tags_are_lists_of_labels():
    class Tags:
        feature = ClassLabel()

    table = Table({"tokens": [["a", "b"]], "ner_tags": [np.array([1, 0])]}, ner_tags=Tags())
    assert plain(table)["ner_tags"] == [["pos", "neg"]]


@pytest.mark.parametrize(
    "elements",
    [
        [(b"a", np.int64(1)), (b"b", np.int64(0))],
        [(np.array([b"a", b"b"], object), np.array([1, 0]))],
        [(np.array([b"a"], object), np.array([1])), (np.array([b"b"], object), np.array([0]))],
    ],
)
def test_elements_and_batches_are_rows(elements):
    assert plain(Stream(elements)) == [("a", 1), ("b", 0)]


def test_dicts_stay_dicts_and_a_text_a_text():
    inner = ({"text": np.array([b"caf\xc3\xa9"], object)}, np.array([2.5]))
    assert plain(Stream([{"text": b"a", "label": np.float32(0.5)}])) == [{"text": "a", "label": 0.5}]
    assert plain(Stream([inner])) == [("caf\u00e9", 2.5)]
    assert plain(Stream([b"a", np.array([b"b"], object)])) == ["a", "b"]
    assert listed(Stream([b"a"])) == ["a"]


class Tensor:
    """As a tensor of texts: of TensorFlow, eager."""

    def __init__(self, values):
        self.values = np.array(values, object)
        self.shape = self.values.shape

    def numpy(self):
        return self.values if self.shape else self.values.item()


@pytest.mark.parametrize("make", [Tensor, lambda values: np.array(values, object), np.array])
def test_texts_of_a_tensor_or_of_an_array_of_bytes(make):
    texts = ["sch\u00f6n", "film"]
    assert listed(make([text.encode() for text in texts])) == texts
    assert listed(make([[text.encode() for text in texts]])) == [texts]  # pairs
    with pytest.raises(InputError, match="a text is not UTF-8"):
        listed(make([b"\xff"]))


def test_one_text_of_a_tensor_is_one():
    assert listed(Tensor(b"film")) == ["film"]
    assert listed(np.array(["a", None], object)) == ["a", None]  # which is refused where texts are looked at


def test_a_stream_without_end_is_refused():
    with pytest.raises(InputError, match=r"has no end, expected one pass over the rows: leave out repeat\(\)"):
        plain(Stream([b"a"], cardinality=-1))


def test_other_data_are_left_alone():
    rows = [("a", "x")]
    assert plain(rows) is rows
