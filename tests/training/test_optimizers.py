"""Optimizers against numbers worked out by hand, and against the papers' algorithms in float64."""

from types import SimpleNamespace

import keras
import numpy as np
import pytest

from kerasbert.errors import InputError
from kerasbert.training import optimizers
from kerasbert.training.adam import adam, adam_plainly
from kerasbert.training.optimizers import (
    OPTIMIZERS,
    AdamW,
    averaged,
    check_rules,
    decayed,
    layer_factors,
    make_optimizer,
    starts,
    take_average,
)

SETTINGS = {
    "steps": 10**9,
    "warmup": 0,
    "learning_rate": 0.01,
    "weight_decay": 0.0,
    "schedule": "linear",
    "unfreeze": None,
}


def make(name="adamw", options=None, **settings):
    """An optimizer whose rate stays at 0.01."""
    values = SETTINGS | {"optimizer": name, "optimizer_options": options or {}, "schedule_options": {}} | settings
    return make_optimizer(SimpleNamespace(**values, warmup_steps=values["warmup"]))


def variable(value, name="kernel"):
    return keras.Variable(np.array(value, "float32"), name=name)


def value(x):
    return keras.ops.convert_to_tensor(x).numpy()


def update(optimizer, variables, *gradients):
    """Apply lists of gradients; returns the weights."""
    if not optimizer.built:
        optimizer.build(variables)
    for gradient in gradients:
        optimizer.apply([np.array(g, "float32") for g in gradient], variables)
    return [value(x) for x in variables]


def test_adamw_by_hand():
    # Adam's first update is the rate in the gradient's direction; the decay takes rate * 0.5 of the weight
    (found,) = update(make(weight_decay=0.5), [variable([3.0, 4.0])], [[1.0, -1.0]])
    np.testing.assert_allclose(found, [3 - 0.01 - 0.01 * 0.5 * 3, 4 + 0.01 - 0.01 * 0.5 * 4], rtol=2e-6)


def test_lamb_by_hand():
    # r = (1, -1); r + 0.1 x = (1.3, -0.6), norm sqrt(2.05); |x| = 5; trust ratio 5 / sqrt(2.05) = 3.49215
    (found,) = update(make("lamb", weight_decay=0.1), [variable([3.0, 4.0])], [[1.0, -1.0]])
    np.testing.assert_allclose(found, [3 - 0.0349215 * 1.3, 4 + 0.0349215 * 0.6], rtol=1e-6)


def test_keras_lamb_is_not_the_papers():
    """The reason for our own: Keras decays outside of the trust ratio. Should this fail, use Keras' own."""
    theirs = keras.optimizers.Lamb(0.01, epsilon=1e-6, weight_decay=0.1)
    (found,) = update(theirs, [variable([3.0, 4.0])], [[1.0, -1.0]])
    assert abs(found[0] - (3 - 0.0349215 * 1.3)) > 1e-3


def test_lamb_does_not_scale_biases_and_zeros():
    zero, bias = update(make("lamb"), [variable([0.0, 0.0]), variable([3.0, 4.0], "bias")], [[1.0, -1.0], [1.0, -1.0]])
    np.testing.assert_allclose(zero, [-0.01, 0.01], rtol=1e-5)
    np.testing.assert_allclose(bias, [3 - 0.01, 4 + 0.01], rtol=1e-5)


def test_adafactor_by_hand():
    # beta_2 is 0 at the first update, and the squares have rank 1, so that the update is 1 everywhere; RMS(x) = sqrt(7.5)
    (found,) = update(make("adafactor"), [variable([[1.0, 2.0], [3.0, 4.0]])], [[[1.0, 2.0], [2.0, 4.0]]])
    np.testing.assert_allclose(found, np.array([[1, 2], [3, 4]]) - 0.01 * 7.5**0.5, rtol=1e-6)
    # a weight of 0 moves by epsilon_2
    (found,) = update(make("adafactor"), [variable([0.0, 0.0], "bias")], [[3.0, -3.0]])
    np.testing.assert_allclose(found, [-1e-5, 1e-5], rtol=1e-5)


