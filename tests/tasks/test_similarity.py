"""The nearest texts: order, boundaries, what is refused, with vectors by hand."""

import numpy as np
import pytest

from kerasbert.errors import InputError
from kerasbert.tasks import similarity

TEXTS = ["a", "b", "ab", "aa"]


@pytest.fixture(autouse=True)
def letters(monkeypatch):
    """A text's vector counts its letters a and b."""
    monkeypatch.setattr(similarity.predict, "as_model", lambda model: model)
    monkeypatch.setattr(similarity.predict, "check_ours", lambda model: None)
    monkeypatch.setattr(
        similarity.predict,
        "encode",
        lambda model, texts, **_: np.array([[text.count("a"), text.count("b")] for text in texts], "float32"),
    )


def test_the_nearest_come_first_and_equals_in_their_order():
    hits = similarity.search(None, TEXTS, "aaa", top=3)
    assert [(hit.index, hit.text) for hit in hits] == [(0, "a"), (3, "aa"), (2, "ab")]
    assert [hit.score for hit in hits] == pytest.approx([1, 1, 0.5**0.5])
    assert [hit.index for hit in similarity.search(None, TEXTS, "b", top=1)] == [1]
    assert len(similarity.search(None, TEXTS, "b")) == 4
    both = similarity.searched(None, TEXTS, ["b", "a"], top=1)
    assert [[hit.to_json()["text"] for hit in each] for each in both] == [["b"], ["a"]]


@pytest.mark.parametrize("query", ["", " \n", "\u200b", b""])
def test_a_query_holds_something_to_read(query):
    with pytest.raises(InputError, match="query 1 holds nothing to read"):
        similarity.searched(None, TEXTS, ["a", query])


@pytest.mark.parametrize("top", [0, -1, True, 1.0])
def test_top_is_at_least_1(top):
    with pytest.raises(InputError, match="top must be a whole number of at least 1"):
        similarity.search(None, TEXTS, "a", top=top)


def test_similarity_is_pair_by_pair():
    np.testing.assert_allclose(similarity.similarity(None, ["a", "b", "a"], ["aa", "a", "ab"]), [1, 0, 0.5**0.5])
    with pytest.raises(InputError, match="received 1 texts and 2 others, expected as many"):
        similarity.similarity(None, ["a"], ["a", "b"])
    with pytest.raises(InputError, match="others: text 1 is a int, expected str"):
        similarity.similarity(None, ["a", "b"], ["a", 1])
