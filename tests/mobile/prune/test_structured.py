"""What is cut out is gone, and the rest computes what the model computed with it masked."""

import numpy as np
import pytest
import tensorflow as tf

import kerasbert as kb
from kerasbert.checkpoints import load_encoder, save_model
from kerasbert.errors import InputError
from kerasbert.layers.naming import names
from kerasbert.mobile import prune
from kerasbert.mobile.prune import rewrite
from kerasbert.mobile.prune.importance import importance, least, normalised
from kerasbert.mobile.prune.slices import Cut
from kerasbert.spec import Spec
from kerasbert.tasks.batches import encode_texts
from kerasbert.tasks.task import Rows
from kerasbert.testing.battery import Subject, eagerly
from tests.mobile.prune.conftest import SETTINGS, vectors
from tests.models.cover import families
from tests.tiny import sentences

HEADS = {"attention.heads": 4, "attention.head_size": 4}


def saved(subject, folder):
    encoder = subject.encoder()
    generator = np.random.default_rng(2)
    for weight in encoder.weights:
        if weight.path.endswith("bias"):
            weight.assign(generator.normal(0, 0.2, weight.shape))
    save_model(folder, encoder=encoder, name=subject.name, tokenizer=subject.tokenizer)
    return encoder


def same(one, folder):
    other, info = load_encoder(folder)
    assert info.spec == other.spec
    for queries in (None, "first"):
        expected, received = (vectors(model, sentences(4, 0), queries) for model in (one, other))
        np.testing.assert_allclose(received, expected, atol=5e-6)
    return other


def mask_rows(encoder, name, rows):
    kernel = names(encoder)[name]
    value = kernel.value.numpy()
    value[rows] = 0
    kernel.assign(value)


def test_heads_that_share_their_keys_are_refused(tmp_path):
    subject = Subject("eurobert", tmp_path, **HEADS, key_heads=2)
    saved(subject, tmp_path / "m")
    with pytest.raises(InputError, match="heads of layer 1 share keys and values: take out neurons or layers"):
        prune.heads(tmp_path / "m", out=tmp_path / "h", remove={1: [0]})
    assert not (tmp_path / "h").exists()


def test_heads_are_taken_out(tmp_path):
    subject = Subject("bert", tmp_path, **HEADS)
    encoder = saved(subject, tmp_path / "m")
    report = prune.heads(tmp_path / "m", out=tmp_path / "h", remove={0: [1, 2], 1: [0]})
    mask_rows(encoder, "block_0/attention/output/kernel", slice(4, 12))
    mask_rows(encoder, "block_1/attention/output/kernel", slice(0, 4))
    other = same(encoder, tmp_path / "h")
    assert report["heads"] == [2, 3]
    assert report["removed"] == {0: [1, 2], 1: [0]}
    assert (other.spec.attention.heads, other.spec.head_size) == ((2, 3), 4)
    assert report["parameters"][0] - report["parameters"][1] == 3 * (4 * 4 * 16 + 3 * 4)


@pytest.mark.parametrize("share", ["attention", "ffn"])
def test_layers_are_taken_out_of_a_model_that_shares(tmp_path, share):
    subject = Subject("bert", tmp_path, **{"blocks.layers": 3, "blocks.share": share})
    encoder = saved(subject, tmp_path / "m")
    prune.layers(tmp_path / "m", out=tmp_path / "l", keep=[1, 2])
    encoder.blocks = encoder.blocks[1:]
    same(encoder, tmp_path / "l")


@pytest.mark.parametrize("name", families("cut"))
def test_every_family_is_cut(name, tmp_path):
    subject = Subject(name, tmp_path, **HEADS, **{"blocks.layers": 3})
    if name == "mpnet":  # the heads of all layers have one table of distances
        with pytest.raises(InputError, match="one number of heads"):
            check_cut(subject, tmp_path)
        return
    check_cut(subject, tmp_path)


def test_a_model_without_biases_is_cut(tmp_path):
    check_cut(Subject("bert", tmp_path, **HEADS, **{"blocks.layers": 3, "blocks.bias": False}), tmp_path)


