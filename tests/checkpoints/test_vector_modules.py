"""Pooling and Dense of sentence-transformers <-> options of vectors."""

import itertools
from pathlib import Path

import numpy as np
import pytest

from kerasbert.checkpoints.safetensors import write_safetensors
from kerasbert.checkpoints.vector_modules import (
    ACTIVATIONS,
    POOLINGS,
    TORCH,
    dense,
    pooling,
    read_dense,
    write_dense,
    written_pooling,
)
from kerasbert.errors import InputError

WHERE = Path("1_Pooling/config.json")
WORDS = {"cls": "first", "max": "max", "mean": "mean", "weightedmean": "weighted_mean", "lasttoken": "last"}
NAMES = [*POOLINGS.values()]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({}, "mean"),
        *(({f"pooling_mode_{mode}": True}, name) for mode, name in POOLINGS.items()),
        *(({"pooling_mode": word}, name) for word, name in WORDS.items()),
        *(({"pooling_mode": mode}, name) for mode, name in POOLINGS.items()),
        (
            {"pooling_mode_mean_tokens": False, "pooling_mode_max_tokens": True, "pooling_mode_cls_token": True},
            "first+max",
        ),
        ({"pooling_mode": ["max", "cls"]}, "max+first"),
        ({"pooling_mode": "max", "pooling_mode_mean_tokens": True}, "max"),
        ({"word_embedding_dimension": 8}, "mean"),
        ({"embedding_dimension": 8}, "mean"),
    ],
)
def test_the_pooling_that_a_configuration_says(content, expected):
    assert pooling(content, WHERE, 8) == expected


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"pooling_mode": "median"}, "pools by median, expected one of cls_token, max_tokens"),
        ({"pooling_mode": ["mean", "median"]}, "pools by mean and median"),
        ({"pooling_mode": []}, "pools by nothing"),
        ({"word_embedding_dimension": 9}, "is for vectors of 9, the model's have 8"),
        ({"embedding_dimension": 7}, "is for vectors of 7, the model's have 8"),
    ],
)
def test_another_pooling_is_refused(content, said):
    with pytest.raises(InputError, match=said):
        pooling(content, WHERE, 8)


@pytest.mark.parametrize("count", [1, 2])
def test_every_pooling_is_written_as_it_is_read(count):
    for names in itertools.permutations(NAMES, count):
        written = written_pooling("+".join(names), 8, False)
        assert pooling(written, WHERE, 8) == "+".join(names)
        assert (written["word_embedding_dimension"], written["include_prompt"]) == (8, False)
        in_order = [*names] == sorted(names, key=NAMES.index)  # which every release reads
        assert ("pooling_mode" in written) != in_order
        assert sum(key.startswith("pooling_mode_") for key in written) == len(POOLINGS) * in_order


GOOD = {"in_features": 8, "out_features": 3, "bias": False, "activation_function": f"{TORCH}activation.ReLU"}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {"width": 3, "activation": "relu", "bias": False}),
        ({"out_features": 1, "bias": True}, {"width": 1, "activation": "relu", "bias": True}),
        ({"module_input_name": "sentence_embedding", "module_output_name": None, "use_residual": False}, {"width": 3}),
        *(({"activation_function": TORCH + name}, {"activation": ours}) for name, ours in ACTIVATIONS.items()),
    ],
)
def test_a_dense_layer(changes, expected):
    assert dense(GOOD | changes, WHERE, 8).items() >= expected.items()


def test_what_a_dense_layer_leaves_out_is_their_default():
    assert dense({"in_features": 8, "out_features": 3}, WHERE, 8) == {"width": 3, "activation": "tanh", "bias": True}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"module_input_name": "token_embeddings"}, "has module_input_name 'token_embeddings'"),
        ({"module_output_name": "x"}, "has module_output_name 'x'"),
        ({"use_residual": True}, "use_residual"),
        ({"in_features": 7}, "reads vectors of 7, it gets 8"),
        ({"out_features": 0}, "out_features 0"),
        ({"out_features": 3.0}, "out_features 3.0"),
        ({"bias": 1}, "bias 1, expected"),
        (
            {"activation_function": f"{TORCH}activation.Relu"},
            "no activation of .* Nearest: 'torch.nn.modules.activation.ReLU'",
        ),
        ({"activation_function": "mine.activation.ReLU"}, "no activation of"),
    ],
)
def test_a_dense_layer_that_is_not_computed_is_refused(changes, said):
    with pytest.raises(InputError, match=said):
        dense(GOOD | changes, WHERE, 8)


@pytest.mark.parametrize("bias", [True, False])
def test_the_weights_of_a_dense_layer_there_and_back(bias, tmp_path):
    layer = {"width": 3, "activation": "gelu", "bias": bias}
    weights = {"kernel": np.arange(6, dtype="float32").reshape(2, 3)} | (
        {"bias": np.ones(3, "float32")} if bias else {}
    )
    write_dense(tmp_path, layer, 2, weights.__getitem__)
    found = read_dense(tmp_path, layer, 2, False)
    assert found.keys() == weights.keys()
    for name, value in weights.items():
        np.testing.assert_array_equal(found[name], value)
    for other, width in ((layer, 3), (layer | {"bias": not bias}, 2), (layer | {"width": 2}, 2)):
        with pytest.raises(InputError, match="holds the tensors"):
            read_dense(tmp_path, other, width, False)


def test_a_dense_layer_that_cannot_be_written_or_is_damaged(tmp_path):
    layer = {"width": 1, "activation": "softsign", "bias": False}
    with pytest.raises(InputError, match="without the activation 'softsign': keep the directory"):
        write_dense(tmp_path, layer, 1, None)
    tensor = {"linear.weight": np.array([[np.nan]], "float32")}
    write_safetensors(tmp_path / "model.safetensors", {"linear.weight": (1, 1)}, tensor.__getitem__)
    with pytest.raises(InputError, match="holds values that are not finite"):
        read_dense(tmp_path, layer, 1, False)
