"""Losses of vectors beside their formulas in numpy, what is no negative, Matryoshka, and what each refuses."""

import dataclasses
import json

import numpy as np
import pytest

import kerasbert as kb
from kerasbert.errors import InputError
from kerasbert.inputs import row
from kerasbert.tasks import vector_losses
from kerasbert.tasks.base import Task
from kerasbert.tasks.batches import Encoded, training_batches
from kerasbert.tasks.model import TaskModel
from kerasbert.tasks.task import find_task
from kerasbert.training.early import declared
from tests import tiny

DRAW = np.random.default_rng(0)


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def scored(loss, **options):
    return find_task("sts").optioned({"loss": loss, **options})


def pairs(count=6, width=2, hidden=7):
    return DRAW.normal(size=(count, width, hidden)).astype("float32")


def batch(label, weight, texts=None):
    found = {"label": np.array(label, "float32"), "label_weight": np.array(weight, "float32")}
    return found | ({} if texts is None else {"label_texts": np.array(texts, "int32")})


def loss_of(task, vectors, made):
    """`label` of vectors [B, k, H]."""
    return float(task.how.losses(task, vectors.reshape(-1, vectors.shape[-1]), made)["label"])


# The formulas, in float64, of the real inputs; each is the mean over the inputs, as the papers and their code have it


def squared(v, label, **_):
    return np.mean([(unit(a) @ unit(b) - y) ** 2 for (a, b), y in zip(v, label)])


def contrastive(v, label, margin=0.5):
    d = [1 - unit(a) @ unit(b) for a, b in v]
    return np.mean([0.5 * (y * x**2 + (1 - y) * max(0, margin - x) ** 2) for x, y in zip(d, label)])


def ordered(s, label, scale=20.0):
    terms = [np.exp(scale * (s[i] - s[j])) for i in range(len(s)) for j in range(len(s)) if label[i] < label[j]]
    return np.log(1 + sum(terms))


def cosent(v, label, **options):
    return ordered([unit(a) @ unit(b) for a, b in v], label, **options)


def angle(v, label, **options):
    """The paper's: real and imaginary part of the quotient of complex numbers (equations 4 to 7)."""
    found = []
    for x, y in v.astype("float64"):
        x, y = (np.append(z, 0) if len(z) % 2 else z for z in (x, y))
        half = len(x) // 2
        z, w = (each[:half] + 1j * each[half:] for each in (x, y))
        quotient = z * np.conj(w) / (np.linalg.norm(z) * np.linalg.norm(w))
        found.append(abs(quotient.real.sum() + quotient.imag.sum()))
    return ordered(found, label, **options)


@pytest.mark.parametrize(("name", "form"), [("cosine", squared), ("cosent", cosent), ("angle", angle)])
def test_losses_of_scores_are_their_formulas(name, form):
    vectors, label = pairs(), [0.1, 0.9, 0.5, 0.5, 0.0, 0.7]
    expected = form(vectors[:5].astype("float64"), label[:5])
    made = batch(label, [1, 1, 1, 1, 1, 0])
    assert loss_of(scored(name), vectors, made) / 5 == pytest.approx(expected, rel=1e-5)
    if name != "cosine":
        again = form(vectors[:5].astype("float64"), label[:5], scale=3.0)
        assert loss_of(scored(name, scale=3.0), vectors, made) / 5 == pytest.approx(again, rel=1e-5)
        assert again != pytest.approx(expected, rel=0.1)


def test_the_contrastive_loss_is_its_formula():
    vectors, label = pairs(), [1, 0, 1, 0, 0, 1]
    vectors[1, 1] = vectors[1, 0] + 0.1  # alike, and not to be
    for options in ({}, {"margin": 1.2}):
        expected = contrastive(vectors[:5].astype("float64"), label[:5], **options)
        found = loss_of(scored("contrastive", **options), vectors, batch(label, [1, 1, 1, 1, 1, 0]))
        assert found / 5 == pytest.approx(expected, rel=1e-5)


def negatives(loss, **options):
    label = "score" if loss in ("margin_mse", "kl") else ""
    return dataclasses.replace(find_task("pairs"), label=label).optioned({"loss": loss, **options})


TEXTS = [[0, 1, 2, 3], [4, 5, 6, -1], [7, 8, 9, 10]]  # the second has one negative


