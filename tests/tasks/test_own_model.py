"""A user's own functional model and `.keras` file: loaded by Keras alone, with the tokenizer; it answers, and goes to a phone."""

import json

import keras
import numpy as np
import pytest
from keras import ops

import kerasbert as kb
from kerasbert import keras_objects
from kerasbert.cli import main
from kerasbert.errors import InputError
from kerasbert.export import saved_model
from kerasbert.mobile import cli as mobile
from kerasbert.mobile.pipeline import compression
from kerasbert.mobile.runtime import load as load_file
from kerasbert.table import shipped
from kerasbert.tasks import predict
from kerasbert.tasks.own_model import answering
from tests import tiny
from tests.support import python

# of Keras, which writes the file
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


def around(head, length: int | None = None):
    """A functional model: `head` of the encoder's outputs and the padding mask."""
    encoder = kb.build("bert/tiny", **tiny.SPEC)
    encoder.tokenizer = tiny.tokenizer()
    inputs = {name: keras.Input((length,), dtype="int32", name=name) for name in ("token_ids", "padding_mask")}
    return keras.Model(inputs, head(encoder(inputs), ops.cast(inputs["padding_mask"], "bool")))


def own(activation: str | None = "softmax", outputs: int = 2):
    dense = keras.layers.Dense(outputs, activation=activation, name="mine")
    return around(lambda found, mask: dense(found["pooled"]))


def many(found, mask):
    """A head of many layers."""
    states = keras.layers.LSTM(8)(found["sequence"], mask=mask)
    mean = keras.layers.GlobalAveragePooling1D()(found["sequence"], mask=mask)
    x = keras.layers.Dropout(0.3)(keras.layers.Concatenate()([states, mean, found["pooled"]]))
    return keras.layers.Dense(2, activation="softmax", kernel_initializer=keras.initializers.RandomNormal(0, 1, 1))(x)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    model, path = own(), tmp_path_factory.mktemp("own") / "mine.keras"
    model.save(path)
    return model, path


def test_the_file_has_the_tokenizer_and_answers(saved):
    model, path = saved
    back = kb.load(path)
    (one,) = kb.predict(back, "good a")
    ids = tiny.tokenizer()("good a")
    scores = np.asarray(model({name: np.asarray(ids[name]) for name in ("token_ids", "padding_mask")}))[0]
    assert list(one.scores.values()) == pytest.approx(scores.tolist(), abs=1e-5)
    assert one.label == str(scores.argmax())
    assert kb.predict(path, ["good a"]) == [one]


@pytest.mark.slow
def test_labels_and_vectors(saved):
    model, _ = saved
    model.labels = ["no", "yes"]
    assert kb.predict(model, "good a")[0].label in ("no", "yes")
    model.labels = ["no"]
    with pytest.raises(InputError, match="the model has 1 labels and an output for 2, expected one each"):
        kb.predict(model, "good a")
    del model.labels
    assert len(kb.predict(own(None, 3), "good a")[0].values) == 3


def test_what_cannot_answer():
    plain = keras.Sequential([keras.layers.Dense(1)])
    assert answering(plain) is plain
    with pytest.raises(InputError, match="expected a directory or a model of kerasbert"):
        kb.predict(plain, "good a")
    model = own()
    for outputs in ({"a": model.output, "b": model.output}, [model.output, model.output]):
        with pytest.raises(
            InputError, match=r"the model has 2 outputs \(., .\), expected one: .* model.output\['?[a0]'?\]"
        ):
            kb.predict(keras.Model(model.input, outputs), "good a")
    assert kb.predict(keras.Model(model.input, {"a": model.output}), "good a") == kb.predict(model, "good a")
    with pytest.raises(
        InputError, match=r"the model's output is \[B, S, 16\], expected one \[B, N\]: kb.export takes it"
    ):
        kb.predict(around(lambda found, mask: found["sequence"]), "good a")
    with pytest.raises(InputError, match="Functional holds an encoder and has no inputs by name, expected keras.Model"):
        kb.predict(keras.Model(list(model.input.values()), model.output), "good a")
    age = {**model.input, "age": keras.Input((3,), name="age")}
    with pytest.raises(InputError, match="the model reads age, which no text fills, expected keras.Model"):
        kb.predict(keras.Model(age, keras.layers.Concatenate()([model.output, age["age"]])), "good a")


