"""Tasks in KerasHub presets that we write, read back by our own reader; `test_keras_hub_tasks.py` has KerasHub read them."""

import json

import numpy as np
import pytest

import kerasbert as kb
from kerasbert.checkpoints import read_model_json, read_tensors
from kerasbert.errors import InputError
from kerasbert.tasks.predict import outputs
from tests.checkpoints import presets

INNER = ("distilbert", "deberta-v3")  # with a layer of the head's own in front of the labels
CASES = ("bert", "albert", "roberta", "xlm-roberta", *INNER)
ODD = ('a "b"', "\u00fc,\t1", "LABEL_7")


def head(case, classes=3, size=20):
    """A classifier's head with random weights."""
    draw = np.random.default_rng(3)
    shapes = {"kernel": (size, classes), "bias": (classes,)}
    shapes |= {"inner/kernel": (size, size), "inner/bias": (size,)} if case in INNER else {}
    return {name: draw.normal(0, 0.3, shape).astype("float32") for name, shape in shapes.items()}


def classifier(folder, case="bert", classes=3, labels=None, **task):
    """A model directory of one."""
    about = {"kind": "classification", "inputs": "text", "labels": {}} | task
    labels = labels or (tuple(f"LABEL_{i}" for i in range(classes)) if about["kind"] != "regression" else None)
    tokenizer, heads = presets.TOKENIZERS[case], {"classifier": head(case, classes)}
    presets.directory(folder, case, tokenizer=tokenizer, heads=heads, task=about, labels=labels)


def masked_lm(folder, case, **more):
    """A model directory of a masked LM."""
    width = 12 if case == "albert" else 20
    shapes = {
        "transform/kernel": (20, width),
        "transform/bias": (width,),
        "norm/gamma": (width,),
        "norm/beta": (width,),
    }
    draw = np.random.default_rng(3)
    found = {name: draw.normal(0, 0.3, shape).astype("float32") for name, shape in (shapes | {"bias": (301,)}).items()}
    presets.directory(folder, case, tokenizer=presets.TOKENIZERS[case], heads={"mlm": found, **more})
    return found


def written(tmp_path, **options):
    """Export and import again."""
    kb.export_checkpoint(tmp_path / "run", tmp_path / "preset", "keras_hub")
    kb.import_checkpoint(tmp_path / "preset", out=tmp_path / "back", build=False, **options)
    return read_model_json(tmp_path / "back")


def said(tmp_path, name):
    return json.loads((tmp_path / "preset" / name).read_text())


def changed(tmp_path, name="task.json", **settings):
    """Change settings in a file of a preset."""
    content = said(tmp_path, name)
    content["config"] |= settings
    (tmp_path / "preset" / name).write_text(json.dumps(content))


@pytest.mark.parametrize("case", CASES)
def test_a_classifier_comes_back(tmp_path, case, capsys):
    classifier(tmp_path / "run", case, labels=ODD, length=11, inputs="pair")
    info = written(tmp_path)
    assert info.labels == ODD
    assert info.task == {"kind": "classification", "inputs": "pair", "length": 11}
    assert capsys.readouterr().err == ""
    ours, back = read_tensors(tmp_path / "run"), read_tensors(tmp_path / "back")
    own = ("heads/", "block_", "pooler/")
    compared = [name for name in ours.names() if name.startswith(own)]
    assert len(compared) >= 20
    for name in compared:
        np.testing.assert_array_equal(back.read(name), ours.read(name), err_msg=name)
    task, pack = said(tmp_path, "task.json"), said(tmp_path, "preprocessor.json")
    name = said(tmp_path, "config.json")["class_name"].replace("Backbone", "TextClassifier")
    assert task["registered_name"] == f"keras_hub>{name}"
    assert pack == task["config"]["preprocessor"]
    assert (pack["class_name"], pack["config"]["sequence_length"]) == (f"{name}Preprocessor", 11)
    assert task["config"].get("hidden_dim") == (None if case in ("bert", "albert") else 20)


