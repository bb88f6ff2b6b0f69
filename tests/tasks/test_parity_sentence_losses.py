"""Twenty updates lose what sentence-transformers' losses lose: the same weights, the same batches, no dropout, AdamW."""

import dataclasses
import json

import numpy as np
import pytest

import kerasbert as kb
from kerasbert.tasks.batches import encode_texts, training_batches
from kerasbert.tasks.task import find_task
from tests import tiny
from tests.checkpoints import theirs
from tests.checkpoints.theirs import parity
from tests.support import often
from tests.training.test_loss_parity import SIZES

DIMS = [24, 12, 6]
SCORES = np.random.default_rng(0).integers(0, 5, 60).astype("float32")
LABELS = np.random.default_rng(1).integers(0, 2, 60).astype("float32")
MARGINS = np.random.default_rng(2).normal(size=60).astype("float32")
# name -> (our loss, its options, texts of an input, targets, their class, Matryoshka)
CASES = {
    "ranking": ("ranking", {}, 3, None, "MultipleNegativesRankingLoss", False),
    "cached": ("ranking", {}, 3, None, "CachedMultipleNegativesRankingLoss", False),
    "cosine": ("cosine", {}, 2, SCORES, "CosineSimilarityLoss", False),
    "cosent": ("cosent", {}, 2, SCORES, "CoSENTLoss", False),
    "angle": ("angle", {}, 2, SCORES, "AnglELoss", False),
    "contrastive": ("contrastive", {}, 2, LABELS, "ContrastiveLoss", False),
    "triplet": ("triplet", {}, 3, None, "TripletLoss", False),
    "margin_mse": ("margin_mse", {}, 3, MARGINS, "MarginMSELoss", False),
    "kl": ("kl", {}, 3, MARGINS, "DistillKLDivLoss", False),
    "matryoshka ranking": ("ranking", {"dims": DIMS}, 3, None, "MultipleNegativesRankingLoss", True),
    "matryoshka cosent": ("cosent", {"dims": DIMS}, 2, SCORES, "CoSENTLoss", True),
    "2d ranking": ("ranking", {"dims": DIMS, "depths": [1]}, 3, None, "MultipleNegativesRankingLoss", True),
    "2d cosent": ("cosent", {"dims": DIMS, "depths": [1]}, 2, SCORES, "CoSENTLoss", True),
}


def setting(name):
    """Our task, texts and targets."""
    loss, options, width, targets, *_ = CASES[name]
    texts = tiny.sentences(60 * width, 3)
    texts = [
        f"{text} {text[:3]} {i}" for i, text in enumerate(texts)
    ]  # no two are equal: theirs masks no false negatives
    task = find_task("sts" if width == 2 else "pairs").optioned({"loss": loss, **options})
    inputs = [(texts[i], texts[60 + i] if width == 2 else (texts[60 + i], texts[120 + i])) for i in range(60)]
    if loss in ("margin_mse", "kl"):
        return dataclasses.replace(task, label="score"), inputs, [[x] for x in targets]
    return task, inputs, np.ones(60, "float32") if targets is None else targets


