"""A decoder that is fine-tuned learns the next token too (Radford et al., 2018, section 3.2)."""

import json

import numpy as np
import pytest

import kerasbert as kb
from kerasbert.cli import main
from kerasbert.errors import InputError
from kerasbert.tasks.base import Task
from kerasbert.tasks.model import TaskObjective
from kerasbert.testing import battery, world

LABELS = {"0": "bad", "1": "good"}


def objective(family: str, folder, **task) -> TaskObjective:
    subject = battery.Subject(family, folder, dropout=0.0)
    return TaskObjective(subject.encoder(scale=0.2), Task("own", labels=LABELS, **task))


def test_the_loss_is_of_each_real_token_that_follows_another(tmp_path):
    program = objective("gpt2", tmp_path, auxiliary_lm=0.5)
    ids = np.array([[5, 6, 7, 8, 0], [9, 4, 0, 0, 0], [0, 0, 0, 0, 0]], "int32")  # the last one fills up the batch
    mask = np.array([[1, 1, 1, 1, 0], [1, 1, 0, 0, 0], [1, 0, 0, 0, 0]], "int32")
    about = {"label": np.array([0, 1, 0], "int32"), "label_weight": np.array([1, 1, 0], "float32")}
    batch = {"token_ids": ids, "padding_mask": mask, "segment_ids": 0 * ids, **about}
    sums = {name: float(value) for name, value in program.losses(batch, training=False).items()}
    assert {name: float(value) for name, value in program.counts(batch).items()} == {"label": 2, "lm": 4}
    assert program.scales == {"label": 1.0, "lm": 0.5}
    body = program.model.body
    logits = np.asarray(body.logits(body(batch)["sequence"]), "float64")
    nats = np.log(np.exp(logits).sum(-1)) - np.take_along_axis(logits, np.roll(ids, -1, 1)[..., None], 2)[..., 0]
    assert abs(sums["lm"] - (nats[0, :3].sum() + nats[1, 0])) < 1e-4
    without = objective("gpt2", tmp_path).losses(batch, training=False)
    assert set(without) == {"label", "label/accuracy"}
    assert abs(float(without["label"]) - sums["label"]) < 1e-5


def test_an_encoder_and_a_task_without_labels_have_none(tmp_path):
    with pytest.raises(InputError, match="auxiliary_lm is 0.5, for a task of labels on a decoder, .* received Encoder"):
        objective("bert", tmp_path, auxiliary_lm=0.5)
    with pytest.raises(InputError, match="a task of kind vector. Leave it out"):
        objective("gpt2", tmp_path, kind="vector", auxiliary_lm=0.5)


@pytest.mark.slow
def test_a_run_logs_it_and_the_task_keeps_it(tmp_path, capsys):
    subject = battery.Subject("gpt2", tmp_path)
    kb.save(subject.encoder(), tmp_path / "gpt2")
    world.labelled(tmp_path / "train.tsv", 64)
    world.labelled(tmp_path / "dev.tsv", 16, seed=1)
    data = f"--data {tmp_path} --steps 4 --batch 16 --length 24"
    out = ["--out", str(tmp_path / "run")]
    main([*f"finetune {tmp_path / 'gpt2'} --task classification --auxiliary-lm 0.5 {data}".split(), *out])
    logged = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert any(np.isfinite(record.get("lm", np.nan)) for record in logged)
    assert kb.load(tmp_path / "run").task.auxiliary_lm == 0.5
    capsys.readouterr()
