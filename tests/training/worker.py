"""A few updates of a tiny BERT under one strategy, in a process of its own: replica counts do not mix in one.

python -m tests.training.worker OUT.npz '{"strategy": "cpu:2", "accumulate": 2, ...}'
"""

import json
import sys

import numpy as np

from kerasbert.spec import Spec
from kerasbert.training.strategy import strategy as make_strategy

TINY = {
    "hidden": 40,
    "embeddings.vocabulary": 101,
    "embeddings.positions": 24,
    "attention.heads": 5,
    "feedforward.width": 52,
    "blocks.layers": 2,
}


def batches(rows: int, length: int, predictions: int, steps: int, seed: int = 3):
    """Batches with very uneven numbers of predictions per row."""
    generator = np.random.default_rng(seed)
    for _ in range(steps):
        counts = np.where(np.arange(rows) < rows // 2, predictions, generator.integers(0, 2, rows))
        lengths = generator.integers(6, length + 1, rows)
        yield {
            "token_ids": generator.integers(5, 101, (rows, length)).astype("int32"),
            "segment_ids": generator.integers(0, 2, (rows, length)).astype("int32"),
            "padding_mask": (np.arange(length) < lengths[:, None]).astype("int32"),
            "mlm_positions": np.sort(generator.integers(0, 6, (rows, predictions)), axis=1).astype("int32"),
            "mlm_labels": generator.integers(5, 101, (rows, predictions)).astype("int32"),
            "mlm_weights": (np.arange(predictions) < counts[:, None]).astype("float32"),
            "next_label": generator.integers(0, 2, rows).astype("int32"),
            "row": np.arange(rows, dtype="int32"),
        }


def run(settings: dict) -> dict:
    """Weights by name after the updates, and the last logs as `log/<name>`."""
    strategy = make_strategy(settings.get("strategy", "cpu"))
    import keras

    from kerasbert.layers.naming import names
    from kerasbert.models.bert import Encoder
    from kerasbert.objectives.bert import BertPretraining
    from kerasbert.training import step as step_core
    from kerasbert.training.config import TrainConfig
    from kerasbert.training.optimizers import make_optimizer, take_average
    from kerasbert.training.step import Compilation, StepCore, distribute

    step_core.SMALL = 0  # where something is fused, everything is
    keras.utils.set_random_seed(settings.get("init", 1))
    spec = Spec().derive(TINY | {"dropout": settings.get("dropout", 0.1)})
    with strategy.scope():
        encoder = Encoder(spec, dtype=settings.get("precision", "float32"))
        encoder.build()
        program = BertPretraining(encoder, None, features=["next_label"])
        steps = settings.get("steps", 10)
        rows, named = settings.get("rows", 16), settings.get("optimizer", {})
        optimizer = make_optimizer(TrainConfig(steps, rows, 1e-3, warmup=2, **named))
    scaling = settings.get("precision") == "mixed_float16"
    core = StepCore(
        program,
        optimizer,
        strategy,
        accumulate=settings.get("accumulate", 1),
        clip=settings.get("clip", 0.5),
        seed=settings.get("seed", 0),
        loss_scaling=scaling,
        compilation=Compilation(settings.get("compile", False), settings.get("fused", False)),
    )
    history = []
    for batch in batches(rows, 24, 4, steps):
        batch["mlm_weights"] *= np.float32(settings.get("weight", 1.0))
        logs = core.step(distribute(batch, strategy))
        history.append(float(logs["loss"]))
    take_average(optimizer)
    found = {name: keras.ops.convert_to_numpy(variable) for name, variable in names(program.model).items()}
    found |= {f"log/{name}": np.float32(value) for name, value in logs.items()}
    return found | {"log/history": np.array(history)}


if __name__ == "__main__":
    np.savez(sys.argv[1], **run(json.loads(sys.argv[2])))