def test_adafactor_keeps_rows_and_columns_alone():
    optimizer = make("adafactor")
    optimizer.build([variable(np.zeros((30, 50))), variable(np.zeros(7), "bias")])
    assert [tuple(slot.shape) for slot in optimizer.variables[1:]] == [(30,), (50,), (7,)]


def test_keras_adafactor_is_not_the_papers():
    """The reasons for our own: Keras keeps whole second moments, and caps a schedule at 1 / sqrt(n)."""
    theirs = keras.optimizers.Adafactor(keras.optimizers.schedules.CosineDecay(4.0, 10**9))
    kernel = variable([[1.0, 2.0], [3.0, 4.0]])
    (found,) = update(theirs, [kernel], [[[1.0, 2.0], [2.0, 4.0]]])
    np.testing.assert_allclose(found, np.array([[1, 2], [3, 4]]) - 1.0 * 7.5**0.5, rtol=1e-5)  # not 4 * sqrt(7.5)
    assert (2, 2) in {tuple(slot.shape) for slot in theirs.variables}


def adamw_of_the_paper(x, gradients, rate, decay, beta_1, beta_2, epsilon, epsilon_hat):
    """Loshchilov and Hutter, algorithm 2, with the rate on the decay; or with Kingma and Ba's epsilon hat."""
    m = v = 0.0
    for t, g in enumerate(gradients, 1):
        m, v = beta_1 * m + (1 - beta_1) * g, beta_2 * v + (1 - beta_2) * g**2
        one, two = 1 - beta_1**t, (1 - beta_2**t) ** 0.5
        step = two / one * m / (v**0.5 + epsilon) if epsilon_hat else m / one / (v**0.5 / two + epsilon)
        x = x - rate * step - rate * decay * x
    return x


def lamb_of_the_paper(x, gradients, rate, decay, beta_1, beta_2, epsilon):
    """You et al., algorithm 2, with the identity as phi."""
    m = v = 0.0
    for t, g in enumerate(gradients, 1):
        m, v = beta_1 * m + (1 - beta_1) * g, beta_2 * v + (1 - beta_2) * g**2
        r = m / (1 - beta_1**t) / ((v / (1 - beta_2**t)) ** 0.5 + epsilon) + decay * x
        x = x - rate * np.sqrt((x**2).sum()) / np.sqrt((r**2).sum()) * r
    return x


def adafactor_of_the_paper(x, gradients, rate, decay, beta_2_decay, epsilon_1, epsilon_2, clip_threshold):
    """Shazeer and Stern, algorithm 4, with sums as it has them; then the decay."""

    def rms(y):
        return np.sqrt((y**2).mean())

    rows = columns = 0.0
    for t, g in enumerate(gradients, 1):
        beta = 1 - t**beta_2_decay
        square = g**2 + epsilon_1
        rows = beta * rows + (1 - beta) * square.sum(1, keepdims=True)
        columns = beta * columns + (1 - beta) * square.sum(0, keepdims=True)
        u = g / np.sqrt(rows @ columns / rows.sum())
        x = x - max(epsilon_2, rms(x)) * rate * u / max(1, rms(u) / clip_threshold) - rate * decay * x
    return x


@pytest.mark.parametrize(
    ("name", "reference"),
    [("adamw", adamw_of_the_paper), ("lamb", lamb_of_the_paper), ("adafactor", adafactor_of_the_paper)],
)
def test_five_updates_are_the_papers(name, reference):
    generator = np.random.default_rng(0)
    x, gradients = generator.normal(size=(6, 4)), generator.normal(size=(5, 6, 4)) * [[0.1, 1.0, 3.0, 10.0]]
    (found,) = update(make(name, weight_decay=0.1), [variable(x)], *([g] for g in gradients))
    expected = reference(x, gradients, 0.01, 0.1, **OPTIMIZERS[name].defaults)
    np.testing.assert_allclose(found, expected, atol=2e-6)
    assert np.abs(expected - x).max() > 0.01


