"""One graph for the batches of all lengths computes what a graph for each does, for any replicas and micro-batches."""

import functools
import json

import numpy as np
import pytest
import tensorflow as tf

import kerasbert as kb
from kerasbert import registry
from kerasbert.checkpoints.safetensors import Safetensors
from kerasbert.tasks import length_buckets
from kerasbert.tasks.batches import Lengths, training_batches
from kerasbert.testing.battery import Subject
from kerasbert.testing.case import Case
from kerasbert.testing.halves import Halves
from kerasbert.testing.kind_learning import _encoded
from kerasbert.training.optimizers import adamw
from kerasbert.training.runs import Run
from kerasbert.training.step import Compilation, StepCore
from tests.support import forked, often
from tests.testing.test_kinds import OURS

LIMIT = 1e-6  # largest weight difference after 6 updates, float32
OPEN = tuple("roberta distilbert electra eurobert modernbert mpnet megatron-bert nomic-bert roformer nezha".split())


def batches(case, count=4):
    """The same rows at two lengths, and what differs between the two."""
    encoded, targets = _encoded(case, count)
    longest = max(row.length for row in encoded.rows)
    about = {"batch": count, "longest": longest + 8, "seed": 0, "task": case.task}
    made = [next(training_batches(encoded, targets, lengths=Lengths((longest + more,)), **about)) for more in (4, 8)]
    shapes = {
        name: tuple(a if a == b else None for a, b in zip(x.shape, made[1][name].shape)) for name, x in made[0].items()
    }
    return [{name: tf.convert_to_tensor(x) for name, x in each.items()} for each in made], shapes


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "family"),
    often(
        [(kind, "bert") for kind in OURS if kind not in ("fill-mask", "generation")]
        + [("classification", family) for family in OPEN],
        ("ner", "bert"),
        ("classification", "roberta"),
    ),
)
def test_one_graph_for_all_lengths_is_one_for_each(kind, family, tmp_path):
    task = registry.task(kind)
    case = Case(
        Halves(task),
        task,
        OURS[kind].get("data"),
        Subject(family, tmp_path, **{"dropout": 0.1, "embeddings.positions": 64}),
    )
    two, shapes = batches(case)
    optimizer = adamw(learning_rate=1e-3, steps=10)
    cores = [
        StepCore(case.program, optimizer, tf.distribute.get_strategy(), compilation=Compilation(open_shapes=s))
        for s in ([], [shapes])
    ]
    for batch in two:
        (first, logs), (other, same) = (core._graph(batch)(batch) for core in cores)
        assert float(logs["loss"]) == pytest.approx(float(same["loss"]), rel=1e-5)
        for one, another in zip(first, other, strict=True):
            np.testing.assert_allclose(one, another, atol=1e-6 * float(logs["gradient_norm"]))
    assert [len(core.backward) for core in cores] == [2, 1]


def trained(base, out, **settings):
    """Six updates of batches of several lengths, dropout on; the graphs for gradients of each core that made one."""
    cores, step = {}, StepCore.step

    def noted(core, batch):
        logs = step(core, batch)
        cores[id(core)] = list(core.backward)
        return logs

    rows = [(" ".join(["cat", "film"][i % 2 :] * count), "01"[i % 2]) for i, count in enumerate((2, 4, 9, 1) * 6)]
    about = {
        "epochs": 1,
        "batch": 4,
        "length": 24,
        "learning_rate": 1e-2,
        "save_every": 2,
        "log_every": 1,
        "quiet": True,
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StepCore, "step", noted)
        patch.setattr(length_buckets, "OPEN", 0.0)  # of so small a network no length is worth its compiling
        kb.finetune(base, "classification", {"train": rows, "dev": rows[:4]}, out=out, **(about | settings))
    return [*cores.values()]


TWO = """
import sys
from tests.training.test_open_lengths import trained
print([len(each) for each in trained(sys.argv[1], sys.argv[2], strategy="cpu:2", accumulate=2)])
"""


def after(run):
    """The weights of the last update."""
    return (run / "checkpoints" / "step_6" / "weights.safetensors").read_bytes()


@pytest.mark.slow
def test_a_run_of_one_graph_is_the_same_on_two_replicas_and_after_a_stop(pretrained, tmp_path):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Run, "log", functools.partialmethod(dying, Run.log))
        with pytest.raises(RuntimeError, match="killed"):
            trained(pretrained, tmp_path / "killed")
    assert [len(each) for each in trained(pretrained, tmp_path / "one")] == [1]
    assert len(json.loads((tmp_path / "one" / "run.json").read_text())["settings"]["lengths"]) > 2
    trained(pretrained, tmp_path / "killed")
    assert after(tmp_path / "killed") == after(tmp_path / "one")
    assert forked("-c", TWO, pretrained, tmp_path / "two").stdout.strip().endswith("[1]")
    one, two = (
        Safetensors(tmp_path / name / "checkpoints" / "step_6" / "weights.safetensors") for name in ("one", "two")
    )
    start = Safetensors(pretrained / "weights.safetensors")
    assert max(np.abs(one.read(name) - two.read(name)).max() for name in one.names()) <= LIMIT
    moved = [np.abs(one.read(name) - start.read(name)).max() for name in start.names() if name in one.names()]
    assert max(moved) > 1e-2


def dying(run, log, record):
    """Ends the run behind its third update."""
    log(run, record)
    if record["step"] == 3:
        raise RuntimeError("killed")
