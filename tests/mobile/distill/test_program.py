"""The program: what is weighed, what is trained, what is left alone; every family as a student and as a teacher."""

import numpy as np
import pytest
import tensorflow as tf

from kerasbert.errors import InputError
from kerasbert.layers import random
from kerasbert.layers.naming import names, values
from kerasbert.mobile.distill.program import LabelImitation, TokenImitation
from kerasbert.mobile.distill.recipes import RECIPES, Distillation
from kerasbert.objectives.bert import BertPretraining
from kerasbert.objectives.masked_lm import MaskedLM
from kerasbert.tasks.task import Task
from kerasbert.testing.battery import eagerly
from kerasbert.training.optimizers import adamw
from kerasbert.training.precision import precision
from kerasbert.training.step import StepCore
from tests.mobile.distill import worlds
from tests.models.cover import families

ALL = Distillation({"labels": 1.0, "soft": 1.0, "logits": 1.0, **worlds.LAYERS}, temperature=2.0)


def sums(program, batch, training=False) -> dict[str, float]:
    """Loss and metric sums as numbers."""
    with random.scope(tf.constant([0, 0], tf.uint32), batch["row"]):
        return {name: float(value) for name, value in program.losses(batch, training).items()}


def test_a_copy_of_the_teacher_has_nothing_to_learn():
    teacher, copy = worlds.model("bert"), worlds.model("bert")
    found = sums(LabelImitation(copy, teacher, ALL), worlds.batch())
    assert found.pop("labels") > 1
    assert found.pop("soft/agreement") == found.pop("logits/agreement") == 3
    assert max(map(abs, found.values())) < 1e-4, found


def test_values_against_numpy():
    """Padding, the row that fills up and the unlabelled row weigh what they should."""
    student, teacher, batch = worlds.model("bert", 8), worlds.model("bert", seed=2), worlds.batch()
    program = LabelImitation(student, teacher, ALL)
    found = sums(program, batch)
    counts = {name: float(count) for name, count in program.counts(batch).items()}
    tokens = 10 + 8 + 6  # of the three rows that are real
    assert counts == dict.fromkeys(("soft", "logits"), 3.0) | {"labels": 2.0} | dict.fromkeys(worlds.LAYERS, tokens)
    mine, theirs = (m.encoder(batch, attention=True) for m in (student, teacher))
    answers = [np.asarray(m(batch, queries=None)["logits"], "float64") for m in (student, teacher)]
    assert found["logits"] == pytest.approx(((answers[0] - answers[1]) ** 2).mean(-1)[:3].sum(), rel=1e-5)
    log = answers[0] - np.log(np.exp(answers[0]).sum(-1, keepdims=True))
    labels = np.asarray(batch["label"])
    assert found["labels"] == pytest.approx(-(log[0, labels[0]] + log[2, labels[2]]), rel=1e-5)
    matrix, real = np.asarray(program.widen["widen_hidden"].kernel), np.asarray(batch["padding_mask"]) == 1
    real[3] = False
    error = sum(
        np.square(np.asarray(mine["hidden"][m]) @ matrix - np.asarray(theirs["hidden"][m])).mean(-1)[real].sum()
        for m in (1, 2)
    )
    assert found["hidden"] == pytest.approx(error, rel=1e-5)
    divergence = 0.0
    for layer in range(2):
        p, q = (np.asarray(outputs["attention"][layer], "float64") for outputs in (theirs, mine))
        terms = np.where(p > 1e-12, p * np.log(np.maximum(p, 1e-12) / np.maximum(q, 1e-12)), 0).sum(-1).mean(1)
        divergence += terms[real].sum() / 2
    assert found["attention"] == pytest.approx(divergence, rel=1e-4)


def test_answers_worked_out_before_are_those_of_the_teacher_beside():
    student, teacher, batch = worlds.model("bert"), worlds.model("bert", seed=2), worlds.batch()
    program = LabelImitation(student, teacher, Distillation({"soft": 1.0, "labels": 0.5}))
    beside = sums(program, batch)
    answers = teacher(batch)["logits"]
    program.teacher = None
    assert sums(program, batch | {"teacher": answers}) == pytest.approx(beside, abs=1e-6)


def test_numbers_are_compared_as_logits_are():
    """A regression: squared error of the numbers, and of the labels where there are some."""
    task = Task("score", kind="regression")
    student, teacher = (worlds.model("bert", task=task, seed=seed) for seed in (1, 2))
    batch = worlds.batch()
    batch["label"] = tf.constant([1.0, 2.0, 3.0, 4.0])
    found = sums(LabelImitation(student, teacher, Distillation({"logits": 1.0, "labels": 1.0})), batch)
    mine, theirs = (np.asarray(m(batch)["value"], "float64") for m in (student, teacher))
    assert found == {
        "logits": pytest.approx(((mine - theirs) ** 2)[:3].sum(), rel=1e-5),
        "labels": pytest.approx((mine[0] - 1) ** 2 + (mine[2] - 3) ** 2, rel=1e-5),
    }


def test_labels_alone_need_no_teacher():
    student, batch = worlds.model("bert"), worlds.batch()
    program = LabelImitation(student, worlds.model("bert", seed=2), Distillation({"labels": 1.0}))
    beside = sums(program, batch)
    program.teacher = None
    assert sums(program, batch) == beside
    assert list(beside) == ["labels"]