def test_adamw_adds_epsilon_to_the_corrected_moment():
    """Of a gradient g that stays m^ is g and v^ its square: each update is rate * g / (|g| + epsilon)."""
    gradient = np.array([1e-6, -3e-6, 1.0])
    expected = [-0.01 * 20 * gradient / (np.abs(gradient) + 1e-6)]
    found = update(make(), [variable(np.zeros(3))], *[[gradient]] * 20)
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    corrections = 1e-6 / np.sqrt(1 - 0.999 ** np.arange(1, 21)[:, None])  # what epsilon acts as before the correction
    expected = [(-0.01 * gradient / (np.abs(gradient) + corrections)).sum(0)]
    found = update(make(options={"epsilon_hat": True}), [variable(np.zeros(3))], *[[gradient]] * 20)
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    assert expected[0][0] > -0.03  # where 20 updates of half the rate are -0.1


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [1e-8, 1e-6, 1e-3])
def test_20_updates_of_adamw_are_torchs(epsilon):
    import torch

    generator = np.random.default_rng(2)
    x, gradients = generator.normal(size=(6, 4)), generator.normal(size=(20, 6, 4)) * [[1e-7, 1e-5, 1e-2, 1.0]]
    theirs = torch.nn.Parameter(torch.tensor(x, dtype=torch.float32))
    optimizer = torch.optim.AdamW([theirs], lr=0.01, weight_decay=0.1, eps=epsilon)
    for gradient in gradients:
        theirs.grad = torch.tensor(gradient, dtype=torch.float32)
        optimizer.step()
    (found,) = update(make(options={"epsilon": epsilon}, weight_decay=0.1), [variable(x)], *([g] for g in gradients))
    np.testing.assert_allclose(found, theirs.detach().numpy(), atol=2e-6)
    assert np.abs(found - x).max() > 0.05


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_update_compiles_and_gives_the_same(name):
    import tensorflow as tf

    generator = np.random.default_rng(1)
    weights = [variable(generator.normal(size=(5, 3))), variable(generator.normal(size=3), "bias")]
    twins = [variable(value(weight), weight.name) for weight in weights]
    gradients = [generator.normal(size=weight.shape).astype("float32") for weight in weights]
    plain = make(name, {"ema": 0.9, "not_decayed": ["bias$"]}, weight_decay=0.1)
    compiled = make(name, {"ema": 0.9, "not_decayed": ["bias$"]}, weight_decay=0.1)
    plain.build(weights)
    compiled.build(twins)
    apply = tf.function(lambda *grads: compiled.apply(list(grads), twins), jit_compile=True)
    for _ in range(3):
        plain.apply(gradients, weights)
        apply(*gradients)
    for one, other in zip([*weights, *plain.variables], [*twins, *compiled.variables]):
        np.testing.assert_allclose(value(one), value(other), atol=1e-6)


def test_the_average_follows_the_weights_and_is_lent():
    weight = variable([8.0])
    optimizer = make("adamw", {"ema": 0.5})
    after = [update(optimizer, [weight], [[1.0]])[0][0] for _ in range(3)]
    average = 0.5 * (0.5 * after[0] + 0.5 * after[1]) + 0.5 * after[2]  # starts at the first
    with averaged(optimizer):
        np.testing.assert_allclose(value(weight), [average], rtol=1e-6)
    np.testing.assert_array_equal(value(weight), [after[2]])
    assert after[2] < average
    take_average(optimizer)
    np.testing.assert_allclose(value(weight), [average], rtol=1e-6)


def test_no_average_is_kept_unless_it_is_asked_for():
    weight = variable([8.0])
    optimizer = make()
    update(optimizer, [weight], [[1.0]])
    assert len(optimizer.variables) == 3  # iteration, momentum, velocity
    with averaged(optimizer):
        assert value(weight)[0] == pytest.approx(8 - 0.01)


PATHS = [
    "encoder/embeddings/tokens/table",
    "encoder/embeddings/norm/gamma",
    "encoder/block_0/attention/query/kernel",
    "encoder/block_0/attention/query/bias",
    "encoder/block_1/feedforward_norm/beta",
    "encoder/pooler/kernel",
    "pretraining/heads/mlm/bias",
]


def test_masks_by_path():
    assert decayed(PATHS) == [True, False, True, False, False, True, False]
    assert decayed(PATHS, ["embeddings/", "bias$"]) == [False, False, True, False, True, True, False]
    assert decayed(PATHS, []) == [True] * 7
    # Keras would take the anchor word out of any folder's name
    assert decayed(["alphabeta/bias_free/kernel"]) == [True]


