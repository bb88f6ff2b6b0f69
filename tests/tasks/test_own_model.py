"""A user's own functional model and `.keras` file: loaded by Keras alone, with the tokenizer; it answers, and goes to a phone."""

import keras
import numpy as np
import pytest

import kerasbert as kb
from kerasbert import keras_objects
from kerasbert.errors import InputError
from kerasbert.mobile.runtime import load as load_file
from kerasbert.table import shipped
from kerasbert.tasks.own_model import answering
from tests import tiny
from tests.support import python

# of Keras, which writes the file
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


def own(activation: str | None = "softmax", outputs: int = 2):
    encoder = kb.build("bert/tiny", **tiny.SPEC)
    encoder.tokenizer = tiny.tokenizer()
    inputs = {name: keras.Input((None,), dtype="int32", name=name) for name in ("token_ids", "padding_mask")}
    return keras.Model(
        inputs, keras.layers.Dense(outputs, activation=activation, name="mine")(encoder(inputs)["pooled"])
    )


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
    with pytest.raises(InputError, match="the model has 1 labels and 2 outputs, expected one each"):
        kb.predict(model, "good a")
    del model.labels
    assert len(kb.predict(own(None, 3), "good a")[0].values) == 3


def test_what_cannot_answer():
    plain = keras.Sequential([keras.layers.Dense(1)])
    assert answering(plain) is plain
    with pytest.raises(InputError, match="expected a directory or a model of kerasbert"):
        kb.predict(plain, "good a")
    model = own()
    both = keras.Model(model.input, {"a": model.output, "b": model.output})
    with pytest.raises(InputError, match=r"another output than one \[B, N\]: kb.export takes it"):
        kb.predict(both, "good a")


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


@pytest.mark.slow
def test_it_goes_to_a_phone(saved, tmp_path):
    model, path = saved
    kb.mobile.compress(path, quantize="float32", out=tmp_path / "own.tflite", length=16)
    answers = load_file(tmp_path / "own.tflite")(["good a", "the bad cat"])
    expected = kb.predict(model, ["good a", "the bad cat"])
    assert [one.label for one in answers] == [one.label for one in expected]
    assert [one.score for one in answers] == pytest.approx([one.score for one in expected], abs=1e-4)