def check_cut(subject, tmp_path):
    """Heads, neurons of every network, and the second of three layers."""
    encoder = saved(subject, tmp_path / "m")
    info, tensors = rewrite.read(tmp_path / "m")
    cut = Cut(info.spec, tensors)
    shared = subject.spec.blocks.share == "all"
    gone = {network: [number, number + 3] for number, network in enumerate(cut.networks())}
    removed = {0: [1, 2]} if shared else {0: [1, 2], 2: [0]}
    done = cut.without_neurons(gone).without_heads(removed).with_layers([2, 0])
    rewrite.write(tmp_path / "m", tmp_path / "w", info, done.spec, done.tensors, subject.tokenizer, False)
    for network, neurons in gone.items():
        mask_rows(encoder, f"{network}/outer/kernel", neurons)
    for layer, heads in removed.items():
        rows = [row for head in heads for row in range(head * 4, head * 4 + 4)]
        mask_rows(encoder, f"block_{layer}/attention/output/kernel", rows)
    encoder.blocks = [encoder.blocks[0], encoder.blocks[2]]
    other = same(encoder, tmp_path / "w")
    assert other.spec.blocks.layers == 2
    assert other.spec.attention.heads == (2 if shared else (2, 3))
    assert other.spec.feedforward.width == subject.spec.feedforward.width - 2


def test_importance_is_the_gradient_of_a_gate(finetuned, files):
    """Against a gate built into the model: what a head gives to the output's kernel, times xi = 1, by finite differences."""
    model = kb.load(finetuned("bert", **HEADS, **{"blocks.layers": 1}))
    rows = Rows(["the good cat", "a bad dog runs"], np.array([1, 0], "int32"))
    name = "block_0/attention/output/kernel"
    found = importance(model, rows, {name: 4, "block_0/feedforward/outer/kernel": 24}, 16)
    assert [value.shape for value in found.values()] == [(4,), (24,)]
    kernel = names(model.encoder)[name]
    value, expected = kernel.value.numpy(), np.zeros(4)
    encoded = encode_texts(model.tokenizer, rows.texts, 16)
    for i, target in enumerate(rows.targets):
        inputs = {part: tf.convert_to_tensor(array) for part, array in encoded.arrays([i], 16).items()}
        for head in range(4):
            losses = []
            for gate in (1.02, 0.98):
                changed = value.copy()
                changed[4 * head : 4 * head + 4] *= gate
                kernel.assign(changed)
                losses.append(-tf.nn.log_softmax(tf.cast(model(inputs)["logits"], tf.float64))[0, target].numpy())
            expected[head] += abs(losses[0] - losses[1]) / 0.04 / 2
    kernel.assign(value)
    np.testing.assert_allclose(found[name], expected, rtol=0.02, atol=1e-6)


def test_which_groups_go_by_hand():
    scores = {"a": np.array([0.1, 0.5, 0.2]), "b": np.array([0.3, 0.3])}
    assert least(scores, 2, evenly=False) == {"a": [0, 2], "b": []}
    assert least(scores, 3, evenly=False) == {"a": [0, 2], "b": [0]}
    assert least(scores, 9, evenly=False) == {"a": [0, 2], "b": [0]}  # one of each is left
    assert least(scores, 1, evenly=True) == {"a": [0], "b": [0]}
    np.testing.assert_allclose(normalised(np.array([3.0, 4.0])), [0.6, 0.8])
    assert normalised(np.zeros(2)).tolist() == [0, 0]


@pytest.mark.slow
def test_the_least_important_heads_go(finetuned, files, tmp_path):
    run = finetuned("bert", **HEADS)
    model = kb.load(run)
    # heads that give nothing: the first of layer 0, the last two of layer 1
    for layer, rows in ((0, slice(0, 4)), (1, slice(8, 16))):
        mask_rows(model.encoder, f"block_{layer}/attention/output/kernel", rows)
    parts = {"name": "bert/base", "tokenizer": model.tokenizer, "task": model.task.to_json(), "labels": model.labels}
    save_model(tmp_path / "m", encoder=model.encoder, heads=model.heads, **parts)
    report = prune.heads(tmp_path / "m", files, out=tmp_path / "h", share=3 / 8, rounds=2, rows=4)
    assert report["removed"] == {0: [0], 1: [2, 3]}
    assert report["heads"] == [3, 2]
    texts = ["the good cat", "a bad dog runs"]
    for one, other in zip(kb.predict(tmp_path / "m", texts), kb.predict(tmp_path / "h", texts)):
        assert one.scores == pytest.approx(other.scores, abs=1e-6)
    # it is fine-tuned further, with its head
    with eagerly():
        again = kb.finetune(
            tmp_path / "h",
            model.task,
            files,
            out=tmp_path / "f",
            steps=1,
            keep_head=True,
            **SETTINGS | {"learning_rate": 0.0},
        )
    assert again.spec.attention.heads == (3, 2)
    assert kb.predict(again, texts)[0].scores == pytest.approx(kb.predict(tmp_path / "h", texts)[0].scores, abs=1e-6)