def test_triplets_and_margins_are_their_formulas():
    v, weight = pairs(3, 4), [1, 1, 0]
    inputs = [(v[0, 0], v[0, 1], v[0, 2:]), (v[1, 0], v[1, 1], v[1, 2:3])]
    for options in ({}, {"margin": 0.3}):
        m = options.get("margin", 5.0)
        wanted = [
            np.mean([max(0, np.linalg.norm(a - p) - np.linalg.norm(a - n) + m) for n in ns]) for a, p, ns in inputs
        ]
        found = loss_of(negatives("triplet", **options), v, batch(np.zeros((3, 2)), weight, TEXTS))
        assert found == pytest.approx(sum(wanted), rel=1e-5)
    label = [[0.5, 1.5], [2.0, 9.0], [9.0, 9.0]]
    wanted = [np.mean([(a @ p - a @ n - y) ** 2 for n, y in zip(ns, label[i])]) for i, (a, p, ns) in enumerate(inputs)]
    assert loss_of(negatives("margin_mse"), v, batch(label, weight, TEXTS)) == pytest.approx(sum(wanted), rel=1e-5)
    short = [(unit(a), unit(p), unit(ns)) for a, p, ns in inputs]  # a model of vectors of length 1 learns by these
    wanted = [np.mean([(a @ p - a @ n - y) ** 2 for n, y in zip(ns, label[i])]) for i, (a, p, ns) in enumerate(short)]
    task = negatives("margin_mse", normalize=True)
    assert loss_of(task, v, batch(label, weight, TEXTS)) == pytest.approx(sum(wanted), rel=1e-5)


@pytest.mark.parametrize("scale", [1.0, 3.0])
def test_a_teachers_softmax_is_its_formula(scale):
    """Of the texts that an input has; margins are the teacher's scores but for one number, which a softmax does not see."""
    v, weight = np.random.default_rng(1).normal(size=(3, 4, 7)).astype("float32"), [1, 1, 0]
    scores, wanted = [[2.0, 1.5, -0.5], [0.3, 1.3], [0.0, 9.0, 9.0]], 0.0
    for known, texts in zip(scores[:2], v.astype("float64")):
        teacher = np.exp(known - np.logaddexp.reduce(known))
        student = scale * texts[1 : 1 + len(known)] @ texts[0]
        wanted += np.sum(teacher * (np.log(teacher) - student + np.logaddexp.reduce(student)))
    label = [[known[0] - each for each in known[1:]] + [7.0] * (3 - len(known)) for known in scores]
    task = negatives("kl", **({} if scale == 1.0 else {"scale": scale}))
    assert loss_of(task, v, batch(label, weight, TEXTS)) == pytest.approx(wanted, rel=1e-5)


def ranking(v, texts, weight, scale=20.0):
    """Cross-entropy among the texts of the batch; a text that is the anchor's, its positive's or an equal anchor's is out."""
    total, hits, real = 0.0, 0, [i for i, w in enumerate(weight) if w]
    for i in real:
        own, scores, place = texts[i], [], None
        for k in range(1, v.shape[1]):
            for j in real:
                mine = (i, 1) == (j, k)
                equal = texts[j][k] in own[:2] or (k == 1 and texts[j][0] == own[0])
                if texts[j][k] >= 0 and (mine or not equal):
                    place = len(scores) if mine else place
                    scores.append(scale * unit(v[i, 0]) @ unit(v[j, k]))
        total += np.log(np.exp(scores).sum()) - scores[place]
        hits += int(np.argmax(scores)) == place
    return total, hits


@pytest.mark.parametrize(
    "texts",
    [
        [[0, 1, 2], [3, 4, -1], [5, 6, 7], [8, 9, 10]],
        [[0, 1, 2], [0, 3, 1], [4, 3, 2], [5, 0, 6]],  # an anchor twice, its positive as a negative, a positive twice
        [[0, 0, -1], [1, 1, -1], [0, 0, -1], [2, 2, -1]],  # texts beside themselves, one of them twice
    ],
)
def test_ranking_is_the_cross_entropy_among_texts_that_are_no_false_negatives(texts):
    v = pairs(4, 3)
    v[2, 1] = v[2, 0]  # one is right
    for weight in ([1, 1, 1, 1], [1, 1, 1, 0]):
        task = find_task("pairs")
        sums = task.how.losses(task, v.reshape(12, 7), batch(np.zeros((4, 1)), weight, texts))
        total, hits = ranking(v.astype("float64"), texts, weight)
        assert float(sums["label"]) == pytest.approx(total, rel=1e-5)
        assert float(sums["label/accuracy"]) == hits


def test_equal_texts_of_a_batch_have_one_number_and_missing_ones_none():
    task = find_task("pairs")
    tokens = [[2, 3], [2, 4], [2, 5], [2, 4], [2, 6], [2, 3], [2, 7], [2, 4]]
    encoded = Encoded(
        [row(t, [0, 0], about=i) for t, i in zip(tokens, (0, 1, 2, 0, 1, 0, 1, 2))], np.array([0, 0, 0, 1, 1, 2, 2, 2])
    )
    made = next(training_batches(encoded, np.ones(3), batch=4, longest=16, seed=0, task=task))
    assert (made["label"].shape, made["token_ids"].shape) == ((4, 1), (12, 16))
    known = {tuple(t[:2]): n for t, n in zip(made["token_ids"].tolist(), made["label_texts"].ravel()) if n >= 0}
    assert len(set(known.values())) == len(known) == 5  # 2,3 and 2,4 are twice or three times there
    assert sorted((made["label_texts"] >= 0).sum(1).tolist()) == [0, 2, 3, 3]
    assert made["label_weight"].tolist() == [1, 1, 1, 0]


