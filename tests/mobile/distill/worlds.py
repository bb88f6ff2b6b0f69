"""Tiny teachers and students of any family, and batches for them."""

import keras
import numpy as np
import tensorflow as tf

from kerasbert import registry
from kerasbert.mobile.distill.models import with_head
from kerasbert.tasks.task import Task
from kerasbert.testing.battery import tiny
from tests import tiny as world

TASK = Task("opinions", labels={"0": "bad", "1": "so so", "2": "good"})
LAYERS = dict.fromkeys(("cosine", "embeddings", "hidden", "scores", "features", "means", "variances", "attention"), 1.0)
TOKENIZER = world.tokenizer()


def model(name: str, hidden: int = 16, task=TASK, seed: int = 1, scale: float = 0.2, **changes):
    """A family's tiny model with a head over the words of the tiny world, with weights far from zero."""
    family = registry.family(name)
    base = family.size(next(iter(family.sizes)))
    keras.utils.set_random_seed(seed)
    encoder = family.encoder(base.derive(tiny(base, TOKENIZER.size, hidden) | changes))
    encoder.build()
    encoder.tokenizer = TOKENIZER
    made = with_head(encoder, task, True, TOKENIZER)
    generator = np.random.default_rng(seed)
    for weight in made.weights:
        if weight.path.endswith(("kernel", "table")):
            weight.assign(generator.normal(0, scale, weight.shape))
    return made


def batch(rows: int = 4, length: int = 10, seed: int = 0) -> dict:
    """Texts for `LabelImitation` and `TokenImitation`: the second is not labelled, the last fills up and weighs nothing."""
    generator = np.random.default_rng(seed)
    mask = np.arange(length) < length - 2 * np.arange(rows)[:, None]
    real = np.arange(rows) < rows - 1
    arrays = {
        "token_ids": generator.integers(5, TOKENIZER.size - 1, (rows, length)),
        "padding_mask": mask,
        "segment_ids": np.zeros((rows, length)),
        "label": generator.integers(0, 3, rows),
        "row": np.arange(rows),
        "mlm_positions": generator.integers(0, 3, (rows, 2)),
        "mlm_labels": generator.integers(5, TOKENIZER.size - 1, (rows, 2)),
    }
    floats = {"label_weight": real & (np.arange(rows) != 1), "weight": real, "mlm_weights": np.ones((rows, 2))}
    found = {name: tf.constant(x.astype("int32")) for name, x in arrays.items()}
    return found | {name: tf.constant(x.astype("float32")) for name, x in floats.items()}
