"""Keys and values that are kept: by hand, of prompts, of sources. The families' steps are compared by the battery."""

import numpy as np
import pytest

from kerasbert import registry
from kerasbert.layers.attention import Attention
from kerasbert.layers.cache import COVERAGE, Cache, columns, empty, places_of
from kerasbert.layers.context import Context
from kerasbert.testing import battery


def attention(scale=1.0, value_size=2):
    """Two heads of 2; maps that keep the input (times `scale` for the values), no biases."""
    layer = Attention(2, 2, use_bias=False)
    layer.value_size = value_size
    layer.build((None, None, 4))
    for name in ("query", "key"):
        getattr(layer, name).kernel.assign(np.eye(4))
    layer.value.kernel.assign(scale * np.eye(4)[:, : 2 * value_size])
    layer.output_projection.kernel.assign(np.eye(4)[: 2 * value_size])
    return layer


def test_a_step_writes_its_column_of_each_row():
    layer, state = attention(scale=10), {}
    state = empty([layer], 2, 3)
    assert {name: value.shape for name, value in state.items()} == {"key_0": (2, 2, 3, 2), "value_0": (2, 2, 3, 2)}
    assert places_of(state) == 3
    cache = Cache(state, 1, 3, columns(np.array([2, 0]), np.zeros(2, "int32")))
    np.testing.assert_array_equal(cache.visible, [[[True, True, True]], [[True, False, False]]])
    x = np.arange(8, dtype="float32").reshape(2, 1, 4)
    layer(x, **Context(cache=cache).of_layer(0).at)
    key, value = (np.asarray(cache.state[name]) for name in ("key_0", "value_0"))
    # row 0 at place 2: heads [0, 1] and [2, 3]; row 1 at place 0: [4, 5] and [6, 7]
    expected = np.zeros((2, 2, 3, 2))
    expected[0, :, 2], expected[1, :, 0] = [[0, 1], [2, 3]], [[4, 5], [6, 7]]
    np.testing.assert_array_equal(key, expected)
    np.testing.assert_array_equal(value, 10 * expected)


def test_what_was_written_is_read_again():
    """The token [1, 0, 0, 0] beside itself in an earlier place, with values 10 and 0: the mean."""
    layer = attention(scale=10)
    state = empty([layer], 1, 2)
    x = np.array([[[1, 0, 0, 0]]], "float32")
    for column in (0, 1):
        cache = Cache(state, 1, 2, columns(column, np.zeros(1, "int32")))
        y, weights = layer(x * (1 - column) + column * x, **Context(cache=cache).of_layer(0).at)
        state = cache.state
    np.testing.assert_allclose(weights, np.full((1, 2, 1, 2), 0.5))
    np.testing.assert_allclose(y, [[[10, 0, 0, 0]]])


def test_a_prompt_fills_the_first_places_and_values_have_their_own_size():
    layer = attention(value_size=1)
    cache = Cache({}, 1, 5)
    x = np.arange(12, dtype="float32").reshape(1, 3, 4)
    y, _ = layer(x, **Context(cache=cache).of_layer(0).at)
    np.testing.assert_array_equal(y, layer(x)[0])
    state = cache.state
    assert (state["key_0"].shape, state["value_0"].shape) == ((1, 2, 5, 2), (1, 2, 5, 1))
    np.testing.assert_array_equal(state["key_0"][0, 0], [[0, 1], [4, 5], [8, 9], [0, 0], [0, 0]])
    np.testing.assert_array_equal(state["value_0"][0, 1, :, 0], [1, 5, 9, 0, 0])
    assert {name: value.shape for name, value in empty([layer], 1, 5).items()} == {
        name: value.shape for name, value in state.items()
    }


def test_coverage_is_what_the_last_layers_heads_attended_to():
    family, spec = registry.find("bart/base")
    model = family.encoder(spec.derive(battery.tiny(spec, 30) | {"dropout": 0.0}))
    model.build()
    rng = np.random.default_rng(0)
    for weight in model.weights:
        weight.assign(rng.normal(0, 0.3, weight.shape))
    inputs = {"token_ids": rng.integers(0, 30, (2, 5)), "padding_mask": np.array([[1] * 5, [1, 1, 1, 0, 0]])}
    written = rng.integers(0, 30, (2, 3)).astype("int32")
    state = model.start(inputs, 4)
    assert set(state) == {
        f"{side}{part}_{i}" for side in ("", "source_") for part in ("key", "value") for i in range(2)
    } | {"source_mask"}
    state[COVERAGE] = 1 - state["source_mask"]
    for t in range(3):
        _, state = model.step(written[:, t], t, state)
    outputs = model(inputs | {"decoder_token_ids": written}, attention=True)
    heads = np.asarray(outputs["cross_attention"][-1])  # [B, N, T, S]
    np.testing.assert_allclose(state[COVERAGE], heads.mean(axis=1).sum(axis=1) + 1 - inputs["padding_mask"], atol=1e-5)


@pytest.mark.parametrize("changes", [{"attention.value_size": 3, "attention.head_size": 8}, {"blocks.norm": "pre"}])
def test_the_transformers_values_may_have_another_size(changes):
    from kerasbert.testing.generating import check_steps, target

    family, spec = registry.find("transformer/base")
    model = family.encoder(spec.derive(battery.tiny(spec, 30) | {"dropout": 0.0} | changes))
    model.build()
    mask = np.array([[1] * 6, [1] * 5 + [0], [1] * 4 + [0] * 2])
    ids = np.random.default_rng(0).integers(0, 30, (3, 6)).astype("int32")
    check_steps(model, {"token_ids": ids, "padding_mask": mask} | target(ids, mask), battery.relative)
