"""Losses of an ELECTRA's first updates, as they were once worked out: masks, samples, dropout and updates are as ever."""

import json

import pytest

import kerasbert as kb
from kerasbert.data import write_records
from kerasbert.testing.battery import eagerly
from tests import tiny

# hidden=4: the smallest that has what it must
SMALL = {"hidden": 4, "attention.heads": 2, "feedforward.width": 12, "blocks.layers": 1, "embeddings.positions": 24}
LOSSES = {  # of the generator and of the discriminator, by update
    "mlm": [4.317488, 4.250917, 4.227685, 3.982339, 4.030278, 4.209284],
    "rtd": [0.674352, 0.6730723, 0.6613546, 0.66065, 0.6458782, 0.6356336],
}


@pytest.mark.filterwarnings("ignore:Even though the `tf.config")
def test_losses_are_as_ever(tmp_path):
    corpus = tiny.corpus(tmp_path / "corpus.txt", documents=4)
    write_records([corpus], tiny.tokenizer(), tmp_path / "data", length=24, packing="packed")
    changes = SMALL | {"initializer": 0.3, "embeddings.width": 4}
    settings = {"steps": 6, "batch": 4, "accumulate": 2, "learning_rate": 1e-2, "log_every": 1, "quiet": True}
    with eagerly():
        kb.pretrain(
            "electra/small",
            tmp_path / "data",
            out=tmp_path / "run",
            changes=changes,
            optimizer_options={"epsilon_hat": True},
            **settings,
        )
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    for name, expected in LOSSES.items():
        assert [line[name] for line in lines] == pytest.approx(expected, rel=1e-4)