def test_layers_have_their_own_rate():
    # two blocks: heads and pooler 1, block_1 0.8, block_0 0.8^2, embeddings 0.8^3
    expected = [0.512, 0.512, 0.64, 0.64, 0.8, 1.0, 1.0]
    np.testing.assert_allclose(layer_factors(PATHS, 0.8), expected)
    assert layer_factors(PATHS, 1.0) == [1.0] * 7


def test_rate_and_decay_of_a_low_layer_are_smaller():
    layers = keras.Sequential([keras.layers.Dense(1, name="block_0"), keras.layers.Dense(1, name="block_1")])
    layers.build((None, 1))
    kernels = [layer.kernel for layer in layers.layers]
    for kernel in kernels:
        kernel.assign([[1.0]])
    low, high = update(make("adamw", {"layer_decay": 0.5}, weight_decay=0.1), kernels, [[[2.0]], [[2.0]]])
    np.testing.assert_allclose([low[0, 0], high[0, 0]], [1 - 0.0025 * 1.1, 1 - 0.005 * 1.1], rtol=1e-6)


def test_layers_begin_one_after_the_other():
    # two blocks: heads and pooler at once, block_1 after 5 updates, block_0 after 10, embeddings after 15
    assert starts(PATHS, 5) == [15, 15, 10, 10, 5, 0, 0]
    assert starts(PATHS, 0) == [0] * 7
    with pytest.raises(InputError, match="unfreeze needs a model of blocks"):
        starts(["kernel"], 5)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_layer_moves_from_its_start_on_as_in_a_run_that_begins_there(name):
    generator = np.random.default_rng(2)
    layer = keras.layers.Dense(3, name="block_0")
    layer.build((None, 4))
    first = generator.normal(size=(4, 3))
    gradients = generator.normal(size=(7, 4, 3)) * [[[0.1, 1.0, 3.0]]]
    layer.kernel.assign(first)
    late = make(name, weight_decay=0.1, unfreeze=3)
    for i, gradient in enumerate(gradients):
        if i == 3:  # weight and moments have stood still
            np.testing.assert_array_equal(value(layer.kernel), first.astype("float32"))
        update(late, [layer.kernel], [gradient])
    begun = keras.Variable(first.astype("float32"), name="kernel")
    update(make(name, weight_decay=0.1), [begun], *([gradient] for gradient in gradients[3:]))
    np.testing.assert_array_equal(value(layer.kernel), value(begun))
    assert np.abs(value(begun) - first).max() > 0.01


def test_what_waits_is_no_part_of_the_norm_that_is_clipped():
    layers = [keras.layers.Dense(1, name="block_0"), keras.layers.Dense(1, name="head")]
    for layer in layers:
        layer.build((None, 1))
    optimizer = make(unfreeze=1)
    optimizer.build([layer.kernel for layer in layers])
    assert [value(g).item() for g in optimizer.begun([np.float32(3), np.float32(4)])] == [0.0, 4.0]
    optimizer.iterations.assign(1)
    assert [value(g).item() for g in optimizer.begun([np.float32(3), np.float32(4)])] == [3.0, 4.0]


def test_epsilon_hat_is_keras_adam_to_the_bit():
    """With betas that float32 has exactly: Keras takes 1 - beta of Python's, TensorFlow's kernel of float32's."""
    generator, betas = np.random.default_rng(3), {"beta_1": 0.875, "beta_2": 1 - 2.0**-10}
    start, gradients = generator.normal(size=(5, 3)), generator.normal(size=(4, 5, 3))
    ours, theirs = variable(start), variable(start)
    update(make(options={"epsilon_hat": True, **betas}), [ours], *([g] for g in gradients))
    update(keras.optimizers.AdamW(0.01, epsilon=1e-6, weight_decay=0.0, **betas), [theirs], *([g] for g in gradients))
    np.testing.assert_array_equal(value(ours), value(theirs))


