"""Training on the books: the fast path learns what the plain one learns."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import kerasbert as kb
from kerasbert.objectives.bert import BertPretraining
from kerasbert.training import step
from kerasbert.training.optimizers import adamw
from kerasbert.training.precision import precision
from kerasbert.training.step import Compilation, StepCore
from tests.objectives import books

STEPS, BATCH, LENGTH = 200, 16, 64
SPEC = {
    "hidden": 64,
    "blocks.layers": 2,
    "attention.heads": 4,
    "feedforward.width": 128,
    "embeddings.positions": LENGTH,
}


def curve(records, seed, fast):
    """Losses of 200 updates in bfloat16, dropout 0.1, means of ten."""
    keras.utils.set_random_seed(seed)
    tokenizer = books.tokenizer()
    with precision("mixed_bfloat16"):
        encoder = kb.build("bert/tiny", **SPEC, **{"embeddings.vocabulary": tokenizer.size})
        program = BertPretraining(encoder, tokenizer, features=records.features, seed=seed)
    optimizer = adamw(learning_rate=3e-3, steps=STEPS, warmup=20)
    core = StepCore(program, optimizer, tf.distribute.get_strategy(), seed=seed, compilation=Compilation(fused=fast))
    losses = [
        float(core.step(batch)["mlm"]) for batch in records.dataset(BATCH, seed=seed).map(program.prepare).take(STEPS)
    ]
    return np.array(losses).reshape(-1, 10).mean(1)


@pytest.mark.full
def test_fused_parts_give_the_plain_graphs_curve(tmp_path, monkeypatch):
    monkeypatch.setattr(step, "SMALL", 0)
    records = books.records(tmp_path, "full", LENGTH)
    plain, fast, other = curve(records, 0, False), curve(records, 0, True), curve(records, 1, False)
    noise = np.abs(plain - other).mean()
    print(f"mean distance: fused {np.abs(fast - plain).mean():.4f} nats, another seed {noise:.4f}; end {plain[-1]:.3f}")
    assert plain[-1] < plain[0] - 1
    assert np.abs(fast - plain).mean() < noise
    assert abs(fast[-1] - plain[-1]) < max(0.05, abs(other[-1] - plain[-1]))