@pytest.mark.parametrize("name", ["cosent", "ranking", "margin_mse"])
def test_matryoshka_sums_a_loss_of_the_first_numbers(name):
    task = scored(name) if name == "cosent" else negatives(name)
    v = pairs(4, 2 if name == "cosent" else 3)
    label = [0.1, 0.9, 0.5, 0.3] if name == "cosent" else np.ones((4, 1))
    made = batch(label, [1, 1, 1, 1], np.arange(v.shape[0] * v.shape[1]).reshape(v.shape[:2]))
    each = [loss_of(task, unit(v[..., :d]), made) for d in (7, 4, 2)]
    whole = task.optioned({"dims": [2, 7, 4]})
    assert loss_of(whole, v, made) == pytest.approx(sum(each), rel=1e-5)
    if name == "ranking":
        flat = v.reshape(-1, 7)
        hits = [float(t.how.losses(t, flat, made)["label/accuracy"]) for t in (whole, task)]
        assert hits[0] == hits[1]  # of the widest


def softmax(x):
    found = np.exp(x - x.max(-1, keepdims=True))
    return found / found.sum(-1, keepdims=True)


def test_the_loss_of_several_layers_is_its_formula():
    """The last layer's loss, the mean of the others', and .3 KL of each; an input that fills up and a text that is none."""
    task, layers = find_task("pairs").optioned({"depths": [2, 1], "dims": [7, 4]}), [pairs(4, 3) for _ in range(3)]
    made = batch(np.ones((4, 1)), [1, 1, 1, 0], np.arange(12).reshape(4, 3))
    made["label_texts"][1, 2] = made["label_texts"][3] = -1
    stacked = np.stack(layers, axis=2).reshape(12, 3, 7)
    found = task.how.losses(task, stacked, made)
    each = [vector_losses.sums(task.how.options, v, made) for v in layers]
    apart = 0.0
    for other in layers[1:]:
        p, q = (softmax(v.astype("float64") / 0.3) for v in (layers[0], other))
        texts = (p * np.log(p / q)).sum(-1)
        apart += 0.3 * (texts[0].mean() + texts[1, :2].mean() + texts[2].mean())
    expected = float(each[0]["label"]) + sum(float(one["label"]) for one in each[1:]) / 2 + apart
    assert float(found["label"]) == pytest.approx(expected, rel=1e-5)
    assert float(found["label/accuracy"]) == float(each[0]["label/accuracy"])  # of the last layer


def test_the_last_layer_does_not_learn_from_those_below():
    import tensorflow as tf

    task = find_task("sts").optioned({"loss": "cosine", "depths": [1]})
    made = batch([0.5, 0.5], [1, 1], np.arange(4).reshape(2, 2))
    v = tf.constant(DRAW.normal(size=(4, 2, 5)).astype("float32"))
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(v)
        both = task.how.losses(task, v, made)["label"]
        last = task.how.losses(task, v[:, 0], made)["label"]
    both, last = (tape.gradient(each, v).numpy() for each in (both, last))
    np.testing.assert_allclose(both[:, 0], last[:, 0], atol=1e-6)
    assert np.abs(both[:, 1]).min() > 1e-4


def test_each_loss_has_finite_gradients_where_vectors_are_equal_or_0():
    import tensorflow as tf

    for name, loss in vector_losses.LOSSES.items():
        v = tf.constant(np.concatenate([np.zeros((1, 3, 4)), np.ones((2, 3, 4))]).astype("float32"))
        v = v if loss.ranked else v[:, :2]
        made = batch(
            np.zeros((3, 1)) if loss.ranked else [0, 1, 1], [1, 1, 1], np.arange(3 * v.shape[1]).reshape(3, -1)
        )
        with tf.GradientTape() as tape:
            tape.watch(v)
            options = {"loss": name, "scale": 0.0, "margin": 0.0, "dims": ()}
            value = vector_losses.sums(options, v, made)["label"]
        assert np.isfinite(float(value)), name
        assert np.isfinite(tape.gradient(value, v).numpy()).all(), name


