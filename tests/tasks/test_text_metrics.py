"""Metrics of texts that are written: by hand, of samples, without their packages."""

import pytest

from kerasbert.errors import InputError
from kerasbert.tasks import text_metrics
from kerasbert.tasks.task import find_task
from kerasbert.tasks.text_metrics import measured


def test_metrics_by_hand():
    found = text_metrics.measured(["the cat sees a dog", "a dog "], ["the cat sees a dog", "a dog"])
    assert found["exact_match"] == 1
    assert found["bleu"] > 99
    assert found["rouge1"] == 100
    found = text_metrics.measured(["the cat", "a bird"], ["the cat", "a dog"], "rouge1")
    assert found["exact_match"] == 0.5
    assert found["rouge1"] == 75.0


def test_a_metric_without_its_package_names_the_extra(monkeypatch):
    monkeypatch.setattr(text_metrics.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"bleu needs sacrebleu, which is not installed.*\[generation\]"):
        find_task("translation").how.check_metric(find_task("translation"))
    assert set(text_metrics.measured(["a"], ["a"])) == {"exact_match"}


def test_bleu_and_rouge_of_a_sample_are_those_of_its_texts():
    pytest.importorskip("sacrebleu")
    written = ["the cat sees a dog", "a very old river runs", "", "good film", "the house is new"]
    expected = ["the cat sees the dog", "a very old river", "the dog", "good film", "the house is old"]
    some = [0, 0, 2, 4, 3, 1, 1]
    wanted = text_metrics.measured([written[i] for i in some], [expected[i] for i in some])
    found = text_metrics.sampled(written, expected)(some)
    assert found == pytest.approx({name: wanted[name] for name in found})
    assert "bleu" in found


def test_equal_texts_are_counted_but_for_blanks_around_them():
    assert measured(["a ", "b", "c d"], ["a", " b", "c  d"])["exact_match"] == pytest.approx(2 / 3)
    sampled = text_metrics.sampled(["a ", "b"], ["a", "c"])
    assert [sampled(some)["exact_match"] for some in ([0], [1], [0, 0, 1])] == pytest.approx([1, 0, 2 / 3])


def test_rouge_and_bleu_are_percents():
    pytest.importorskip("sacrebleu")
    pytest.importorskip("rouge_score")
    texts = ["the old cat sees a dog by the river", "a very old house is new"]
    found = measured(texts, texts)
    assert found.pop("exact_match") == 1.0
    assert all(value == pytest.approx(100) for value in found.values()), found
    half = measured([texts[0], "x y z w v"], texts)
    names = [name for name in found if name.startswith("rouge")]
    assert names
    assert [half[name] for name in names] == pytest.approx([50] * len(names))
