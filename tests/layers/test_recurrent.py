"""Recurrence by hand, against float64 written from the equations, and against torch."""

import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from kerasbert.classics.layers.recurrent_encoder import with_bias, with_one
from kerasbert.layers import backend
from kerasbert.layers.recurrence import recur
from kerasbert.layers.recurrent import GRU, LSTM, ResetBeforeGRU, reversed_rows

MASK = np.array([[1] * 7, [1] * 4 + [0] * 3, [1] + [0] * 6])
KINDS = {
    "lstm": lambda: LSTM(6),
    "clipped": lambda: LSTM(6, projection=4, cell_clip=0.3, projection_clip=0.1),
    "backward": lambda: LSTM(6, projection=4, reverse=True),
    "gru": lambda: GRU(6),
    "backward gru": lambda: GRU(6, reverse=True),
    "reset before gru": lambda: ResetBeforeGRU(6),
}


def made(kind, width=5, seed=0):
    """A layer with weights far from zero."""
    layer = KINDS[kind]()
    layer.build((None, None, width))
    generator = np.random.default_rng(seed)
    for weight in layer.weights:
        weight.assign(generator.normal(0, 0.5, weight.shape))
    return layer


def text(rows=3, length=7, width=5, seed=1):
    return np.random.default_rng(seed).normal(size=(rows, length, width)).astype("float32")


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def by_equations(layer, x, mask, state):
    """A row in float64, place after place."""
    weights = {weight.name: weight.numpy().astype("float64") for weight in layer.weights}
    state, y = [each.astype("float64") for each in state], np.zeros((len(x), layer.widths[0]))
    for place in range(len(x))[:: -1 if layer.reverse else 1]:
        if mask[place]:
            h, own = state[0], x[place] @ weights["kernel"] + weights["bias"]
            told = h @ weights["recurrent_kernel"]
            if isinstance(layer, GRU):
                r, z, _ = np.split(sigmoid(own + told), 3)
                n = np.tanh(own[-layer.units :] + r * (told[-layer.units :] + weights["recurrent_bias"]))
                state = [(1 - z) * n + z * h]
            elif isinstance(layer, ResetBeforeGRU):  # Kiros et al., equations 1 to 4
                r, z = np.split(sigmoid(own[:12] + told[:12]), 2)
                n = np.tanh(own[12:] + (r * h) @ weights["recurrent_kernel"][:, 12:])
                state = [(1 - z) * h + z * n]
            else:
                i, f, g, o = np.split(own + told, 4)
                c = sigmoid(f) * state[1] + sigmoid(i) * np.tanh(g)
                c = c if layer.cell_clip is None else np.clip(c, -layer.cell_clip, layer.cell_clip)
                h = sigmoid(o) * np.tanh(c)
                h = h @ weights["projection_kernel"] if layer.projection else h
                state = [h if layer.projection_clip is None else np.clip(h, -0.1, 0.1), c]
        y[place] = state[0]
    return y, state