def test_what_a_loss_does_not_learn_from_is_refused():
    for task, message in (
        (find_task("pairs").optioned({"loss": "cosent"}), "the loss cosent learns from two texts and a score: the columns .*"
         "sentence1, sentence2 and score of --task sts.*; the task pairs has no column of scores"),
        (find_task("pairs").optioned({"loss": "margin_mse"}), "learns from a text, .* negative of --task pairs with --label-col"),
        (find_task("sts").optioned({"loss": "triplet"}), "columns anchor, positive and negative .*; it would not read 'score'"),
        (find_task("sts").optioned({"loss": "simcse"}), "learns from texts alone, .*--task simcse; the task is sts"),
        (find_task("simcse").optioned({"loss": "cosine"}), "learns from two texts and a score.*; the task is simcse"),
        (find_task("pairs", label="score"), "the loss ranking learns from texts that belong together"),
        (scored("cosine", scale=3.0), "scale is of the losses cosent, .*, ranking, kl, received it with the loss cosine"),
        (negatives("ranking", margin=3.0), "margin is of the losses contrastive, triplet, received it with the loss ranking"),
        (negatives("triplet", margin=0.0), "margin must be more than 0. Received: 0.0"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=message):
            task.how.check_metric(task)
    for options, message in (
        ({"dims": [4, 4]}, "dims must be different whole numbers above 0"),
        ({"dims": [0]}, "dims must be different whole numbers above 0"),
        ({"scale": -1.0}, "scale must be more than 0. Received: -1.0"),
    ):
        with pytest.raises(InputError, match=message):
            find_task("sts").optioned(options)


def test_options_of_a_fine_tuning_name_the_loss_and_the_widths():
    from kerasbert.training.config import FinetuneConfig

    config = FinetuneConfig(out="x", loss="cosent", dims=(16, 8))
    assert declared("sts", config)[0].options == {"loss": "cosent", "dims": [16, 8]}
    encoder = kb.build("bert/tiny", **tiny.SPEC | {"blocks.layers": 1})
    TaskModel(encoder, find_task("sts").optioned({"dims": [16, 8]}))
    with pytest.raises(InputError, match="dims is 17, 8, and a vector of this model has 16 numbers: lower dims"):
        TaskModel(encoder, find_task("sts").optioned({"dims": [17, 8]}))


@pytest.mark.slow
def test_a_run_of_simcse_is_judged_by_scored_pairs_and_kept_with_its_widths(tmp_path):
    """Lines -> finetune --task simcse --dims; the two readings of a text differ by dropout, so that it learns."""
    encoder = kb.build("bert/tiny", **tiny.SPEC | {"blocks.layers": 1})
    encoder.tokenizer = tiny.tokenizer()
    (tmp_path / "train.txt").write_text("\n".join(tiny.sentences(48, 0)))
    lines = [f"{text},{' '.join(sorted(text.split()))},{i % 2}" for i, text in enumerate(tiny.sentences(24, 1))]
    (tmp_path / "dev.csv").write_text("\n".join(["sentence1,sentence2,score", *lines]))
    data = {"train": tmp_path / "train.txt", "dev": tmp_path / "dev.csv"}
    settings = {"batch": 24, "epochs": 2, "length": 16, "quiet": True, "learning_rate": 1e-3, "log_every": 1}
    model = kb.finetune(encoder, "simcse", data, out=tmp_path / "run", dims=[16, 8], accumulate=2, **settings)
    assert {name: model.task.options[name] for name in ("loss", "dims")} == {"loss": "simcse", "dims": [16, 8]}
    assert Task.from_json(model.task.to_json()) == model.task
    logs = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    losses = [log["loss"] for log in logs if "loss" in log]
    assert losses[-1] < losses[0]
    assert losses[0] > 0.1  # not that of equal vectors
    assert kb.evaluate(tmp_path / "run", tmp_path / "dev.csv")["metrics"].keys() == {"spearman", "pearson"}


@pytest.mark.parametrize("name", vector_losses.LOSSES)
def test_a_loss_that_is_of_the_whole_batch_alone_does_not_add_up(name):
    """Losses of two halves are the whole's but where the inputs of a batch are compared with each other."""
    loss = vector_losses.LOSSES[name]
    vectors = pairs(4, 3 if loss.ranked else 2)
    label = np.full((4, 1), 0.5) if loss.ranked else [0.0, 1.0, 1.0, 0.0]
    made = batch(label, np.ones(4), np.arange(vectors[..., 0].size).reshape(vectors.shape[:2]))
    options = {"loss": name, "scale": 0.0, "margin": 0.0, "dims": ()}

    def summed(rows):
        return float(
            vector_losses.sums(options, vectors[rows], {key: value[rows] for key, value in made.items()})["label"]
        )

    halves = summed(slice(0, 2)) + summed(slice(2, 4))
    assert (abs(halves - summed(slice(0, 4))) > 1e-3) == loss.whole
    assert loss.metrics == (("recall",) if loss.ranked else ("spearman", "pearson"))