@pytest.mark.parametrize(
    ("classes", "task", "activation"),
    [
        (2, {}, "linear"),
        (1, {"kind": "regression"}, "linear"),
        (1, {"kind": "regression", "options": {"activation": "sigmoid"}}, "sigmoid"),
        (1, {"kind": "regression", "mean": 30.0, "std": 2.5}, "linear"),
        (7, {"kind": "multi_label"}, "sigmoid"),
        (2, {"options": {"label_smoothing": 0.1}}, "linear"),
    ],
)
def test_what_it_answers_is_the_same(tmp_path, classes, task, activation):
    classifier(tmp_path / "run", "distilbert", classes, **task)
    info = written(tmp_path)
    assert info.task["kind"] == task.get("kind", "classification")
    assert info.task.get("options", {}) == task.get("options", {})
    assert said(tmp_path, "task.json")["config"]["activation"] == activation
    if classes != 2:
        got, expected = (outputs(kb.load(tmp_path / name), presets.TEXTS) for name in ("back", "run"))
        np.testing.assert_allclose(got, expected, atol=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_a_masked_lm_comes_back(tmp_path, case, capsys):
    arrays = masked_lm(tmp_path / "run", case, nsp={"kernel": np.ones((20, 2)), "bias": np.ones(2)})
    assert written(tmp_path).task is None
    tensors = read_tensors(tmp_path / "back")
    for name, array in arrays.items():
        np.testing.assert_array_equal(tensors.read(f"heads/mlm/{name}"), array, err_msg=name)
    told = capsys.readouterr().err
    assert "run: a preset has no place for the heads nsp: they are left out" in told
    differs = "has gelu in the place of gelu_tanh and an epsilon of 1e-05 in the place of 1e-12" in told
    assert differs == (case == "bert")
    assert ("in the place of" in told) == ("roberta" not in case)
    assert said(tmp_path, "preprocessor.json")["class_name"].endswith("MaskedLMPreprocessor")


def test_a_narrower_layer_before_the_labels_gets_units_of_zeros(tmp_path):
    import h5py

    classifier(tmp_path / "run", "roberta")
    written(tmp_path)
    changed(tmp_path, hidden_dim=13)
    with h5py.File(tmp_path / "preset/task.weights.h5", "r+") as file:
        cut = {"dense/vars/0": np.s_[:, :13], "dense/vars/1": np.s_[:13], "dense_1/vars/0": np.s_[:13]}
        for name, at in cut.items():
            values = file[f"layers/{name}"][()][at]
            del file[f"layers/{name}"]
            file[f"layers/{name}"] = values
    kb.import_checkpoint(tmp_path / "preset", out=tmp_path / "narrow", build=False)
    whole, narrow = read_tensors(tmp_path / "run"), read_tensors(tmp_path / "narrow")
    for name, axis in {"pooler/kernel": 1, "pooler/bias": 0, "heads/classifier/kernel": 0}.items():
        expected = np.moveaxis(whole.read(name).copy(), axis, 0)
        expected[13:] = 0
        np.testing.assert_array_equal(np.moveaxis(narrow.read(name), axis, 0), expected)


def test_lengths_of_a_preprocessor(tmp_path, capsys):
    classifier(tmp_path / "run", length=9)
    assert written(tmp_path).task["length"] == 9
    for number, length in enumerate((32, 512, None)):
        pack = said(tmp_path, "task.json")["config"]["preprocessor"]
        pack["config"]["sequence_length"] = length
        changed(tmp_path, preprocessor=pack)
        kb.import_checkpoint(tmp_path / "preset", out=tmp_path / f"{number}", build=False)
        assert "length" not in read_model_json(tmp_path / f"{number}").task
    changed(tmp_path, preprocessor=None, dropout=0.3)
    changed(tmp_path, "preprocessor.json", truncate="waterfall")
    capsys.readouterr()
    kb.import_checkpoint(tmp_path / "preset", out=tmp_path / "none", build=False)
    assert capsys.readouterr().err == "not used: dropout (task.json); truncate (preprocessor.json)\n"


def test_names_of_labels_are_ours_alone(tmp_path):
    classifier(tmp_path / "run", labels=ODD)
    written(tmp_path)
    (tmp_path / "preset/metadata.json").write_text('{"parameter_count": 7}')
    kb.import_checkpoint(tmp_path / "preset", out=tmp_path / "plain", build=False)
    assert read_model_json(tmp_path / "plain").labels == ("LABEL_0", "LABEL_1", "LABEL_2")


def test_a_classifier_of_keras_nlp(tmp_path):
    """KerasHub's name before, whose class was called otherwise."""
    classifier(tmp_path / "run", labels=ODD)
    written(tmp_path)
    old = said(tmp_path, "task.json") | {"class_name": "BertClassifier", "registered_name": "keras_nlp>BertClassifier"}
    (tmp_path / "preset/task.json").write_text(json.dumps(old))
    kb.import_checkpoint(tmp_path / "preset", out=tmp_path / "old", build=False)
    assert read_model_json(tmp_path / "old").labels == ODD


def test_a_preset_that_was_not_imported_is_called_one(tmp_path):
    classifier(tmp_path / "run")
    written(tmp_path)
    with pytest.raises(InputError, match="preset is a preset of KerasHub: kerasbert import .*preset --out DIR"):
        kb.predict(tmp_path / "preset", ["the cats"])


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"activation": "tanh"}, "has activation 'tanh' of 3 outputs, expected linear or softmax or sigmoid"),
        ({"activation": {"class_name": "function", "config": "mine>cube"}}, "has activation 'cube' of 3 outputs"),
        (
            {"hidden_dim": 21},
            "has hidden_dim 21, expected at most 20, the backbone's: no such model here. --ignore 'task",
        ),
        ({"num_classes": 2}, "has num_classes 2, and task.weights.h5 3: they do not belong together"),
        ({"num_classes": 1}, "has num_classes 1, and task.weights.h5 3: they do not belong together"),
        ({"num_classes": 1, "activation": "softmax"}, "'softmax' of 1 output, expected linear or sigmoid"),
        ({"num_classes": None}, "has num_classes None, expected a number of at least 1"),
    ],
)
def test_what_is_not_computed_is_refused(tmp_path, settings, told):
    classifier(tmp_path / "run", "roberta")
    written(tmp_path)
    changed(tmp_path, **settings)
    with pytest.raises(InputError, match=told):
        kb.import_checkpoint(tmp_path / "preset", build=False)
    kb.import_checkpoint(tmp_path / "preset", out=tmp_path / "alone", ignore=["task/*"], build=False)
    assert read_model_json(tmp_path / "alone").task is None
    assert not read_model_json(tmp_path / "alone").spec.pooler


