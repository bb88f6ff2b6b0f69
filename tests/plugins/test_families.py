"""Third parties' families in one file each: one without blocks and positions, one that reads what no other reads."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

import kerasbert as kb
from kerasbert import inputs, registry
from kerasbert.cli import main
from kerasbert.errors import InputError
from kerasbert.layers.naming import names
from kerasbert.tasks import predict
from kerasbert.training.flops import family_flops, update_flops
from kerasbert.training.preflight import kept_by, kept_numbers
from tests import tiny
from tests.support import forgotten, python

FOLDER = Path(__file__).parent
GRU, VISIBLE = FOLDER / "gru.py", FOLDER / "visible.py"
QUICK = {"batch": 20, "learning_rate": 1e-2, "quiet": True}
SMALL = {"hidden": 16, "embeddings.width": 16, "embeddings.vocabulary": tiny.tokenizer().size}
TEXTS = ["the good cat", "a sad dog sees the very old stone", "film"]
PAIRS = [("the river", text) for text in TEXTS]


def plugged(file: Path, folder: Path, name: str, changes: dict, data: Path, **settings) -> Path:
    """A fine-tuned run of the family that the file brings; within `forgotten`."""
    registry.load_plugin(file)
    kb.save(kb.build(name, **changes), folder / "encoder", tokenizer=tiny.tokenizer())
    kb.finetune(folder / "encoder", "classification", data, out=folder / "run", **QUICK, **settings)
    return folder / "run"


@pytest.fixture(scope="module")
def gru(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gru")
    with forgotten():
        data = tiny.labelled(folder / "data.tsv", 300)
        yield plugged(GRU, folder, "gru/base", SMALL, data, epochs=6, length=16)


@pytest.fixture(scope="module")
def visible(tmp_path_factory):
    folder = tmp_path_factory.mktemp("visible")
    rows = [line.split("\t") for line in tiny.labelled(folder / "single.tsv", 60).read_text().splitlines()[1:]]
    lines = ["text\ttext_b\tlabel", *(f"the river\t{text}\t{label}" for text, label in rows)]
    (folder / "data.tsv").write_text("\n".join(lines) + "\n")
    changes = tiny.SPEC | {"embeddings.vocabulary": tiny.tokenizer().size, "initializer": 0.2}
    with forgotten():
        columns = {"text_b_column": "text_b"}
        yield plugged(VISIBLE, folder, "visible/tiny", changes, folder / "data.tsv", epochs=1, length=24, **columns)


@pytest.mark.parametrize("file", [GRU, VISIBLE])
def test_they_are_short_and_no_file_of_ours_names_them(file):
    assert len(file.read_text().splitlines()) <= 80
    sources = [*(FOLDER.parent.parent / "kerasbert").rglob("*.py"), *(FOLDER.parent.parent / "mobile").rglob("*.py")]
    assert len(sources) > 150
    assert [path for path in sources if re.search(r"\bgru/|visible/", path.read_text())] == []


def test_a_family_without_blocks_is_built_saved_and_loaded(gru):
    mine, loaded = kb.load(gru), kb.load(gru.parent / "encoder")
    assert type(loaded.spec).__name__ == "Settings"
    assert (loaded.spec.hidden, loaded.spec.embeddings.width) == (16, 16)
    assert {name: tuple(weight.shape) for name, weight in names(loaded).items()} == {
        "table": (SMALL["embeddings.vocabulary"], 16),
        "gru/gru_cell/kernel": (16, 48),
        "gru/gru_cell/recurrent_kernel": (16, 48),
        "gru/gru_cell/bias": (2, 48),
    }
    ids = np.array([[2, 9, 6, 3, 0, 0], [2, 5, 7, 8, 9, 3]], "int32")
    batch = {"token_ids": ids, "padding_mask": (ids > 0).astype("int32")}
    other = batch | {"token_ids": np.where(ids > 0, ids, 11)}
    found = np.asarray(loaded(batch)["sequence"])
    assert found.shape == (2, 6, 16)
    np.testing.assert_array_equal(loaded(other)["sequence"], found)  # padding is not seen
    np.testing.assert_array_equal(found[0, 5], found[0, 3])  # and the state waits
    shorter = {name: value[:1, :4] for name, value in batch.items()}
    np.testing.assert_allclose(loaded(shorter)["sequence"], found[:1, :4], atol=1e-6)
    again = kb.load(gru)
    np.testing.assert_array_equal(predict.outputs(again, TEXTS), predict.outputs(mine, TEXTS))


def test_it_learns_and_answers(gru, capsys):
    found = kb.evaluate(gru, gru.parent / "data.tsv")
    assert found["metrics"]["accuracy"] > 0.9
    assert [answer.label for answer in kb.predict(gru, TEXTS[:2])] == ["pos", "neg"]
    assert kb.encode(gru, TEXTS).shape == (3, 16)
    assert main(["predict", str(gru), TEXTS[0], "--plugin", str(GRU)]) == 0
    assert capsys.readouterr().out.startswith("pos")
    assert main(["show", "gru/small", "--plugin", str(GRU)]) == 0
    # 30522 * 64 + 3 * 64 * (64 + 64 + 2)
    assert capsys.readouterr().out.startswith("gru/small: 1,978,368 parameters")


def test_it_has_no_longest_text(gru):
    encoder = kb.load(gru.parent / "encoder")
    assert predict.positions(encoder) is None
    assert predict.longest(encoder) == predict.UNBOUNDED
    assert predict.longest(encoder, 2000) == 2000
    with pytest.raises(InputError, match="length must be at least 3. Received: 2"):
        predict.longest(encoder, 2)
    model = kb.load(gru)
    assert (predict.longest(model), predict.longest(model, 40)) == (16, 40)
    assert kb.predict(model, ["the cat " * 20], length=64)[0].truncated is False
    assert predict.positions(kb.build("bert/tiny", **tiny.SPEC)) == 32


def test_what_needs_blocks_is_refused_in_one_line(gru, tmp_path):
    from kerasbert.mobile.distill import teach
    from kerasbert.mobile.prune import structured

    data = gru.parent / "data.tsv"
    with pytest.raises(InputError, match="gru has no blocks: nothing to prune by heads, neurons or layers"):
        structured.layers(gru, out=tmp_path / "x", keep=[0])
    with pytest.raises(InputError, match="gru has no blocks: nothing to prune"):
        structured.heads(gru, data=data, share=0.5, out=tmp_path / "x")
    with pytest.raises(InputError, match="gru has no blocks: its layers cannot be imitated"):
        teach.distill(gru, "half", data, out=tmp_path / "x", recipe="distilbert")
    with pytest.raises(InputError, match="GRU has no token_head, and this objective predicts tokens"):
        kb.pretrain("gru/base", tiny.records(tmp_path), out=tmp_path / "x", steps=1, batch=4, changes={"hidden": 16})
    with pytest.raises(InputError, match=r"no spec field 'blocks.layers'. All: hidden, "):
        kb.build("gru/base", **{"blocks.layers": 2})
    with pytest.raises(InputError, match="pooling='pooled' needs a model with a pooler"):
        kb.encode(gru, TEXTS, pooling="pooled")


def test_arithmetic_that_nobody_knows_is_left_out():
    with forgotten():
        registry.load_plugin(GRU)
        family, bert = registry.family("gru"), registry.family("bert")
        assert family_flops(family, family.spec, 128.0, 1.0, 20.0) == 0
        assert kept_by(family)(family.spec, 32, 128, 0.16) == 0
        assert family_flops(bert, bert.spec, 128.0, 1.0, 20.0) == update_flops(bert.spec, 128.0, 1.0, 20.0)
        assert kept_by(bert) is kept_numbers
        counted = {"flops": lambda *about: 7.0, "memory": lambda *about: 8.0}
        own = family.derive("other", spec={"hidden": 32}, **counted)
        assert (own.spec.hidden, own.settings) == (32, family.settings)
        assert (family_flops(own, own.spec, 1.0, 1.0, 1.0), kept_by(own)(own.spec, 1, 1, 1.0)) == (7.0, 8.0)


def test_the_file_is_named_where_it_is_missing(gru, visible, monkeypatch):
    for run, family in ((gru, "gru"), (visible, "visible")):
        monkeypatch.delitem(registry.FAMILIES.rows, family)
        for model in (run, run.parent / "encoder"):
            with pytest.raises(InputError, match=f"comes with the plug-in {family}.py: pass it as --plugin FILE"):
                kb.load(model)


def test_an_input_of_ones_own_is_what_the_network_sees(visible):
    model = kb.load(visible)
    assert predict.longest(model) == 24
    encoded = predict.encoded_for(model, PAIRS, None)
    batch = encoded.arrays([0, 1, 2], 24)
    matrix = batch["visible_matrix"]
    assert matrix.shape == (3, 16, 16)
    first, length = list(encoded.rows[0].values["segment_ids"]).index(1), encoded.rows[0].length
    expected = np.zeros((16, 16), int)
    expected[:first, :first], expected[first:length, :length] = 1, 1
    np.testing.assert_array_equal(matrix[0], expected)
    graph = np.asarray(registry.family("visible").inputs[-1].graph(batch))
    np.testing.assert_array_equal(graph[0, :length, :length], expected[:length, :length])

    def sequence(read):
        return np.asarray(model.body(read)["sequence"])

    changed = batch | {"token_ids": batch["token_ids"].copy()}
    changed["token_ids"][0, first] += 1
    apart = np.abs(sequence(changed) - sequence(batch))[0].max(-1)
    assert apart[:first].max() < 1e-6 < 1e-3 < apart[first:length].min()
    blind = {name: value for name, value in batch.items() if name != "visible_matrix"}
    assert np.abs(sequence(blind) - sequence(batch))[0, :first].max() > 1e-3
    read = inputs.arrays(inputs.TEXT, encoded.rows, 16)
    np.testing.assert_array_equal(sequence(read), sequence(blind))


BUCKETS = [8, 12, 24]


@pytest.mark.parametrize(
    ("family", "scheme", "lengths"),
    [
        pytest.param("gru", "float32", "any", marks=pytest.mark.slow),
        pytest.param("gru", "dynamic_int8", BUCKETS, marks=pytest.mark.full),
        pytest.param("visible", "dynamic_int8", BUCKETS, marks=pytest.mark.slow),
    ],
)
def test_they_go_to_the_phone(family, scheme, lengths, request, tmp_path):
    from kerasbert import mobile

    run, file = request.getfixturevalue(family), FOLDER / f"{family}.py"
    texts = PAIRS if family == "visible" else TEXTS
    report = mobile.compress(
        run, scheme, tmp_path / "x.tflite", data=run.parent / "data.tsv", length=24, lengths=lengths, min_agreement=0.0
    )  # its scores hardly differ from text to text: what is asked of the file is below
    assert report["agreement"] > 0.97
    code = "import sys, json; sys.modules |= {'keras': None, 'tensorflow': None}\n"
    code += "from kerasbert.mobile.runtime import load\n"
    code += "run = load(sys.argv[1], cache=False, plugin=sys.argv[3:])\n"
    code += "print(json.dumps(run.outputs(json.loads(sys.argv[2])).tolist()))"
    plugin = [file] if family == "visible" else []
    said = python("-c", code, tmp_path / "x.tflite", json.dumps(texts), *plugin)
    expected = [list(answer.scores.values()) for answer in kb.predict(run, texts)]
    tolerance = 1e-5 if scheme == "float32" else 0.1
    np.testing.assert_allclose(json.loads(said.stdout), expected, atol=tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["gru", "visible"])
def test_they_go_to_the_server(family, request, tmp_path):
    import tensorflow as tf

    run, texts = request.getfixturevalue(family), PAIRS if family == "visible" else TEXTS
    kb.export(run, tmp_path / "saved")
    serve = tf.saved_model.load(str(tmp_path / "saved")).signatures["serving_default"]
    columns = dict(zip(("text_a", "text_b"), zip(*texts))) if family == "visible" else {"text": texts}
    served = serve(**{name: tf.constant(list(column)) for name, column in columns.items()})
    expected = [list(answer.scores.values()) for answer in kb.predict(run, texts)]
    np.testing.assert_allclose(served["probabilities"].numpy(), expected, atol=1e-5)
