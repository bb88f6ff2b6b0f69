"""A run that updates only the word vectors it reads has the weights of one that updates all."""

import types

import keras
import numpy as np
import pytest
import tensorflow as tf

import kerasbert as kb
from kerasbert import registry
from kerasbert.checkpoints.safetensors import Safetensors, write_safetensors
from kerasbert.inputs import SHIFTED
from kerasbert.layers.random import Dropout
from kerasbert.objectives.base import Objective
from kerasbert.tasks.base import find
from kerasbert.tasks.batches import Lengths, encode_texts, training_batches
from kerasbert.tasks.model import TaskObjective
from kerasbert.testing import world
from kerasbert.testing.battery import Subject
from kerasbert.testing.case import made_rows
from kerasbert.training import read_rows, slots
from kerasbert.training.optimizers import AdamW, adamw
from kerasbert.training.read_rows import ReadRows
from kerasbert.training.runs import Run
from kerasbert.training.step import Compilation, StepCore
from tests.support import close, often
from tests.testing.test_kinds import OURS
from tests.training.test_open_lengths import dying, trained

IDS = np.array([1, 4, 5, 9])


def pair(**settings):
    """A table and a kernel with an optimizer of all rows, and the same with one of IDS."""
    draw = np.random.default_rng(0)
    first, second = (draw.normal(size=shape).astype("float32") for shape in ((12, 3), (3, 2)))
    made = []
    for some in (False, True):
        variables = [keras.Variable(first, name="table"), keras.Variable(second, name="kernel")]
        optimizer = AdamW(1e-2, **(AdamW.defaults | settings))
        optimizer.rows = {0: ReadRows(variables[0], IDS)} if some else {}
        optimizer.build(variables)
        made.append((variables, optimizer))
    return made


@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("epsilon_hat", [False, True])
def test_updates_are_those_of_all_rows(decay, epsilon_hat, monkeypatch):
    monkeypatch.setattr(read_rows, "AT_ONCE", 5)
    (all_rows, whole), (some_rows, part) = pair(weight_decay=decay, epsilon_hat=epsilon_hat)
    draw, others = np.random.default_rng(1), np.setdiff1d(np.arange(12), IDS)
    for _ in range(5):
        gradient, kernel = np.zeros((12, 3), "float32"), draw.normal(size=(3, 2)).astype("float32")
        gradient[IDS] = draw.normal(size=(4, 3))
        whole.apply([tf.constant(gradient), tf.constant(kernel)], all_rows)
        part.apply([tf.constant(gradient[IDS]), tf.constant(kernel)], some_rows)
    rows = part.rows[0]
    one, other, settled = all_rows[0].value.numpy(), some_rows[0].value.numpy(), rows.value()
    np.testing.assert_array_equal(one[IDS], other[IDS])
    np.testing.assert_array_equal(all_rows[1].value, some_rows[1].value)
    assert [tuple(each[0].shape) for each in (part._momentums, part._velocities)] == [(4, 3), (4, 3)]
    close(settled, one, share=5e-7)
    np.testing.assert_array_equal(settled[IDS], other[IDS])
    assert (settled[others] != other[others]).all() == bool(decay)


def test_a_checkpoint_is_read_whichever_rows_wrote_it(tmp_path):
    (all_rows, whole), (some_rows, part) = pair()
    gradient = np.zeros((12, 3), "float32")
    gradient[IDS] = 1.0
    whole.apply([tf.constant(gradient), tf.zeros((3, 2))], all_rows)
    part.apply([tf.constant(gradient[IDS]), tf.zeros((3, 2))], some_rows)
    written = {}
    for name, optimizer in (("whole", whole), ("part", part)):
        tensors = slots.values(optimizer)
        write_safetensors(tmp_path / name, {key: x.shape for key, x in tensors.items()}, tensors.__getitem__)
        written[name] = Safetensors(tmp_path / name)
    for name, tensors in written.items():
        for _, optimizer in pair():
            slots.assign(optimizer, tensors)
            expected = whole if not optimizer.rows else part
            for one, other in zip(slots.variables(optimizer).values(), slots.variables(expected).values(), strict=True):
                np.testing.assert_array_equal(one.value, other.value, err_msg=name)
    gradient[0] = 1.0  # a row that the run does not read
    whole.apply([tf.constant(gradient), tf.zeros((3, 2))], all_rows)
    tensors = slots.values(whole)
    write_safetensors(tmp_path / "other", {key: x.shape for key, x in tensors.items()}, tensors.__getitem__)
    with pytest.raises(ValueError, match="moments of rows that this run does not read"):
        slots.assign(part, Safetensors(tmp_path / "other"))