def cut(path):
    path.write_bytes(path.read_bytes()[:-100])


def emptied(path):
    import h5py

    h5py.File(path, "w").close()


def quantized(path):
    import h5py

    with h5py.File(path, "r+") as file:
        values = file["layers/dense/vars/0"][()]
        del file["layers/dense/vars/0"]
        file["layers/dense/vars/0"] = (values * 100).astype("int8")


def missing(path):
    import h5py

    with h5py.File(path, "r+") as file:
        del file["layers/dense/vars/1"]


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (
            lambda path: path.unlink(),
            r"has a task.json \(BertTextClassifier\) and no task.weights.h5, which its head is in",
        ),
        (cut, "cannot read .*task.weights.h5 as Keras weights: .*truncated"),
        (lambda path: path.write_bytes(b""), "cannot read .*task.weights.h5 as Keras weights"),
        (quantized, r"has quantized weights \(layers/dense/vars/0\), expected floating point"),
        (emptied, "does not fit the model. 2 missing: task/layers/dense/vars/0"),
        (missing, "does not fit the model. 1 missing: task/layers/dense/vars/1"),
        (
            lambda path: path.with_name("task.json").write_text("{}"),
            "task.json is no configuration of a task of KerasHub",
        ),
        (lambda path: path.with_name("metadata.json").write_text("{"), "metadata.json"),
        (
            lambda path: path.with_name("metadata.json").write_text('{"task_options": "x"}'),
            "metadata.json is damaged: expected task_options",
        ),
        (
            lambda path: path.with_name("metadata.json").write_text('{"id2label": {"0": "a"}}'),
            "the classifier has 3 outputs, and id2label names 1",
        ),
    ],
)
def test_damaged_tasks_are_refused_in_a_line(tmp_path, damage, told):
    classifier(tmp_path / "run")
    written(tmp_path)
    damage(tmp_path / "preset/task.weights.h5")
    with pytest.raises(InputError, match=told) as error:
        kb.import_checkpoint(tmp_path / "preset", build=False)
    assert "\n" not in str(error.value)