@pytest.mark.parametrize("shape", [(1,), (7,), (257, 129)])
def test_the_kernel_of_adam_is_single_operations_to_the_bit(shape):
    generator = np.random.default_rng(4)
    arrays = [generator.normal(size=shape), generator.normal(size=shape), generator.random(shape)]
    kernel, plain = ([variable(x) for x in arrays] for _ in range(2))
    for n in range(1, 5):
        gradient = (generator.normal(size=shape) * 10.0 ** generator.integers(-8, 3, shape)).astype("float32")
        scalars = {"betas": [0.9, 0.999], "powers": [0.9**n, 0.999**n], "rate": [1e-3], "epsilon": [1e-8]}
        scalars = {name: keras.ops.unstack(np.array(x, "float32")) for name, x in scalars.items()}
        scalars |= {name: scalars[name][0] for name in ("rate", "epsilon")}
        adam(kernel[0].value, *kernel[1:], gradient, **scalars)
        adam_plainly(*plain, gradient, **scalars)
    for one, other in zip(kernel, plain):
        np.testing.assert_array_equal(value(one), value(other))


def test_adamw_follows_float64_to_float32s_precision():
    """1 - beta and 1 - beta^n are of the same beta: an update is 1e-6 off at most, where Keras' are 1e-5."""
    generator = np.random.default_rng(5)
    gradients = np.abs(generator.normal(size=(30, 50))) + 0.1  # of one sign, for what cancels is less precise
    (found,) = update(make(), [variable(np.zeros(50))], *([g] for g in gradients))
    expected = adamw_of_the_paper(0.0, gradients, 0.01, 0.0, **AdamW.defaults)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_unfreezing_longer_than_the_run_is_refused():
    layer = keras.layers.Dense(1, name="block_0")
    layer.build((None, 1))
    with pytest.raises(
        InputError,
        match="unfreeze: 10 updates pass before all layers are trained, the run has 10: take at most 9 updates a layer",
    ):
        check_rules(SimpleNamespace(steps=10, optimizer_options={}, unfreeze=10), [layer.kernel])
    check_rules(SimpleNamespace(steps=10, optimizer_options={}, unfreeze=9), [layer.kernel])


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("adamv", {}, "no optimizer 'adamv'. Nearest: 'adamw'. All: adamw, lamb, adafactor"),
        ("lamb", {"beta2": 0.9}, "optimizer 'lamb' has no option 'beta2'. Nearest: 'beta_2'"),
        ("adafactor", {"beta_2": 0.9}, "optimizer 'adafactor' has no option 'beta_2'. Nearest: 'beta_2_decay'"),
        ("adamw", {"epsilon_hat": 1}, "epsilon_hat of optimizer 'adamw' must be true or false. Received: 1"),
        ("lamb", {"epsilon_hat": True}, "optimizer 'lamb' has no option 'epsilon_hat'. Nearest: 'epsilon'"),
        ("adamw", {"beta_1": 1.0}, "beta_1 of optimizer 'adamw' must be from 0 to 1. Received: 1.0"),
        ("adamw", {"layer_decay": 0}, "layer_decay of optimizer 'adamw' must be from 1e-09 to 1. Received: 0"),
        ("adamw", {"ema": "0.9"}, "ema of optimizer 'adamw' must be from 0 to 1. Received: '0.9'"),
        ("adamw", {"not_decayed": "bias"}, "not_decayed must be a list of regular expressions. Received: 'bias'"),
        ("adamw", {"not_decayed": ["("]}, r"not_decayed: '\(' is not a regular expression"),
    ],
)
def test_mistakes(name, options, message):
    with pytest.raises(InputError, match=message):
        make(name, options)


def test_a_mask_that_finds_nothing_is_a_mistake():
    with pytest.raises(InputError, match="not_decayed: 'biass' is in no weight's path, such as 'kernel'"):
        make("adamw", {"not_decayed": ["biass"]}).build([variable([1.0])])


def test_rates_by_layer_need_layers():
    with pytest.raises(InputError, match="layer_decay needs a model of blocks"):
        make("adamw", {"layer_decay": 0.5}).build([variable([1.0])])


def test_adamw_refuses_negative_settings():
    with pytest.raises(InputError, match="learning_rate must be at least 0. Received: -1.0"):
        optimizers.adamw(learning_rate=-1.0, steps=3)