@pytest.mark.parametrize("name", ["LSTM", "GlobalAveragePooling1D"])
def test_an_answer_that_padding_changes_is_refused(name):
    """It was another one beside a longer text, and in each bucket of a file."""
    layer = getattr(keras.layers, name)(*[8] * (name == "LSTM"))
    with pytest.raises(InputError, match="padding behind a text changes the model's answer, by .*: let what reads the"):
        answering(around(lambda found, mask: layer(found["sequence"])))
    kept = answering(around(lambda found, mask: layer(found["sequence"], mask=mask)))
    assert kept.labels is None


def test_what_an_output_ends_in_says_what_an_answer_is():
    """Labels over sigmoids were a softmax of the sigmoids; one sigmoid was a vector."""
    inputs = {name: tiny.tokenizer()("good a")[name] for name in ("token_ids", "padding_mask")}

    def scores(model):
        found = answering(model)
        return found.task.kind, found.task.answer_kind.probabilities(np.asarray(found(inputs)["logits"]))[0].tolist()

    several, one, nested = own("sigmoid", 3), own("sigmoid", 1), own(None, 3)
    several.labels = ["x", "y", "z"]
    assert scores(several) == ("multi_label", pytest.approx(np.asarray(several(inputs))[0].tolist(), abs=1e-5))
    yes = float(np.asarray(one(inputs))[0, 0])
    assert scores(one) == ("classification", pytest.approx([1 - yes, yes], abs=1e-5))
    one.labels = ["no", "yes"]
    assert answering(one).labels == ("no", "yes")
    soft = ops.softmax(keras.Model(nested.input, nested.output)(nested.input))
    outer = keras.Model(nested.input, keras.Model(nested.input, soft)(nested.input))
    assert scores(outer) == ("classification", pytest.approx(np.asarray(outer(inputs))[0].tolist(), abs=1e-5))


def test_inputs_of_one_length_are_padded_to_it():
    """A Flatten of 12 tokens was an error of shapes."""
    model = around(lambda found, mask: keras.layers.Dense(2)(keras.layers.Flatten()(found["sequence"])), 12)
    names = ("token_ids", "padding_mask")
    short, whole = (tiny.tokenizer()("good a", **length) for length in ({}, {"length": 12}))
    found = answering(model)({name: short[name] for name in names})["vector"]
    np.testing.assert_allclose(found, model({name: whole[name] for name in names}), atol=1e-5)
    assert predict.longest(answering(model)) == 12


def test_code_that_a_file_does_not_hold_is_named(tmp_path):
    class Twice(keras.layers.Layer):
        def call(self, x):
            return x * 2

    for layer, said in (
        (keras.layers.Lambda(lambda x: x * 2), "holds a lambda, whose"),
        (Twice(), "holds Twice, which"),
    ):
        around(lambda found, mask, layer=layer: layer(found["pooled"])).save(tmp_path / "own.keras")
        with pytest.raises(InputError, match=f"own.keras {said} .* plug-in"):
            kb.predict(tmp_path / "own.keras", "good a")


def test_keras_knows_the_names_of_all_that_ships():
    known = keras.saving.get_custom_objects()
    assert "kerasbert>bert.Encoder" in shipped()["keras_objects"]
    assert set(shipped()["keras_objects"]) <= set(known)
    later = keras_objects.Later(shipped()["keras_objects"]["kerasbert>bert.Encoder"])
    encoder = kb.build("bert/tiny", **tiny.SPEC)
    made = later.from_config(encoder.get_config())
    assert (type(made), made.spec) == (type(encoder), encoder.spec)


