"""Transformer-XL: counts, names, what is seen, what is refused. Parity: tests/checkpoints/test_parity_transformer_xl.py."""

import numpy as np
import pytest
import tensorflow as tf

from kerasbert import models, registry
from kerasbert.cli import main
from kerasbert.errors import InputError
from kerasbert.layers.memory import Memory
from kerasbert.layers.naming import names
from kerasbert.models.transformer_xl import Recurrence, flops, kept
from kerasbert.testing import battery
from kerasbert.testing.generating import check_steps
from kerasbert.testing.weights import check_names
from tests.models.test_generating import of_attention, tiny

WORDS = 267735
ALONE = pytest.mark.filterwarnings("ignore:.*using a softmax over axis -1 of a tensor")  # a segment of one token


def model(**changes):
    """Two layers, 60 tokens, weights far from zero."""
    made = tiny("transformer-xl/base", **{"blocks.layers": 2, "memory.length": 3, "dropout": 0.0} | changes)
    draw = np.random.default_rng(0)
    for weight in made.weights:
        weight.assign(draw.normal(0, 0.4, weight.shape))
    return made


def ids(rows: int, length: int, seed: int = 0):
    return np.random.default_rng(seed).integers(0, 60, (rows, length)).astype("int32")


def read(made, tokens, lengths, about=None):
    """The last segment's vectors, and the memory behind it."""
    memory, outputs = None, None
    for part in np.split(tokens, np.cumsum(lengths)[:-1], axis=1):
        outputs, memory = made.read({"token_ids": part}, memory, about)
    return np.asarray(outputs["sequence"]), memory


def test_counts_written_out():
    """151M in table 1 (base); the released large one, of which table 1 says 257M, has 18 layers and more."""
    family = registry.family("transformer-xl")

    def layer(hidden, inner, width):
        attention = 3 * hidden * inner + hidden * inner + inner * hidden + 2 * inner  # q k v, W_r, output, u and v
        return attention + hidden * width + width + width * hidden + hidden + 2 * 2 * hidden

    base = WORDS * 410 + 16 * layer(410, 10 * 41, 2100)
    base += WORDS + 3 * 410 + 3  # the output's biases, three tails
    assert base == 151_119_838
    tables = 20_000 * 1024 + 20_000 * 256 + 160_000 * 64 + 67_735 * 16
    projections = 1024 * (1024 + 256 + 64 + 16) + 1024 * 1024  # of the input, and the head's own
    large = tables + projections + 18 * layer(1024, 16 * 64, 4096) + WORDS + 3 * 1024 + 3
    assert large == 285_205_322
    assert large - 2 * layer(1024, 1024, 4096) == 257_919_818  # 16 layers
    for size, count in (("base", base), ("large", large)):
        assert models.parameters(family.encoder, family.size(size)) == count
        assert {row["name"]: row["parameters"] for row in registry.shipped()["models"]}[
            f"transformer-xl/{size}"
        ] == count


def test_weight_names_are_public():
    block = [f"block_0/{part}_norm/{leaf}" for part in ("attention", "feedforward") for leaf in ("gamma", "beta")]
    block += [*of_attention("block_0/attention", "kernel"), "block_0/attention/position/kernel"]
    block += [f"block_0/attention/{part}_bias" for part in ("content", "position")]
    block += [f"block_0/feedforward/{part}/{leaf}" for part in ("inner", "outer") for leaf in ("kernel", "bias")]
    assert sorted(names(tiny("transformer-xl/base"))) == sorted([*block, "embeddings/tokens/table", "output/bias"])
    large = {"adaptive.cutoffs": (20, 40), "adaptive.div_val": 4}
    clusters = [f"embeddings/tokens_{i}/table" for i in range(3)]
    clusters += [f"embeddings/projection_{i}/kernel" for i in range(3)] + [f"output/bias_{i}" for i in range(3)]
    clusters += ["output/tail_kernel", "output/tail_bias", "output/projection/kernel"]
    assert sorted(names(tiny("transformer-xl/large", **large))) == sorted([*block, *clusters])


