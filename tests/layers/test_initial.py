"""What weights begin as, where a file is read next and elsewhere."""

import keras
import numpy as np

import kerasbert as kb
from kerasbert.layers.initial import Normal, unset
from tests import tiny


def test_nothing_is_drawn_where_a_file_is_read_next_and_what_follows_is_as_ever():
    keras.utils.set_random_seed(3)
    drawn = [Normal(stddev=0.5)((40, 5)).numpy() for _ in range(2)]
    keras.utils.set_random_seed(3)
    first = Normal(stddev=0.5)
    with unset():
        np.testing.assert_array_equal(first((40, 5)), np.zeros((40, 5)))
    np.testing.assert_array_equal(Normal(stddev=0.5)((40, 5)), drawn[1])
    theirs = keras.initializers.TruncatedNormal(stddev=0.5, seed=4)((40, 5))
    np.testing.assert_array_equal(Normal(stddev=0.5, seed=4)((40, 5)), theirs)


def test_a_model_is_loaded_without_drawing(tmp_path, monkeypatch):
    encoder = kb.build("bert/tiny", **tiny.SPEC)
    kb.save(encoder, tmp_path / "model", tokenizer=tiny.tokenizer())
    monkeypatch.setattr(keras.initializers.TruncatedNormal, "__call__", None)
    loaded = kb.load(tmp_path / "model")
    for one, other in zip(encoder.weights, loaded.weights, strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())