SPAN = {"span": {"kernel": np.ones((20, 2)), "bias": np.ones(2)}}


@pytest.mark.parametrize(
    ("case", "more", "told"),
    [
        (
            "bert",
            {"task": {"kind": "tags", "inputs": "text"}},
            "BertTextClassifier gives labels .* classifier of .*, a tags",
        ),
        (
            "bert",
            {"task": {"kind": "span", "inputs": "pair"}, "heads": SPAN},
            "no place for the heads span of .*, a span",
        ),
        ("electra", {}, "KerasHub has no classifier on a ElectraBackbone, so no place for the head classifier"),
        ("xlnet", {}, "KerasHub has no classifier on a XLNetBackbone"),
        (
            "bert",
            {"task": {"kind": "multi_label", "inputs": "text", "options": {"thresholds": [0.5, 0.2]}}},
            r"no place for the thresholds of the labels of .*, \[0.5, 0.2\]",
        ),
        ("bert", {"task": {"kind": "classification", "options": {"pooling": "mean"}}}, "the pooling 'mean'"),
        ("bert", {"task": {"kind": "classification", "layers": "mix"}}, "the head of .* reads layers 'mix'"),
        ("bert", {"changes": {"pooler": False}}, "BertTextClassifier reads a pooled vector .* without a pooler"),
        ("roberta", {"changes": {"pooler": False}}, "RobertaTextClassifier reads a pooled vector .* without a pooler"),
        ("deberta-v3", {}, "DebertaV3TextClassifier has inner/kernel, inner/bias in the head 'classifier', this model"),
        ("bert", {"changes": {"feedforward.activation": "gelu"}}, "computes gelu_tanh, .*run gelu"),
    ],
)
def test_what_their_classes_do_not_compute_is_refused(case, more, told, tmp_path):
    about = {"task": {"kind": "classification", "inputs": "text"}, "heads": {"classifier": head("bert", 2)}} | more
    labels = None if about["task"]["kind"] == "span" else ("a", "b")
    presets.directory(tmp_path / "run", case, labels=labels, **about)
    with pytest.raises(InputError, match=told):
        kb.export_checkpoint(tmp_path / "run", tmp_path / "preset", "keras_hub")
    assert not (tmp_path / "preset").exists()


def test_a_masked_lm_on_an_enhanced_decoder_is_left_out(tmp_path, capsys):
    masked_lm(tmp_path / "run", "deberta-v3", emd={"table": np.ones((4, 20))})
    written(tmp_path)
    assert "a preset has no place for the heads emd, mlm: they are left out" in capsys.readouterr().err
    assert not (tmp_path / "preset/task.json").exists()


def test_a_classifier_without_a_tokenizer_has_no_preprocessor(tmp_path):
    heads, task = {"classifier": head("bert")}, {"kind": "classification", "inputs": "text"}
    presets.directory(tmp_path / "run", "bert", heads=heads, task=task, labels=ODD)
    assert written(tmp_path).labels == ODD
    assert said(tmp_path, "task.json")["config"]["preprocessor"] is None
    assert not (tmp_path / "preset/preprocessor.json").exists()