def their_loss(name, folder):
    """Their model of the folder's encoder and the mean, and their loss over it."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import losses, modules

    model = SentenceTransformer(
        modules=[modules.Transformer(str(folder)), modules.Pooling(SIZES["hidden_size"], "mean")], device="cpu"
    ).train()
    *_, kind, matryoshka = CASES[name]
    loss = getattr(losses, kind)(model)
    loss = losses.MatryoshkaLoss(model, loss, DIMS) if matryoshka else loss
    return model, losses.AdaptiveLayerLoss(model, loss) if "depths" in CASES[name][1] else loss


def updates(ours, model, loss_of, inputs, targets, count=20):
    """Losses of `count` updates, ours and theirs, of batches of 12 inputs: by AdamW, its biases and norms without decay."""
    import tensorflow as tf
    import torch

    from kerasbert.training.optimizers import AdamW

    groups = {True: [], False: []}
    for weight, parameter in model.named_parameters():
        groups["bias" not in weight and "LayerNorm" not in weight].append(parameter)
    groups = [{"params": each, "weight_decay": 0.1 * decayed} for decayed, each in groups.items()]
    optimizers = AdamW(1e-3, weight_decay=0.1, epsilon=1e-5), torch.optim.AdamW(groups, lr=1e-3, eps=1e-5)
    task = ours.model.declaration
    encoded, losses = encode_texts(tiny.tokenizer(), inputs, 24, kind=task.how), []
    task = ours.model.task = task.how.fitted(task, "rows", targets)
    targets = task.how.scaled(task, targets)
    for _, batch in zip(range(count), training_batches(encoded, targets, batch=12, longest=24, seed=0, task=task)):
        with tf.GradientTape() as tape:
            loss = ours.losses(batch)["label"] / ours.counts(batch)["label"]
        variables = ours.model.trainable_variables
        gradients = tape.gradient(
            loss, [v.value for v in variables], unconnected_gradients=tf.UnconnectedGradients.ZERO
        )
        optimizers[0].apply(list(map(tf.convert_to_tensor, gradients)), variables)
        optimizers[1].zero_grad()
        width = batch["label_texts"].shape[1]
        features = [
            {
                theirs_: torch.tensor(batch[own].reshape(12, width, -1)[:, k]).long()
                for theirs_, own in (("input_ids", "token_ids"), ("attention_mask", "padding_mask"))
            }
            for k in range(width)
        ]
        label = torch.tensor(batch["label"])
        if ours.kind.options["loss"] == "kl":  # a teacher's scores, of which ours keeps the margins
            label = torch.nn.functional.pad(-label, (1, 0))
        expected = loss_of(features, label)
        expected = sum(expected.values()) if isinstance(expected, dict) else expected
        expected.backward()
        optimizers[1].step()
        losses.append((float(loss), float(expected.detach())))
    return losses


def check(losses):
    """They are equal, and were moved."""
    assert max(abs(one - two) for one, two in losses) < 1e-4, losses
    assert abs(losses[-1][0] - losses[0][0]) > 1e-3


def save(folder, kind="BertModel", **sizes):
    """Their model with our tokenizer."""
    theirs.make(kind, SIZES | sizes).save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(tiny.tokenizer().vocabulary) + "\n")
    theirs.transformers().BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder)


@parity
@pytest.mark.parametrize("name", often(CASES, "ranking", "2d cosent"))
def test_20_updates_lose_what_sentence_transformers_loses(name, tmp_path, monkeypatch):
    pytest.importorskip("sentence_transformers")
    monkeypatch.setattr(
        "random.sample", lambda layers, count: CASES[name][1]["depths"]
    )  # theirs draws a layer below the last
    from kerasbert.tasks.model import TaskObjective

    save(tmp_path, num_hidden_layers=1 + ("depths" in CASES[name][1]))
    task, inputs, targets = setting(name)
    ours = TaskObjective(kb.import_checkpoint(tmp_path), task)
    check(updates(ours, *their_loss(name, tmp_path), inputs, targets))


@pytest.mark.full  # by hand: pip install datasets accelerate
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["ranking", "cosent", "matryoshka cosent"])
def test_a_fine_tuning_loses_what_their_trainer_loses(name, tmp_path):
    """`kb.finetune` and SentenceTransformerTrainer, 20 epochs of one batch: the same rate, decay and clip."""
    datasets = pytest.importorskip("datasets")
    pytest.importorskip("accelerate")
    from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments

    save(tmp_path)
    task, inputs, targets = setting(name)
    flat = [(one, *other) if isinstance(other, tuple) else (one, other) for one, other in inputs[:12]]
    scored = CASES[name][3] is not None
    rows = [(*row, float(target)) for row, target in zip(flat, targets)] if scored else inputs[:12]
    settings = {
        "batch": 12,
        "epochs": 20,
        "length": 24,
        "learning_rate": 1e-3,
        "weight_decay": 0.1,
        "warmup": 0,
        "clip": 0.5,
    }
    settings |= {"optimizer_options": {"epsilon": 1e-5}, "log_every": 1, "evaluate_every": 0, "quiet": True}
    settings |= {
        "schedule": "polynomial",
        "schedule_options": {"end": 1.0},
    }  # the same rate for all: their line to 0 ends elsewhere
    encoder = kb.import_checkpoint(tmp_path)
    kb.finetune(encoder, task, {"train": rows, "dev": rows}, out=tmp_path / "run", **settings)
    logs = map(json.loads, (tmp_path / "run" / "metrics.jsonl").read_text().splitlines())
    ours = [log["loss"] for log in logs if "loss" in log]

    model, loss_of = their_loss(name, tmp_path)
    model.max_seq_length = 24
    expected, forward = [], loss_of.forward
    loss_of.forward = lambda *given: (expected.append(forward(*given)), expected[-1])[1]
    columns = {f"text_{i}": [row[i] for row in flat] for i in range(len(flat[0]))}
    columns |= {"label": [float(target) for target in targets[:12]]} if scored else {}
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(tmp_path / "theirs"),
        num_train_epochs=20,
        per_device_train_batch_size=12,
        learning_rate=1e-3,
        weight_decay=0.1,
        adam_epsilon=1e-5,
        max_grad_norm=0.5,
        lr_scheduler_type="constant",
        use_cpu=True,
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
    )
    SentenceTransformerTrainer(model, arguments, datasets.Dataset.from_dict(columns), loss=loss_of).train()
    found = [float(each.detach()) for each in expected]
    assert len(found) == len(ours) == 20
    assert max(abs(one - two) for one, two in zip(ours, found)) < 1e-4, (ours, found)
    assert found[0] - found[-1] > 1e-2
