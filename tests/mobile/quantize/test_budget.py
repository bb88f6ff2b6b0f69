"""The accuracy budget: it finds the layer that an outlier ruins, and says when nothing helps."""

import json

import numpy as np
import pytest

from kerasbert.errors import InputError
from kerasbert.inputs import TEXT
from tests.mobile.conftest import TEXTS, WORDS

pytest.importorskip("tensorflow")
RUINED = "block_1/feedforward/outer"


def classifier(run):
    """The tiny classifier, loaded afresh, and its weights by name."""
    from kerasbert.layers.naming import names
    from kerasbert.tasks.load import load

    model = load(run)
    return model, names(model)


def labelled(model, path, count=60):
    """Write texts with the labels that the model itself gives: in float it makes no mistake."""
    from kerasbert.tasks.predict import predict

    draw = np.random.default_rng(5)
    texts = [" ".join(draw.choice(WORDS[:12], draw.integers(2, 12))) for _ in range(count)]
    rows = [f"{text}\t{answer.label}" for text, answer in zip(texts, predict(model, texts))]
    path.write_text("text\tlabel\n" + "\n".join(rows) + "\n")
    return path


@pytest.fixture(scope="module")
def ruined(run):
    """A classifier of which one matrix has a huge weight in every column, on a neuron that is always 0."""
    model, weights = classifier(run)
    bias = weights["block_1/feedforward/inner/bias"].numpy()
    bias[0] = -200.0
    weights["block_1/feedforward/inner/bias"].assign(bias)
    kernel = weights[f"{RUINED}/kernel"].numpy() * 3
    kernel[0] = 2000.0
    weights[f"{RUINED}/kernel"].assign(kernel)
    return model


@pytest.mark.slow
def test_the_ruined_layer_stays_float(ruined, tmp_path, monkeypatch, capsys):
    from kerasbert.mobile import compress, quantize
    from kerasbert.mobile.tflite import weights

    monkeypatch.setattr(weights, "SMALLEST", 1)  # all are tiny here
    data = labelled(ruined, tmp_path / "dev.tsv")
    report = compress(ruined, out=tmp_path / "x.tflite", lengths=[24], data=data, max_drop=5, min_agreement=0)
    quantize.show(report)
    first, *_ = report["budget"]
    assert (first["float"], first["chosen"]) == ([], False)
    assert first["drop"] > 8
    (chosen,) = [row for row in report["budget"] if row["chosen"]]
    assert chosen["float"] == [RUINED]
    assert chosen["drop"] <= 5
    assert chosen["bytes"] == report["bytes"] == (tmp_path / "x.tflite").stat().st_size
    assert chosen["bytes"] > first["bytes"]
    json.dumps(report)
    quantize.show(report)
    assert f"->   {chosen['drop']:.2f}" in capsys.readouterr().out


@pytest.mark.slow
def test_a_budget_that_all_of_it_meets_keeps_nothing(run, tmp_path):
    from kerasbert.mobile import compress

    model, _ = classifier(run)
    data = labelled(model, tmp_path / "dev.tsv", 20)
    report = compress(model, out=tmp_path / "x.tflite", lengths=[24], data=data, max_drop=100, min_agreement=0)
    assert [row["float"] for row in report["budget"]] == [[]]


class Scripted:
    """A judge that says what it was told to."""

    def __init__(self, *drops):
        self.drops, self.rows = list(drops), []

    def row(self, made, kept):
        self.rows.append({"float": list(kept), "drop": self.drops[len(self.rows)], "bytes": len(made)})
        return self.rows[-1]

    def finish(self, blob):
        return blob


@pytest.mark.slow
def test_static_leaves_more_operators_in_float(run):
    from kerasbert.mobile.pipeline import conversion
    from kerasbert.mobile.quantize import budget, forms
    from kerasbert.mobile.tflite import convert

    model, named = classifier(run)
    bundle = conversion.about(model, {16: "length_16"})
    data = convert.named(model, conversion.program(model, bundle), {16: "length_16"}, TEXT, "float32")
    feeds = list(forms.feeds(model.tokenizer, TEXTS, bundle))
    judge = Scripted(3.0, 1.0)
    _, record = budget.meet(data, "static_int8", list(named), feeds, 1.5, judge)
    assert [row["chosen"] for row in record["budget"]] == [False, True]
    judge = Scripted(3.0, 2.5, 2.0, 1.0, 1.25)
    text = "max_drop is 0.5 points, which no static_int8 file meets: the best of 5 loses 1.00 points"
    with pytest.raises(InputError, match=text):
        budget.meet(data, "static_int8", list(named), feeds, 0.5, judge)
    counts = [sum(int(entry.split(" x")[1]) for entry in row["float"]) for row in judge.rows]
    assert counts == sorted(counts)
    assert counts[0] < counts[-1]


@pytest.mark.slow
def test_a_budget_that_cannot_be_met_says_the_best(run, tmp_path, monkeypatch):
    """Tokens and positions cancel each other in one coordinate: its size leaves the other coordinates no steps."""
    from kerasbert.mobile import compress
    from kerasbert.mobile.tflite import weights

    model, named = classifier(run)
    monkeypatch.setattr(weights, "SMALLEST", 400)  # the table of tokens and no other
    for name, value in (("tokens", 1000.0), ("positions", -1000.0)):
        table = named[f"embeddings/{name}/table"].numpy()
        table[:, 0] = value
        named[f"embeddings/{name}/table"].assign(table)
    data = labelled(model, tmp_path / "dev.tsv")
    with pytest.raises(
        InputError, match=r"max_drop is 1 points, which no int8_embeddings file meets: the best of 1 loses \d"
    ):
        compress(model, "int8_embeddings", tmp_path / "x.tflite", lengths=[24], data=data, max_drop=1, min_agreement=0)
    assert not (tmp_path / "x.tflite").exists()


def test_metrics_where_smaller_is_better():
    from kerasbert.mobile.quantize.budget import Judge
    from kerasbert.tasks.task import Task

    expected = np.array([[1.0], [2.0]])
    task = Task("t", kind="regression", metric="mean_squared_error")
    judge = Judge(bytes, task, ["a", "b"], expected, expected[:, 0], run=None)
    assert judge.metric(expected) == 0
    assert judge.metric(expected + 0.5) == pytest.approx(-25)