def test_one_unit_by_hand():
    layer = LSTM(1)
    layer.build((None, None, 1))
    np.testing.assert_array_equal(layer.bias, [0, 1, 0, 0])  # forgetting begins low
    for weight, value in zip(layer.weights, ([[1, 2, 3, 4]], [[0.5, 0.25, -1, 2]], [0, 1, 0, -1]), strict=True):
        weight.assign(value)
    y, (h, c) = layer(np.array([[[0.5], [9.0], [-0.25]]], "float32"), padding_mask=[[1, 0, 1]])
    first = sigmoid(0.5) * math.tanh(1.5)
    told = sigmoid(1.0) * math.tanh(first)
    second = sigmoid(0.25 * told + 0.5) * first + sigmoid(0.5 * told - 0.25) * math.tanh(-told - 0.75)
    last = sigmoid(2 * told - 2) * math.tanh(second)
    np.testing.assert_allclose(np.ravel(y), [told, told, last], atol=1e-6)  # padding gives what stands before it
    np.testing.assert_allclose([h[0, 0], c[0, 0]], [last, second], atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_the_equations_in_float64(kind):
    layer, x = made(kind), text()
    state = tuple(np.random.default_rng(2).normal(size=(3, width)).astype("float32") for width in layer.widths)
    y, after = layer(x, padding_mask=MASK, state=state)
    for row in range(3):
        expected, behind = by_equations(layer, x[row], MASK[row], [each[row] for each in state])
        np.testing.assert_allclose(y[row], expected, atol=1e-5)
        for one, other in zip(after, behind, strict=True):
            np.testing.assert_allclose(one[row], other, atol=1e-5)


@pytest.mark.parametrize("kind", ["clipped", "backward gru", "reset before gru"])
def test_the_gradient_is_that_of_the_loop(kind, monkeypatch):
    layer, begins = made(kind), np.array([[0, 0, 1, 0, 0, 0, 0]] * 3)
    arrays = [tf.Variable(text()), *(tf.Variable(tf.ones((3, width)) / 3) for width in layer.widths)]
    arrays += [weight.value for weight in layer.weights]

    def differentiate(scan):
        monkeypatch.setattr("kerasbert.layers.recurrence.scan", scan)
        with tf.GradientTape() as tape:
            y, state = layer(
                arrays[0], padding_mask=MASK, begins=begins, state=tuple(arrays[1 : 1 + len(layer.widths)])
            )
            loss = tf.reduce_sum(tf.sin(y)) + sum(tf.reduce_sum(tf.cos(each)) for each in state)
        return [y, *state, *tape.gradient(loss, arrays)]

    ours = differentiate(backend.scan)
    compiled = tf.function(differentiate, jit_compile=True)(backend.scan)
    monkeypatch.setattr("kerasbert.layers.recurrence.differentiated", lambda x: False)
    for found in (ours, compiled):
        for one, other in zip(found, differentiate(backend.scan_plainly), strict=True):
            np.testing.assert_allclose(one, other, atol=2e-5)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "clipped"])  # a clipped state may not move
def test_what_is_seen(kind):
    layer, x = made(kind), text()
    y, _ = layer(x, padding_mask=MASK)
    other = x.copy()
    at = 3
    other[0, at] += 1
    other[1, 5] += 1  # padding
    found, _ = layer(other, padding_mask=MASK)
    changed = np.abs(np.asarray(found) - np.asarray(y)).max(-1) > 0
    sees = np.arange(7) <= at if layer.reverse else np.arange(7) >= at
    np.testing.assert_array_equal(changed[0], sees)
    assert not changed[1:].any()
    alone, _ = layer(x[:, 2:])
    begun, _ = layer(x, begins=np.array([[0, 0, 1, 0, 0, 0, 0]] * 3))
    if not layer.reverse:  # a text that begins in the middle sees nothing before it
        np.testing.assert_allclose(begun[:, 2:], alone, atol=1e-6)