@pytest.mark.slow
def test_a_cut_model_becomes_a_tflite(finetuned, files, tmp_path):
    from kerasbert import mobile

    run = finetuned("mobilebert", **HEADS)
    prune.heads(run, files, out=tmp_path / "h", share=0.4, rows=4)
    prune.width(tmp_path / "h", files, out=tmp_path / "w", share=0.25, rows=4)
    spec = kb.load(tmp_path / "w").spec
    assert sum(spec.per_layer(spec.attention.heads, i) for i in range(2)) == 5
    assert spec.feedforward.width < kb.load(run).spec.feedforward.width
    report = mobile.compress(tmp_path / "w", "float32", tmp_path / "w.tflite", lengths=[16])
    assert report["max_difference"] < 1e-5


def cut(**changes) -> Cut:
    spec = Spec().derive({"hidden": 8, "blocks.layers": 2, "attention.heads": 2, "feedforward.width": 3} | changes)
    tensors = {}
    for i in range(2 if spec.blocks.share == "none" else 1):
        for part in ("query", "key", "value", "output"):
            tensors[f"block_{i}/attention/{part}/kernel"] = np.zeros((8, 8), "float32")
            tensors[f"block_{i}/attention/{part}/bias"] = np.zeros(8, "float32")
        tensors |= {f"block_{i}/feedforward/{n}": np.zeros(s) for n, s in (("inner/kernel", (8, 3)), ("inner/bias", 3))}
        tensors[f"block_{i}/feedforward/outer/kernel"] = np.zeros((3, 8))
    return Cut(spec, tensors)


@pytest.mark.parametrize(
    ("method", "argument", "message"),
    [
        ("without_heads", {2: [0]}, "no attention of its own in layer 2, expected 0 to 1"),
        ("without_heads", {0: [2]}, "no head of layer 0 has number 2, expected 0 to 1"),
        ("without_heads", {0: [-1]}, "no head of layer 0 has number -1, expected 0 to 1"),
        ("without_heads", {0: [1, 1]}, "a head of layer 0 is given twice: 1, 1"),
        ("without_heads", {1: [0, 1]}, "layer 1 would lose all of its 2 heads: keep at least one"),
        (
            "without_neurons",
            {"block_0/feedforward": [3]},
            "no neuron of block_0/feedforward has number 3, expected 0 to 2",
        ),
        ("without_neurons", {"block_0/feedforward": [0, 1, 2]}, "block_0/feedforward would lose all of its 3 neurons"),
        (
            "without_neurons",
            {"block_7/feedforward": [0]},
            "no feed-forward network 'block_7/feedforward', expected one of",
        ),
        ("with_layers", [2], "no layer has number 2, expected 0 to 1"),
        ("with_layers", [], "all 2 layers would go: keep at least one"),
        ("with_layers", [0, 0], "a layer is given twice: 0, 0"),
    ],
)
def test_bad_numbers(method, argument, message):
    with pytest.raises(InputError, match=message):
        getattr(cut(), method)(argument)


def test_shared_attention_is_layer_0():
    shared = cut(**{"blocks.share": "all"})
    assert shared.without_heads({0: [1]}).spec.attention.heads == 1
    with pytest.raises(InputError, match="no attention of its own in layer 1, expected 0: all layers share it"):
        shared.without_heads({1: [0]})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"share": 0}, "share must be between 0 and 1, such as 0.33. Received: 0"),
        ({"share": 1.0}, "share must be between 0 and 1"),
        ({"share": 0.5, "rounds": 0}, "rounds must be a whole number of at least 1. Received: 0"),
        ({"share": 0.5, "remove": {0: [1]}}, "remove and share are both given, expected one"),
        ({"share": 0.5, "data": None}, "no data, expected labelled rows of the task"),
    ],
)
def test_bad_settings(finetuned, files, tmp_path, arguments, message):
    with pytest.raises(InputError, match=message):
        prune.heads(finetuned("bert", **HEADS), **{"data": files, "out": tmp_path / "h"} | arguments)
    assert not (tmp_path / "h").exists()


def test_a_full_place_is_refused_at_once(finetuned, files, tmp_path):
    (tmp_path / "mine").touch()
    for function, arguments in (
        (prune.heads, {"data": files, "share": 0.5}),
        (prune.width, {"data": files, "share": 0.5}),
        (prune.layers, {"keep": [0]}),
    ):
        with pytest.raises(InputError, match="exists already and was not written by kerasbert"):
            function(finetuned("bert", **HEADS), out=tmp_path, **arguments)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_an_encoder_has_no_loss(tmp_path):
    saved(Subject("bert", tmp_path), tmp_path / "m")
    with pytest.raises(InputError, match="is not fine-tuned, and importance is measured by a task's loss"):
        prune.heads(tmp_path / "m", tmp_path, out=tmp_path / "h", share=0.5)
