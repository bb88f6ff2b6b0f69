"""CoVe: encoder and attentional decoder in float64 from the equations, what is seen, translation, tasks over its vectors."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

import kerasbert as kb
from kerasbert import mobile, models, registry
from kerasbert import spec as specs
from kerasbert.checkpoints import read_tensors
from kerasbert.checkpoints.vectors import WordVectors, write_vectors
from kerasbert.cli import main
from kerasbert.errors import InputError
from kerasbert.layers import random
from kerasbert.layers.beam_search import generate
from kerasbert.layers.naming import names
from kerasbert.tasks.model import TaskModel
from kerasbert.tasks.task import find_task
from kerasbert.testing import battery
from kerasbert.tpu_check.lower import Step
from kerasbert.training.flops import family_flops
from tests import tiny
from tests.layers.test_recurrent import by_equations, sigmoid
from tests.support import forked


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("cove")


def encoded(model, x, mask):
    """A row of the encoder: the top states [S, U], and of each layer (h, c) behind what it read."""
    ends = []
    for layer in model.recurrent:
        zeros = [np.zeros(layer.ways[0].units, "float32")] * 2
        found = [by_equations(way, x, mask, zeros) for way in layer.ways]
        x = np.concatenate([y for y, _ in found], axis=-1)
        ends.append([np.concatenate(pair) for pair in zip(*(state for _, state in found), strict=True)])
    return x, ends


def written(model, states, mask, ends, z):
    """McCann et al., section 3, equations 2 to 4, place after place.

    h_t = LSTM([z_t-1; h~_t-1], h_t-1); alpha = softmax(H (W1 h_t + b1)); h~_t = tanh(W2 [H^T alpha; h_t] + b2).
    """
    weights = {name: np.float64(weight) for name, weight in names(model.decoder).items()}
    attended, result = np.zeros(states.shape[1]), []
    below = [np.concatenate([weights["kernel"], weights["feed_kernel"]])]
    below += [weights[f"kernel_{i}"] for i in range(1, len(ends))]
    for each in z:
        x = np.concatenate([each, attended])
        for i, (h, c) in enumerate(ends):
            gates = x @ below[i] + h @ weights[f"recurrent_kernel_{i}"] + weights[f"bias_{i}"]
            i_, f, g, o = np.split(gates, 4)
            c = sigmoid(f) * c + sigmoid(i_) * np.tanh(g)
            x = sigmoid(o) * np.tanh(c)
            ends[i] = (x, c)
        scores = states[mask > 0] @ (x @ weights["attention_kernel"] + weights["attention_bias"])
        shares = np.exp(scores - scores.max()) / np.exp(scores - scores.max()).sum()
        seen = np.concatenate([shares @ states[mask > 0], x])
        attended = np.tanh(seen @ weights["output_kernel"] + weights["output_bias"])
        result.append(attended)
    return np.array(result)


def test_it_is_the_equations_in_float64(folder):
    subject = battery.Subject("cove", folder)
    model, inputs = subject.encoder(scale=0.5), subject.inputs()
    for weight in model.weights:
        if "bias" in weight.path:
            weight.assign(np.random.default_rng(1).normal(0, 0.5, weight.shape))
    found = model(inputs)
    assert subject.spec.hidden == model.spec.embeddings.width + model.spec.units
    for row in range(3):
        mask = inputs["padding_mask"][row]
        vectors = np.float64(model.source.table)[inputs["token_ids"][row]]
        states, ends = encoded(model, vectors, mask)
        both = np.concatenate([vectors, states], axis=-1)
        np.testing.assert_allclose(found["encoder_sequence"][row], both, atol=1e-5)
        z = np.float64(model.target.table)[inputs["decoder_token_ids"][row]]
        expected = written(model, states, mask, ends, z)
        np.testing.assert_allclose(found["sequence"][row], expected, atol=1e-5)
        logits = expected @ np.float64(model.softmax.table).T + np.float64(model.softmax.bias)
        np.testing.assert_allclose(model.logits(found["sequence"])[row], logits, atol=1e-4)
    text = {name: inputs[name] for name in ("token_ids", "padding_mask")}
    np.testing.assert_array_equal(model(text)["sequence"], found["encoder_sequence"])


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_gradient_is_that_of_the_loop(folder, monkeypatch, compiled):
    """By hand, plain and compiled, as the automatic one of the loop written out; of the source's states too."""
    subject = battery.Subject("cove", folder, dropout=0.0)
    model, inputs = subject.encoder(scale=0.5), subject.inputs()
    variables = [weight.value for weight in model.weights]

    def differentiate():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.sin(model(inputs)["sequence"]))
        return [tf.convert_to_tensor(each) for each in tape.gradient(loss, variables) if each is not None]

    ours = (tf.function(differentiate, jit_compile=True) if compiled else differentiate)()
    monkeypatch.setattr("kerasbert.layers.recurrence.differentiated", lambda x: False)
    expected = differentiate()
    assert len(expected) == len(variables) - 2  # not those of the softmax
    for one, other in zip(ours, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=3e-5)


