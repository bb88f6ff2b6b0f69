"""A few updates by a loss that compares the whole batch, under one strategy, in a process of its own.

python -m tests.training.whole_worker OUT.npz '{"strategy": "cpu:2", "accumulate": 2, "loss": "ranking", ...}'
"""

import json
import sys
from pathlib import Path

import numpy as np

from kerasbert.training.strategy import strategy as make_strategy

PLUGINS = Path(__file__).parent.parent / "plugins"


def run(settings: dict) -> dict:
    """Gradients of the first update as `gradient/NAME`, and the logs of each as `log/NAME`."""
    strategy = make_strategy(settings.get("strategy", "cpu"))
    import keras

    import kerasbert as kb
    from kerasbert import registry
    from kerasbert.tasks.batches import Lengths, encode_texts, training_batches
    from kerasbert.tasks.model import TaskObjective
    from kerasbert.tasks.task import find_task
    from kerasbert.training.config import TrainConfig
    from kerasbert.training.optimizers import make_optimizer
    from kerasbert.training.step import StepCore, distribute
    from tests import tiny

    keras.utils.set_random_seed(1)
    tokenizer = tiny.tokenizer()
    ranked, name = settings["loss"] in ("ranking", "triplet"), settings.get("plugin")
    if name:
        registry.load_plugin(PLUGINS / f"{name}.py")
    task = find_task(name or ("pairs" if ranked else "sts"))
    task = task.optioned({"loss": settings["loss"], **settings.get("options", {})})
    with strategy.scope():
        encoder = kb.build(
            "bert/tiny",
            **tiny.SPEC
            | {"blocks.layers": settings.get("layers", 1), "dropout": settings.get("dropout", 0.1)}
            | {"embeddings.vocabulary": tokenizer.size},
        )
        program = TaskObjective(encoder, task)
        optimizer = make_optimizer(TrainConfig(settings.get("steps", 3), 8, 1e-2, warmup=0))
    core = StepCore(
        program,
        optimizer,
        strategy,
        accumulate=settings.get("accumulate", 1),
        loss_scaling=settings.get("scaling", False),
    )
    # 15 inputs in two batches of 8: one fills up; the first anchor comes twice, so that it has positives of another
    texts = tiny.sentences(60, 3)
    anchors = [texts[0], *texts[:14]]
    several = [(one, (texts[15 + i], texts[30 + i]) if i % 3 else texts[15 + i]) for i, one in enumerate(anchors)]
    scored = [(one, texts[15 + i]) for i, one in enumerate(anchors)]
    encoded = encode_texts(tokenizer, several if ranked else scored, 16, kind=task.how)
    targets = np.arange(15, dtype="float32") % 4 / 3
    padded = {"longest": 16, **settings.get("padded", {})}
    padded["lengths"] = Lengths([16], padded.pop("first", ()))
    batches = training_batches(encoded, targets, batch=8, seed=0, task=task, **padded)
    found, gathered, update = {}, [], core.update
    core.update = lambda gradients, norm: (gathered.append(gradients), update(gradients, norm))
    for _, batch in zip(range(settings.get("steps", 3)), batches):
        logs = core.step(distribute(batch, strategy))
        for name, value in logs.items():
            found[f"log/{name}"] = np.append(found.get(f"log/{name}", []), float(value))
    first = [strategy.experimental_local_results(each)[0].numpy() for each in gathered[0]]
    return found | {f"gradient/{v.path}": each for v, each in zip(core.variables_of_model, first)}


if __name__ == "__main__":
    np.savez(sys.argv[1], **run(json.loads(sys.argv[2])))