def test_the_finder_is_of_keras_alone():
    assert keras_objects.AfterKeras().find_spec("numpy") is None


@pytest.mark.slow
def test_keras_loads_it_after_import_kerasbert(saved):
    """In a fresh process, in either order; importing kerasbert imports neither Keras nor TensorFlow."""
    _, path = saved
    for imports in (
        "import kerasbert, sys; assert 'keras' not in sys.modules; import keras",
        "import keras, kerasbert",
    ):
        program = f"{imports}\nmodel = keras.models.load_model({str(path)!r})\nprint(model.layers[-2].tokenizer.size)"
        assert int(python("-c", program).stdout) == tiny.tokenizer().size


def flat(found, mask):
    """A head of all tokens, which wants to know how many they are."""
    dense = keras.layers.Dense(2, activation="softmax")
    return dense(keras.layers.Flatten()(found["sequence"]))


@pytest.mark.slow
@pytest.mark.parametrize(("case", "lengths"), [("dense", [8, 16]), ("many", [8, 16]), ("fixed", [12])])
def test_it_goes_to_a_phone(case, lengths, tmp_path):
    model = {"dense": own, "many": lambda: around(many), "fixed": lambda: around(flat, 12)}[case]()
    model.save(tmp_path / "own.keras")
    expected = kb.predict(model, texts := ["good a", "the bad cat", "good " * 9])
    for quantize, near in (("float32", 1e-4), ("dynamic_int8", 0.05)):
        out = tmp_path / f"{quantize}.tflite"
        limits = {} if case == "fixed" else {"length": 16}
        report = kb.mobile.compress(tmp_path / "own.keras", quantize, out, min_agreement=0, **limits)
        assert report["lengths"] == lengths
        for answer, wanted in zip(load_file(out)(texts), expected, strict=True):
            assert list(answer.scores.values()) == pytest.approx(list(wanted.scores.values()), abs=near)
    if case != "dense":
        with pytest.raises(
            InputError, match="lengths is 'any' and the model has (recurrent layers|inputs of 12 tokens)"
        ):
            kb.mobile.compress(tmp_path / "own.keras", out=tmp_path / "any.tflite", lengths="any")


def test_labels_of_a_file_are_named_where_it_is_used(saved, tmp_path, capsys, monkeypatch):
    """A .keras file holds none: without names they are "0" and "1"."""
    _, path = saved
    assert main(["predict", str(path), "--label-names", "no, yes", "--json", "good a"]) == 0
    assert list(json.loads(capsys.readouterr().out)["scores"]) == ["no", "yes"]
    assert kb.load(path, labels=["no", "yes"]).labels == ["no", "yes"]
    held = []
    monkeypatch.setattr(saved_model, "export", lambda model, *_, **__: held.append(model.labels) or tmp_path)
    monkeypatch.setattr(compression, "compress", lambda model, **_: held.append(model.labels) or 1 / 0)
    assert main(["export", str(path), str(tmp_path / "1"), "--label-names", "no,yes"]) == 0
    names = ["--label-names", "no,yes"]
    assert mobile.main(["compress", str(path), "--out", str(tmp_path / "a.tflite"), *names]) == 1  # unexpected: 1 / 0
    assert held == [["no", "yes"]] * 2
    assert main(["predict", str(path), "--label-names", "no,yes,so", "good a"]) == 2
    assert "the model has 3 labels and an output for 2, expected one each" in capsys.readouterr().err
    assert main(["predict", str(path), "--label-names", "no,no", "good a"]) == 2
    assert "expected different names, with commas between" in capsys.readouterr().err
    with pytest.raises(InputError, match=r"labels are of a \.keras file, which has none, and runs/a has its own"):
        kb.load("runs/a", labels=["no", "yes"])