def test_a_token_that_nobody_named_ends_the_run(tmp_path):
    rows = ReadRows(keras.Variable(np.zeros((12, 3)), name="table"), IDS)
    slices = tf.IndexedSlices(tf.ones((2, 3)), tf.constant([4, 4]), tf.constant([12, 3]))
    np.testing.assert_array_equal(rows.gradient(slices), [[0, 0, 0], [2, 2, 2], [0, 0, 0], [0, 0, 0]])
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"a token that Feed\.token_ids does not name"):
        rows.gradient(tf.IndexedSlices(slices.values, tf.constant([4, 3]), slices.dense_shape))


def copied_whole(core, batch):
    """Whether an update reads a table of which it writes some rows: TensorFlow copies it then, 47 MB of BERT's."""
    graph = core._graph(batch).get_concrete_function(batch).graph
    tables = [rows.variable.value.handle for rows in core.rows.values()]
    read = [inner for outer, inner in graph.captures if any(outer is table for table in tables)]
    assert len(read) == len(tables)
    return any(user.type == "ReadVariableOp" for inner in read for user in inner.consumers())


def weights_after(base, out, monkeypatch, most, **settings):
    """The weights of six updates, and how many rows of the table had moments."""
    held, prepare = [], StepCore.prepare

    def noted(core, batch):
        prepare(core, batch)
        held.append([each.shape for each in core.rows.values()])
        assert not copied_whole(core, batch)

    monkeypatch.setattr(read_rows, "MOST", most)
    monkeypatch.setattr(StepCore, "prepare", noted)
    trained(base, out, **settings)
    return Safetensors(out / "checkpoints" / "step_6" / "weights.safetensors"), held[0]


def test_a_run_of_some_rows_is_one_of_all(pretrained, tmp_path, monkeypatch):
    some, held = weights_after(pretrained, tmp_path / "some", monkeypatch, 0.5)
    every, none = weights_after(pretrained, tmp_path / "every", monkeypatch, 0.0)
    assert ([len(held), held[0][0] < 10], none) == ([1, True], [])
    start = Safetensors(pretrained / "weights.safetensors").read("embeddings/tokens/table")
    for name in every.names():
        close(some.read(name), every.read(name), share=2e-6)
    assert (np.abs(every.read("embeddings/tokens/table") - start).max(axis=1) > 0).all()  # decay, where nothing is read
    mine, other = (Safetensors(tmp_path / name / "weights.safetensors") for name in ("some", "every"))
    for name in other.names():
        close(mine.read(name), other.read(name), share=2e-6)


def test_a_run_that_went_on_is_a_whole_one(pretrained, tmp_path, monkeypatch):
    whole, _ = weights_after(pretrained, tmp_path / "whole", monkeypatch, 0.5, save_every=1)
    with monkeypatch.context() as patch:
        patch.setattr(Run, "log", lambda run, record, log=Run.log: dying(run, log, record))
        with pytest.raises(RuntimeError, match="killed"):
            trained(pretrained, tmp_path / "killed", save_every=1)
    again, _ = weights_after(pretrained, tmp_path / "killed", monkeypatch, 0.5, save_every=1)
    for name in whole.names():
        np.testing.assert_array_equal(again.read(name), whole.read(name), err_msg=name)


class Words(Objective):
    """A network of word vectors alone: their sum, or with `tied` a product with all of them."""

    def __init__(self, tied):
        table = keras.layers.Embedding(12, 3, name="tokens")
        table.build()
        table.embeddings._path = "words/tokens/table"
        self.table, self.tied, self.scales = table.embeddings, tied, {"label": 1.0}
        self.model = types.SimpleNamespace(trainable_variables=[self.table])

    def counts(self, batch):
        return {"label": tf.constant(1.0)}

    def losses(self, batch):
        x = tf.gather(tf.convert_to_tensor(self.table), batch["token_ids"])
        x = tf.matmul(x, tf.convert_to_tensor(self.table), transpose_b=True) if self.tied else x
        return {"label": tf.reduce_sum(tf.square(x))}


@pytest.mark.parametrize(("tied", "shape"), [(False, (4, 3)), (True, (12, 3))])
def test_a_table_that_something_is_written_with_is_updated_whole(tied, shape):
    program, optimizer = Words(tied), adamw(learning_rate=1e-2, steps=10)
    core = StepCore(program, optimizer, tf.distribute.get_strategy(), compilation=Compilation(token_ids=lambda: IDS))
    before = program.table.value.numpy()
    core.step({"token_ids": tf.constant([1, 5]), "row": tf.range(2)})
    assert tuple(optimizer._momentums[0].shape) == shape
    changed = (program.table.value.numpy() != before).any(axis=1)
    assert changed.tolist() == [tied or i in (1, 5) for i in range(12)] if tied else [i in IDS for i in range(12)]