# What is seen


@ALONE
@pytest.mark.parametrize("clamp", [None, 2])
def test_segments_with_a_long_memory_are_one_text(clamp):
    """Where the memory holds all that stands before, segments give what the whole gives."""
    made, tokens = model(**{"memory.length": 50, "memory.clamp": clamp}), ids(2, 11)
    whole = np.asarray(made({"token_ids": tokens})["sequence"])
    for lengths in ((4, 4, 3), (1, 9, 1)):
        np.testing.assert_allclose(read(made, tokens, lengths)[0], whole[:, -lengths[-1] :], rtol=0, atol=1e-5)


@ALONE
@pytest.mark.parametrize("length", [1, 3])
def test_the_context_is_layers_times_memory(length):
    """Segments of one token, two layers: a token sees those up to 2 M before it, and none before those."""
    made, tokens = model(**{"memory.length": length}), np.repeat(ids(1, 10), 10, axis=0)
    tokens[np.arange(9), np.arange(9)] += 1  # row i differs at place i, the last one nowhere
    found = read(made, tokens % 60, (1,) * 10)[0][:, 0]
    assert (np.abs(found[:9] - found[9]).max(axis=1) > 1e-5).tolist() == [9 - place <= 2 * length for place in range(9)]


def test_the_context_of_longer_segments():
    """Segments of 3, memory of 3: the first token of the third sees 3 places a layer, the whole first segment."""
    made, tokens = model(**{"memory.length": 3}), ids(1, 9)
    expected, memory = read(made, tokens, (3, 3, 3))
    for place, reach in ((0, True), (3, True)):
        other = tokens.copy()
        other[0, place] = (other[0, place] + 1) % 60
        assert bool((read(made, other, (3, 3, 3))[0][:, 0] != expected[:, 0]).any()) == reach
    later = tokens.copy()
    later[0, 8] = (later[0, 8] + 1) % 60
    found, after = read(made, later, (3, 3, 3))
    np.testing.assert_array_equal(found[:, :2], expected[:, :2])  # nothing is seen ahead
    assert all(
        (one[:, :2] == other[:, :2]).numpy().all() for one, other in zip(memory.layers, after.layers, strict=True)
    )


def test_the_memory_has_no_gradient():
    """The second segment's loss gives the table of tokens no gradient for what stood in the first alone."""
    made = model(**{"embeddings.vocabulary": 60})
    first, second = np.array([[1, 2, 3]], "int32"), np.array([[4, 5, 6]], "int32")
    with tf.GradientTape() as tape:
        _, memory = made.read({"token_ids": first})
        outputs, _ = made.read({"token_ids": second}, memory)
        loss = tf.reduce_sum(outputs["sequence"] ** 3)
    gradient = tf.convert_to_tensor(tape.gradient(loss, made.embeddings.tokens.table.value)).numpy()
    assert np.abs(gradient[[4, 5, 6]]).max(1).min() > 0
    assert not gradient[[1, 2, 3]].any()


def test_same_length_lets_every_token_see_as_many():
    made, tokens = model(**{"memory.length": 4}), ids(1, 12)
    about = Recurrence(4, same_length=True)
    visible = np.asarray(made.visible({"token_ids": tokens[:, :4]}, Memory((tf.zeros((1, 4, 16)),)), about))
    expected = [[i < j <= i + 4 for j in range(8)] for i in range(4)]
    np.testing.assert_array_equal(visible[0], expected)
    # so it does not matter where a segment ends
    one, other = (read(made, tokens, lengths, about)[0][:, -1] for lengths in ((4, 4, 4), (3, 4, 5)))
    np.testing.assert_allclose(one, other, rtol=0, atol=1e-5)
    assert np.abs(one - read(made, tokens, (4, 4, 4))[0][:, -1]).max() > 1e-3