def test_a_text_in_pieces_is_the_whole():
    layer, x = made("clipped"), text()
    whole, end = layer(x, padding_mask=MASK)
    first, state = layer(x[:, :3], padding_mask=MASK[:, :3])
    second, state = layer(x[:, 3:], padding_mask=MASK[:, 3:], state=state)
    np.testing.assert_allclose(np.concatenate([first, second], axis=1), whole, atol=1e-6)
    for one, other in zip(state, end, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


def test_the_other_way_round():
    x = text()
    found = np.asarray(reversed_rows(x, MASK))
    np.testing.assert_array_equal(found[1], [*x[1, 3::-1], *x[1, 4:]])
    np.testing.assert_array_equal(reversed_rows(x), x[:, ::-1])
    np.testing.assert_array_equal(backend.reverse_rows_plainly(tf.constant(x), MASK.sum(1).astype("int32")), found)
    forward, backward = made("lstm"), LSTM(6, reverse=True)
    backward.build((None, None, 5))
    for one, other in zip(backward.weights, forward.weights, strict=True):
        one.assign(other)
    turned, state = forward(reversed_rows(x, MASK), padding_mask=MASK)
    y, end = backward(x, padding_mask=MASK)
    np.testing.assert_allclose(reversed_rows(turned, MASK) * MASK[..., None], y * MASK[..., None], atol=1e-6)
    np.testing.assert_allclose(state[1], end[1], atol=1e-6)


def test_half_precision_keeps_the_state():
    layer = LSTM(6, projection=4, dtype="mixed_bfloat16")
    layer.build((None, None, 5))
    y, state = layer(text())
    assert {keras.backend.standardize_dtype(each.dtype) for each in state} == {"float32"}
    assert keras.backend.standardize_dtype(y.dtype) == "bfloat16"
    exact = LSTM(6, projection=4)
    exact.build((None, None, 5))
    for one, other in zip(exact.weights, layer.weights, strict=True):
        one.assign(other)
    np.testing.assert_allclose(tf.cast(y, tf.float32), exact(text())[0], atol=0.02)


def test_the_graph_has_no_length():
    layer = made("clipped")
    call = tf.function(lambda x: layer(x)[0], autograph=False)
    counts = {
        length: len(call.get_concrete_function(tf.TensorSpec([None, length, 5])).graph.as_graph_def().node)
        for length in (3, 30)
    }
    assert counts[3] == counts[30]
    unknown = tf.function(lambda x: layer(x)[0], input_signature=[tf.TensorSpec([None, None, 5])], autograph=False)
    np.testing.assert_allclose(unknown(text()), layer(text())[0], atol=1e-6)


@pytest.mark.parametrize("kind", [LSTM, GRU, ResetBeforeGRU])
def test_matrices_begin_with_numbers_of_their_own(kind):
    """One initializer for two weights would give both the same."""
    layer = kind(6)
    layer.build((None, None, 6))
    kernel, matrix = layer.kernel.numpy(), layer.recurrent_kernel.numpy()
    assert len(np.unique(np.concatenate([kernel, matrix]))) == kernel.size + matrix.size


def test_a_gru_that_resets_before_its_product_begins_as_its_paper_says():
    layer = ResetBeforeGRU(6)
    layer.build((None, None, 200))
    for block in np.split(layer.recurrent_kernel.numpy(), 3, axis=1):
        np.testing.assert_allclose(block @ block.T, np.eye(6), atol=1e-5)
    assert abs(np.abs(layer.kernel.numpy()).max() - 0.1) < 1e-3


def test_what_is_added_at_every_place():
    layer, x = made("reset before gru"), text()
    added = np.random.default_rng(5).normal(size=(3, 18)).astype("float32")
    found, _ = layer(x, padding_mask=MASK, added=added)
    row, bias = 1, layer.bias.numpy()
    layer.bias.assign(bias + added[row])
    np.testing.assert_allclose(found[row], layer(x, padding_mask=MASK)[0][row], atol=1e-6)


@pytest.mark.slow
def test_torchs_gru_is_that_which_resets_before_where_the_product_is_one_number_a_unit():
    """A diagonal matrix of the candidate: r (U h) = U (r h); their z is 1 - ours."""
    torch = pytest.importorskip("torch")
    layer, theirs = made("reset before gru"), torch.nn.GRU(5, 6, batch_first=True)
    matrix = layer.recurrent_kernel.numpy()
    matrix[:, 12:] = np.diag(np.diag(matrix[:, 12:]))
    layer.recurrent_kernel.assign(matrix)
    sign = np.repeat([1, -1, 1], 6).astype("float32")
    with torch.no_grad():
        for name, weight in (("ih", layer.kernel), ("hh", layer.recurrent_kernel)):
            getattr(theirs, f"weight_{name}_l0").copy_(torch.tensor((weight.numpy() * sign).T))
        theirs.bias_ih_l0.copy_(torch.tensor(layer.bias.numpy() * sign))
        theirs.bias_hh_l0.zero_()
        expected = theirs(torch.tensor(text()))[0].numpy()
    np.testing.assert_allclose(layer(text())[0], expected, atol=1e-5)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize("kind", ["lstm", "projected", "gru"])
def test_torch_computes_the_same(kind):
    torch = pytest.importorskip("torch")
    gru, size = kind == "gru", 4 if kind == "projected" else 0
    layer = GRU(6) if gru else LSTM(6, projection=size or None)
    layer.build((None, None, 5))
    theirs = torch.nn.GRU(5, 6, batch_first=True) if gru else torch.nn.LSTM(5, 6, batch_first=True, proj_size=size)
    torch.manual_seed(0)
    with torch.no_grad():
        for value in theirs.parameters():
            value.normal_(0, 0.5)
    weights = {name: value.detach().numpy() for name, value in theirs.named_parameters()}
    layer.kernel.assign(weights["weight_ih_l0"].T)
    layer.recurrent_kernel.assign(weights["weight_hh_l0"].T)
    both = weights["bias_ih_l0"] + weights["bias_hh_l0"]
    if gru:  # n has two biases, of which one is reset
        both[12:] = weights["bias_ih_l0"][12:]
        layer.recurrent_bias.assign(weights["bias_hh_l0"][12:])
    layer.bias.assign(both)
    if size:
        layer.projection_kernel.assign(weights["weight_hr_l0"].T)
    x = torch.tensor(text(), requires_grad=True)
    y, state = theirs(x)
    (y**2).sum().backward()
    ours = tf.Variable(text())
    with tf.GradientTape() as tape:
        found, after = layer(ours)
        loss = tf.reduce_sum(found**2)
    of_x, of_kernel, of_matrix = tape.gradient(loss, [ours, layer.kernel.value, layer.recurrent_kernel.value])
    np.testing.assert_allclose(found, y.detach(), atol=1e-5)
    for one, other in zip(after, [state] if gru else state, strict=True):
        np.testing.assert_allclose(one, other[0].detach(), atol=1e-5)
    np.testing.assert_allclose(of_x, x.grad, atol=1e-5)
    np.testing.assert_allclose(of_kernel, theirs.weight_ih_l0.grad.T, atol=5e-5)
    np.testing.assert_allclose(of_matrix, theirs.weight_hh_l0.grad.T, atol=5e-5)


def test_a_cell_of_ones_own():
    """Any cell: here a sum, whose state is the running total."""
    x = tf.constant(np.arange(6, dtype="float32").reshape(3, 1, 2))
    y, (state,) = recur(lambda x, product, state: (x + state[0],), x, tf.zeros((2, 2)), (tf.zeros((1, 2)),))
    np.testing.assert_array_equal(y[:, 0], [[0, 1], [2, 4], [6, 9]])
    np.testing.assert_array_equal(state, [[6, 9]])


@pytest.mark.parametrize("shape", [(3,), (4, 3), (2, 4, 3)])
def test_a_bias_as_one_column_more(shape):
    """A softmax that samples rows of the table multiplies [x, 1] with [row, bias]."""
    x, table, bias = (
        np.arange(1.0, 1 + math.prod(shape)).reshape(shape),
        np.arange(15.0).reshape(5, 3),
        np.arange(5.0) / 7,
    )
    longer, rows = (
        with_one(x.astype("float32")).numpy(),
        with_bias(table.astype("float32"), bias.astype("float32")).numpy(),
    )
    assert longer.shape == (*shape[:-1], 4)
    assert rows.shape == (5, 4)
    np.testing.assert_array_equal(longer, np.concatenate([x, np.ones((*shape[:-1], 1))], -1))
    np.testing.assert_allclose(longer @ rows.T, x @ table.T + bias, rtol=1e-6)