@pytest.mark.parametrize(("family", "more"), [("bert", ()), ("bart", (SHIFTED,)), ("kbert", ())])
def test_token_ids_are_those_of_all_batches(family, more, tmp_path):
    subject = Subject(family, tmp_path)
    declared = (*subject.family.inputs, *more)
    encoded = encode_texts(subject.tokenizer, ["the happy cat", "a bad film and a cat"], 16, declared=declared)
    batches = training_batches(encoded, [0, 1], batch=3, longest=16, seed=0, lengths=Lengths((16,)))
    arrays = next(batches)
    held = {name: x for name, x in arrays.items() if name.endswith("token_ids")}
    assert len(held) == 1 + len(more)
    assert encoded.token_ids().tolist() == sorted({int(i) for x in held.values() for i in x.ravel()})


CASES = [
    ("classification", "bart"),
    ("classification", "kbert"),
    ("classification", "xlnet"),
    ("classification", "albert"),
    ("ner", "bert"),
    ("choice", "bert"),
    ("regression", "gpt2"),
    ("generation", "mt5"),
    ("generation", "t5"),
    ("pairs", "bert"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "family"), often(CASES, ("generation", "mt5"), ("pairs", "bert")))
def test_kinds_and_families_learn_the_same_of_some_rows_and_of_all(kind, family, tmp_path, monkeypatch):
    task, texts, held, weights = registry.task(kind), world.sentences(40, seed=5), [], []
    pairs = kind in ("pairs", "generation")
    rows = [*zip(texts[::2], texts[1::2])] if pairs else OURS.get(kind, {}).get("data") or made_rows(task)
    prepare = StepCore.prepare

    def noted(core, batch):
        prepare(core, batch)
        held.append(len(core.rows))
        assert not copied_whole(core, batch)

    monkeypatch.setattr(StepCore, "prepare", noted)
    more = {"length": 128} if kind == "generation" else {"length": 32}
    for most in (1.0, 0.0):
        monkeypatch.setattr(read_rows, "MOST", most)
        encoder, out = Subject(family, tmp_path).encoder(), tmp_path / str(most)
        about = {"epochs": 2, "batch": 4, "accumulate": 2, "learning_rate": 1e-3, "quiet": True}
        kb.finetune(encoder, task, {"train": rows, "dev": rows}, out=out, **about, **more)
        weights.append(Safetensors(out / "weights.safetensors"))
    assert set(held) == {0, int((kind, family) != ("generation", "t5"))}  # T5 writes with its table
    for name in weights[1].names():
        close(weights[0].read(name), weights[1].read(name), share=2e-6)


def test_others_that_read_the_weights_get_all_of_them():
    known = types.SimpleNamespace(token_ids=lambda: np.array([3, 1]))
    unknown = types.SimpleNamespace(token_ids=lambda: None)
    config = types.SimpleNamespace(callbacks=(), constraint=None, way=None, optimizer_options={})
    ours = TaskObjective.__new__(TaskObjective)
    ours.model, ours.kind = types.SimpleNamespace(encoder=Dropout(0.1)), find("classification")

    def ids(feed=known, evaluate=known, program=ours, **settings):
        return read_rows.ids(program, types.SimpleNamespace(**(vars(config) | settings)), feed, evaluate)

    assert ids().tolist() == [1, 3]
    assert ids(optimizer_options={"ema": 0.0}) is not None
    for about in ({"callbacks": [1]}, {"constraint": 1}, {"way": 1}, {"optimizer_options": {"ema": 0.9}}):
        assert ids(**about) is None
    assert ids(feed=unknown) is None
    assert ids(evaluate=unknown) is None
    assert ids(evaluate=None) is None
    assert ids(program=Words(False)) is None  # what another's network reads is not known


def test_an_optimizer_of_another_has_all_rows():
    class Mine(AdamW):
        def update_step(self, gradient, variable, learning_rate):
            variable.assign_sub(learning_rate * gradient)

    program, optimizer = Words(False), Mine(1e-2)
    core = StepCore(program, optimizer, tf.distribute.get_strategy(), compilation=Compilation(token_ids=lambda: IDS))
    core.step({"token_ids": tf.constant([1, 5]), "row": tf.range(2)})
    assert core.rows == {}