def test_a_memory_of_fixed_places_is_the_one_that_grows():
    made, tokens = model(**{"memory.length": 5}), ids(2, 8)
    grown, fixed = None, Memory.empty(2, 5, 2, 16, "float32")
    for part in np.split(tokens, 4, axis=1):
        one, grown = made.read({"token_ids": part}, grown)
        other, fixed = made.read({"token_ids": part}, fixed)
        np.testing.assert_allclose(other["sequence"], one["sequence"], rtol=0, atol=1e-5)
    assert fixed.mask.numpy().tolist() == [[1] * 5] * 2


def test_queries_with_a_memory():
    made, tokens = model(), ids(2, 8)
    _, memory = made.read({"token_ids": tokens[:, :4]})
    inputs = {"token_ids": tokens[:, 4:]}
    whole, after = made.read(inputs, memory)
    for queries, picked in (("first", [[0]] * 2), (np.array([[2, 0], [3, 3]], "int32"), None)):
        outputs, again = made.read(inputs, memory, queries=queries)
        expected = np.take_along_axis(np.asarray(whole["sequence"]), np.array(picked or queries)[..., None], axis=1)
        np.testing.assert_allclose(outputs["sequence"], expected, rtol=0, atol=1e-5)
        np.testing.assert_array_equal(again.layers[1], after.layers[1])


# Clusters and other settings pass what the family's own tiny model does

CLUSTERS = {"adaptive.cutoffs": (9, 14), "adaptive.div_val": 2, "memory.clamp": 4, "memory.same_length": True}


@pytest.mark.parametrize("norm", ["post", pytest.param("pre", marks=pytest.mark.slow)])
def test_steps_from_a_cache(norm):
    def relative(one, other):
        return battery.relative(one, other)

    made = model(**CLUSTERS | {"blocks.norm": norm})
    mask = (np.arange(9) < 9 - np.arange(3)[:, None]).astype("int32")
    check_steps(made, {"token_ids": ids(3, 9), "padding_mask": mask}, relative)


@pytest.mark.slow
def test_clusters_are_trained_saved_and_computed_in_half_precision(tmp_path):
    subject = battery.Subject("transformer-xl", tmp_path, **CLUSTERS | {"dropout": 0.0})
    encoder = subject.encoder()
    program = subject.program(encoder)
    batch = subject.batch(program)
    battery.check_spec(subject)
    check_names(program)
    battery.check_bfloat16(subject, encoder, program, batch, compiled=False)
    battery.check_gradients(subject, program, batch, compiled=False)  # compiled: tests/objectives/test_segments.py
    battery.check_saved(subject, encoder, program)
    battery.check_two_steps(program, batch)


def test_estimates():
    spec = registry.find("transformer-xl/base")[1]
    # 4 segments of 150: the memory's keys and values are computed again, scores have two terms over 300 keys
    layer = 2 * 410 * 410 * 6 + 2 * 3 * 410 * 300 + 4 * 410 * 2100
    assert flops(spec, 600, 4, 600) == 3 * (600 * 16 * layer + 600 * 2 * 410 * 20003)
    assert kept(spec, 4, 150, 0) == 600 * 16 * (9 * 410 + 2100 + 2 * 10 * 300)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"memory.length": -1}, "^memory.length must be at least 0. Received: -1$"),
        ({"memory.clamp": 0}, "^memory.clamp must be at least 1, or none for no bound. Received: 0$"),
        (
            {"memory.length": 0, "memory.same_length": True},
            "^memory.same_length lets a token see memory.length tokens, exp",
        ),
        ({"hidden": 15, "attention.heads": 3}, "^hidden must be even, half of a sinusoid are cosines. Received: 15$"),
    ],
)
def test_settings_that_mean_nothing_are_refused(changes, message):
    with pytest.raises(InputError, match=message):
        registry.find("transformer-xl/base")[1].derive(changes)


def test_the_command_line_says_it_in_one_line(capsys):
    assert main(["show", "transformer-xl/base", "--set", "adaptive.cutoffs=[40000,20000]"]) == 2
    assert capsys.readouterr().err == (
        "error: adaptive.cutoffs must ascend between 0 and embeddings.vocabulary 267735. Received: 40000, 20000\n"
    )