def test_the_teacher_gets_no_gradient_and_is_not_in_the_model():
    student, teacher, batch = worlds.model("bert", 8), worlds.model("bert", seed=2, dropout=0.5), worlds.batch()
    program = LabelImitation(student, teacher, ALL)
    variables = [weight.value for weight in teacher.weights]
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(variables)
        loss = sum(value for name, value in program.losses(batch).items() if name in program.scales)
    assert tape.gradient(loss, variables) == [None] * len(variables)
    mine = {id(weight) for weight in program.model.weights}
    assert not mine & {id(weight) for weight in teacher.weights}
    assert set(names(program.model)) - set(names(student)) == {
        "heads/widen_hidden/kernel",
        "heads/widen_embeddings/kernel",
    }
    gradients = tape.gradient(loss, [weight.value for weight in program.model.trainable_variables])
    # a key's bias adds one number to all scores of a query, which softmax does not see
    dead = [
        n for n, g in zip(names(program.model), gradients) if g is None or not np.abs(tf.convert_to_tensor(g)).max()
    ]
    assert [name for name in dead if not name.endswith("key/bias")] == []
    # the teacher drops nothing, in training neither
    assert sums(program, batch, training=False).keys() == sums(program, batch, training=True).keys()
    one, other = (np.asarray(program.read(teacher, batch, False)["answers"]) for _ in range(2))
    np.testing.assert_array_equal(one, other)


def test_bfloat16_is_near_float32():
    found = []
    for policy in ("float32", "mixed_bfloat16"):
        with precision(policy):
            program = LabelImitation(worlds.model("bert", 8), worlds.model("bert", seed=2), ALL)
        for weight in program.widen.values():
            weight.kernel.assign(np.eye(8, 16))
        found.append(sums(program, worlds.batch()))
    assert np.isfinite(list(found[1].values())).all()
    assert {n: v for n, v in found[1].items() if abs(v - found[0][n]) > 0.1 * abs(found[0][n]) + 0.01} == {}


def test_the_last_layer_is_whole_only_where_layers_are_compared():
    student, teacher = worlds.model("bert"), worlds.model("bert", seed=2)
    assert not LabelImitation(student, teacher, RECIPES["soft"]).whole
    assert LabelImitation(student, teacher, RECIPES["tinybert"]).whole


def test_heads_that_differ_are_refused():
    student, teacher = worlds.model("bert", **{"attention.heads": 4}), worlds.model("bert")
    for name in ("scores", "attention"):
        with pytest.raises(InputError, match="layer 1 of the student has 4 heads, layer 1 of the teacher 2"):
            LabelImitation(student, teacher, Distillation({name: 1.0}))
    LabelImitation(student, teacher, Distillation({"hidden": 1.0}))


def test_a_layer_that_the_teacher_has_not_is_refused():
    with pytest.raises(InputError, match="layers names the teacher's layer 3, which has layers 1 to 2"):
        LabelImitation(worlds.model("bert"), worlds.model("bert"), Distillation({"hidden": 1.0}, layers=(1, 3)))


def check_learns(program, batch, teacher):
    """An update lowers the loss; the teacher stays what it is."""
    before = values(teacher)
    with eagerly():
        core = StepCore(program, adamw(learning_rate=3e-3, steps=100), tf.distribute.get_strategy())
        found = [float(core.step(batch)["loss"]) for _ in range(2)]
    assert np.isfinite(found).all()
    assert found[1] < found[0], found
    assert all((before[name] == value).all() for name, value in values(teacher).items())


QUICK = ("albert", "mobilebert")  # shared layers, no norms; a family takes 2 to 3 s


@pytest.mark.parametrize("name", families("student", QUICK))
def test_every_encoder_learns_from_bert(name):
    """Students of half the width and half the layers."""
    student = worlds.model(name, 8, dropout=0.0, **{"blocks.layers": 1})
    teacher = worlds.model("bert", seed=2)
    check_learns(LabelImitation(student, teacher, ALL), worlds.batch(), teacher)


@pytest.mark.parametrize("name", families("teacher"))
def test_every_encoder_teaches(name):
    student, teacher = worlds.model("bert", 8, dropout=0.0), worlds.model(name, seed=2)
    check_learns(LabelImitation(student, teacher, ALL), worlds.batch(), teacher)


def batches():
    """What masks the rows of records."""
    return BertPretraining.without_model(worlds.TOKENIZER, MaskedLM())


@pytest.mark.slow
def test_mobilebert_learns_from_ib_bert():
    """The paper's pair: equal widths, nothing is widened."""
    student, teacher = (
        worlds.model(name, task=None, seed=s, dropout=0.0) for s, name in enumerate(("mobilebert", "ib-bert"))
    )
    program = TokenImitation(student, teacher, RECIPES["mobilebert"], batches=batches())
    assert program.widen == {}
    check_learns(program, worlds.batch(), teacher)


@pytest.mark.parametrize("name", families("tokens"))
def test_every_encoder_learns_tokens(name):
    student, teacher = worlds.model(name, 8, task=None, dropout=0.0), worlds.model("bert", task=None, seed=2)
    check_learns(TokenImitation(student, teacher, RECIPES["distilbert"], batches=batches()), worlds.batch(), teacher)


def test_tokens_at_full_precision_against_numpy():
    student, teacher, batch = worlds.model("bert", task=None), worlds.model("bert", task=None, seed=2), worlds.batch()
    program = TokenImitation(student, teacher, RECIPES["distilbert"], batches=batches())
    found, counts = sums(program, batch), {n: float(c) for n, c in program.counts(batch).items()}
    assert counts == {"soft": 8.0, "labels": 8.0, "cosine": 10 + 8 + 6 + 4}
    logits = [np.asarray(m(batch)["mlm_logits"], "float64") / 2 for m in (student, teacher)]
    q, p = (x - np.log(np.exp(x).sum(-1, keepdims=True)) for x in logits)
    assert found["soft"] == pytest.approx(4 * (np.exp(p) * (p - q)).sum(), rel=1e-5)
