"""Twenty updates lose what transformers' model loses: the same weights and head, the same batches, no dropout, AdamW."""

import numpy as np
import pytest

import kerasbert as kb
from kerasbert.tasks.base import Task
from kerasbert.tasks.batches import encode_texts, training_batches
from tests import tiny
from tests.checkpoints import theirs
from tests.checkpoints.theirs import parity

SIZES = {
    "vocab_size": tiny.tokenizer().size,
    "hidden_size": 24,
    "num_attention_heads": 3,
    "intermediate_size": 40,
    "num_hidden_layers": 1,
    "max_position_embeddings": 32,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
LABELS = {"0": "no", "1": "perhaps", "2": "yes"}
DRAWN = np.random.default_rng(0)
# kind -> (task, targets of 60 texts)
CASES = {
    "classification": (Task("t", labels=LABELS), DRAWN.integers(0, 3, 60)),
    "smoothed": (Task("t", labels=LABELS, options={"label_smoothing": 0.2}), DRAWN.integers(0, 3, 60)),
    "weighted": (Task("t", labels=LABELS, options={"class_weights": {"yes": 3.0}}), DRAWN.integers(0, 3, 60)),
    "regression": (Task("t", kind="regression"), DRAWN.normal(3, 2, 60).astype("float32")),
    "multi_label": (Task("t", kind="multi_label", labels=LABELS), DRAWN.integers(0, 2, (60, 3)).astype("float32")),
}


def their_loss(case):
    """torch's loss of a case, of logits and of a batch."""
    import torch
    from torch.nn import functional

    def loss(logits, batch):
        label = torch.tensor(batch["label"])
        if case == "regression":
            return functional.mse_loss(logits[:, 0], label)
        if case == "multi_label":
            return functional.binary_cross_entropy_with_logits(logits, label)
        weight = torch.tensor([1.0, 1.0, 3.0]) if case == "weighted" else None
        return functional.cross_entropy(
            logits, label.long(), weight=weight, label_smoothing=0.2 if case == "smoothed" else 0.0
        )

    return loss


@parity
@pytest.mark.parametrize("case", ["smoothed", "regression", "multi_label"])
def test_20_updates_lose_what_transformers_loses(case, tmp_path):
    import tensorflow as tf
    import torch

    from kerasbert.tasks.model import TaskObjective
    from kerasbert.training.optimizers import AdamW

    task, targets = CASES[case]
    other = theirs.make("BertForSequenceClassification", SIZES | {"num_labels": max(1, len(task.labels))}).train()
    other.bert.save_pretrained(tmp_path)
    task = task.how.fitted(task, "rows", targets)
    ours = TaskObjective(kb.import_checkpoint(tmp_path), task)
    head = ours.model.heads["classifier"]
    head.kernel.assign(other.classifier.weight.detach().numpy().T)
    head.bias.assign(other.classifier.bias.detach().numpy())
    groups = {True: [], False: []}
    for name, parameter in other.named_parameters():
        groups["bias" not in name and "LayerNorm" not in name].append(parameter)
    groups = [{"params": each, "weight_decay": 0.1 * decayed} for decayed, each in groups.items()]
    optimizers = AdamW(1e-3, weight_decay=0.1, epsilon=1e-5), torch.optim.AdamW(groups, lr=1e-3, eps=1e-5)
    loss_of, losses = their_loss(case), []
    names = {"input_ids": "token_ids", "attention_mask": "padding_mask", "token_type_ids": "segment_ids"}
    encoded = encode_texts(tiny.tokenizer(), tiny.sentences(60, 3), 24)
    batches = training_batches(encoded, task.how.scaled(task, targets), batch=12, longest=24, seed=0, task=task)
    for _, batch in zip(range(20), batches):
        with tf.GradientTape() as tape:
            loss = ours.losses(batch)["label"] / ours.counts(batch)["label"]
        variables = ours.model.trainable_variables
        optimizers[0].apply(list(map(tf.convert_to_tensor, tape.gradient(loss, variables))), variables)
        other.zero_grad()
        logits = other(**{name: torch.tensor(batch[own]).long() for name, own in names.items()}).logits
        expected = loss_of(logits, batch)
        expected.backward()
        optimizers[1].step()
        losses.append((float(loss), float(expected.detach())))
    assert max(abs(one - two) for one, two in losses) < 1e-4
    assert np.mean(losses[-5:]) < np.mean(losses[:5])


@pytest.mark.full
@pytest.mark.parametrize("case", ["classification", "weighted"])
def test_20_updates_of_the_others(case, tmp_path):
    test_20_updates_lose_what_transformers_loses(case, tmp_path)