def test_a_target_is_not_seen(folder):
    subject = battery.Subject("cove", folder)
    model, inputs = subject.encoder(scale=0.5), subject.inputs(rows=1)
    plain = np.asarray(model(inputs)["sequence"])
    for at in (0, 3, 6):
        other = dict(inputs, decoder_token_ids=inputs["decoder_token_ids"].copy())
        other["decoder_token_ids"][:, at] -= 1
        differs = np.abs(np.asarray(model(other)["sequence"]) - plain).max(-1)[0] > 0
        assert differs.tolist() == [place >= at for place in range(7)]


def test_dropout_is_the_same_on_any_rows_and_leaves_evaluation_alone(folder):
    subject = battery.Subject("cove", folder, dropout=0.5)
    model, inputs = subject.encoder(scale=0.5), subject.inputs()

    def trained(rows):
        with random.scope(tf.constant([0, 1], tf.uint32), tf.constant(rows)):
            return np.asarray(model({name: value[rows] for name, value in inputs.items()}, training=True)["sequence"])

    whole = trained([0, 1, 2])
    np.testing.assert_allclose(trained([2]), whole[2:], atol=1e-6)
    assert np.abs(whole - np.asarray(model(inputs)["sequence"])).max() > 0.05


def test_sizes_by_hand():
    family, spec = registry.find("cove/base")
    encoder = 2 * 4 * 300 * (300 + 300 + 1) + 2 * 4 * 300 * (600 + 300 + 1)
    decoder = 4 * 600 * (300 + 600 + 600 + 1) + 4 * 600 * (600 + 600 + 1) + 600 * 600 + 600 + 1200 * 600 + 600
    assert models.parameters(family.encoder, spec) == 30522 * (300 + 300 + 601) + encoder + decoder
    assert (spec.hidden, family.longest(spec), family.has_blocks) == (900, None, False)
    by_hand = 6 * (10 * (encoder - 4 * 4 * 300) + 8 * (decoder - 2 * 4 * 600 - 1200 + 600 * 30522) + 8 * 1200 * 10)
    assert family_flops(family, spec, 10, 1, 8) == by_hand


def test_a_model_begins_with_vectors(tmp_path, capsys):
    words = ["cat", "dog", "hund"]
    table = np.random.default_rng(0).normal(size=(3, 5)).astype("float32")
    write_vectors(WordVectors(words, table), tmp_path / "glove.txt", "glove")
    line = ["import", str(tmp_path / "glove.txt"), "--model", "cove/base", "--out", str(tmp_path / "made")]
    assert main(line) == 0
    model = kb.load(tmp_path / "made")
    ids = [model.tokenizer.pack(word)[0][1] for word in words]
    np.testing.assert_allclose(model.source.table.numpy()[ids], table, rtol=1e-5)
    assert (model.spec.embeddings.width, model.spec.hidden, model.model_name) == (5, 605, "cove/base")
    vectors = kb.encode(model, ["cat dog", "hund"])
    assert vectors.shape == (2, 605)
    np.testing.assert_allclose(
        vectors[1, :5], np.mean(model.source.table.numpy()[model.tokenizer.pack("hund")[0]], 0), atol=1e-5
    )


PAIRS = [(f"the {one} sees the {two}", f"{two} {one}") for one in tiny.WORDS[:6] for two in tiny.WORDS[6:12]]


@pytest.mark.full
def test_a_translation_is_learnt_and_written_and_its_vectors_are_read(folder, tmp_path):
    """Two words of the source in the other order; Python and the SavedModel write the same; the vectors stay."""
    subject = battery.Subject("cove", folder, 64, dropout=0.0)
    data = {"train": PAIRS * 4, "dev": PAIRS[:9]}
    settings = {"batch": 24, "learning_rate": 1e-2, "length": 16, "quiet": True, "metric": "exact_match"}
    about = {"steps": 80, "evaluate_every": 80, "freeze": ["^source/"]}
    task = dataclasses.replace(find_task("translation"), options={"target_length": 8})
    model = kb.finetune(subject.encoder(seed=3), task, data, out=tmp_path / "run", **settings, **about)
    assert kb.evaluate(model, PAIRS[:9])["metrics"]["exact_match"] > 0.8
    texts = [source for source, _ in PAIRS[:5]]
    answers = kb.predict(tmp_path / "run", texts)
    serve = tf.saved_model.load(str(kb.export(model, tmp_path / "serving", length=16))).signatures["serving_default"]
    served = [text.decode() for text in serve(text=tf.constant(texts))["text"].numpy()]
    assert served == [each.text for each in answers]
    with pytest.raises(InputError, match=r"cove carries a recurrent state, with which no .tflite writes yet: export a"):
        mobile.compress(model, "float32", tmp_path / "x.tflite", length=16, texts=texts)
    before = np.asarray(subject.encoder(seed=3).source.table)
    np.testing.assert_array_equal(read_tensors(tmp_path / "run").read("source/table"), before)


def test_beams_are_steps_of_the_same_numbers(folder):
    """The score of what beams write is that of the call on it."""
    from kerasbert.answers.decoding import Decoding

    subject = battery.Subject("cove", folder)
    model, inputs = subject.encoder(scale=0.7), subject.inputs()
    source = {name: inputs[name] for name in ("token_ids", "padding_mask")}
    decoding = Decoding(beams=3, max_new_tokens=5, length_penalty=0.0, coverage_penalty=0.3)
    plain = dataclasses.replace(decoding, coverage_penalty=0.0)
    tokenizer = subject.tokenizer
    ids = {"start_id": tokenizer.pad_id, "end_id": tokenizer.sep_id, "pad_id": tokenizer.pad_id}
    found = generate(model, source, plain, **ids)
    texts = np.asarray(found["token_ids"])
    read = np.concatenate([np.full((3, 1), tokenizer.pad_id), texts[:, :-1]], axis=1).astype("int32")
    logits = np.asarray(tf.nn.log_softmax(model.logits(model(source | {"decoder_token_ids": read})["sequence"])))
    ended = np.cumsum(texts == tokenizer.sep_id, axis=1)
    real = (ended - (texts == tokenizer.sep_id)) == 0
    scores = (np.take_along_axis(logits, texts[..., None], -1)[..., 0] * real).sum(-1)
    np.testing.assert_allclose(found["score"], scores, atol=1e-4)
    assert (np.asarray(generate(model, source, decoding, **ids)["score"]) < np.asarray(found["score"])).all()


@pytest.mark.slow
def test_a_task_over_its_vectors_goes_to_the_phone(folder, tmp_path):
    from kerasbert.mobile.runtime import load

    subject = battery.Subject("cove", folder)
    model = TaskModel(subject.encoder(scale=1.0), dataclasses.replace(find_task("glue/sst2"), length=16))
    model.build()
    for weight in model.heads["classifier"].weights:
        weight.assign(np.random.default_rng(0).normal(0, 1, weight.shape))
    texts = ["the happy cat", "a bad film sees the dog", "river", "stone the dog"]
    expected = [answer.scores["positive"] for answer in kb.predict(model, texts)]
    mobile.compress(model, "dynamic_int8", tmp_path / "x.tflite", lengths=[16], texts=texts, min_agreement=0.5)
    found = [answer.scores["positive"] for answer in load(tmp_path / "x.tflite", cache=False)(texts)]
    np.testing.assert_allclose(found, expected, atol=0.05)
    assert max(expected) - min(expected) > 0.05


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"recurrence.cell": "gru"}, "recurrence.cell must be lstm"),
        ({"recurrence.layers": 0}, "recurrence must have layers and units"),
        ({"recurrence.units": None}, "recurrence must have layers and units"),
    ],
)
def test_settings_that_mean_nothing_are_refused(changes, message):
    with pytest.raises(InputError, match=message):
        specs.derive(registry.family("cove").spec, changes).validate()


@pytest.mark.full  # two processes and a lowering; the battery and other families stand for it in CI
def test_two_replicas_are_one_and_the_step_lowers_for_a_tpu(folder, tmp_path):
    """Dropout on; MASS's objective stands for any of two stacks."""
    found = {}
    for strategy in ("cpu", "cpu:2"):
        forked("-m", "kerasbert.testing.replicas", strategy, folder, tmp_path / f"{strategy}.npz", "cove")
        found[strategy] = dict(np.load(tmp_path / f"{strategy}.npz"))
    for name, value in found["cpu"].items():
        np.testing.assert_allclose(found["cpu:2"][name], value, rtol=0, atol=1e-6)
    family, base = registry.find("cove/base")
    spec = specs.derive(base, battery.tiny(base, 64))
    lowered = Step(family, spec, length=24, replicas=4, objective="mass").lower(8)
    assert lowered.problems == []
    assert "replica_groups={{0,1,2,3}}" in lowered.text
