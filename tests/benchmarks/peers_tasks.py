"""transformers' models trained by torch on our batches, targets and schedule, and judged by our metrics.

What differs from ours is then the training alone: the model's code, the optimizer's, the head's first weights, the dropout.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from keras import ops

import kerasbert as kb
from kerasbert.data import processes
from kerasbert.tasks.base import Task
from kerasbert.tasks.batches import Encoded, encode_texts, training_batches
from kerasbert.tasks.graph_values import run
from kerasbert.training.splits import Split

NAMES = {"token_ids": "input_ids", "padding_mask": "attention_mask", "segment_ids": "token_type_ids"}
Arrays = dict[str, Any]


class Peer(NamedTuple):
    """A kind in transformers.

    Args:
        auto: str, its AutoModel class.
        logits: (what the model returns) -> what our head gives, [B, L] or [B, S, L].
        losses: (logits, batch) -> losses, of the shape of `label_weight` or [B, n].
    """

    auto: str
    logits: Callable[[Any], Any]
    losses: Callable[[Any, Arrays], Any]


def _of_labels(logits: Any, batch: Arrays) -> Any:
    """Cross-entropy of each label: logits [..., L], labels [...]."""
    from torch.nn.functional import cross_entropy

    return cross_entropy(logits.flatten(0, -2), batch["label"].long().flatten(), reduction="none").view(
        batch["label"].shape
    )


def _of_places(logits: Any, batch: Arrays) -> Any:
    """Half of the cross-entropies of the first and of the last token, over the real tokens: [B]."""
    real = batch["padding_mask"].bool().unsqueeze(-1)
    places = logits.masked_fill(~real, -1e4).transpose(1, 2)
    return _of_labels(places, batch).mean(-1)


def _ends(outputs: Any) -> Any:
    import torch

    return torch.stack([outputs.start_logits, outputs.end_logits], dim=-1)


PEERS = {
    "classification": Peer("AutoModelForSequenceClassification", lambda outputs: outputs.logits, _of_labels),
    "regression": Peer(
        "AutoModelForSequenceClassification",
        lambda outputs: outputs.logits,
        lambda logits, batch: (logits[:, 0] - batch["label"]) ** 2,
    ),
    "tags": Peer("AutoModelForTokenClassification", lambda outputs: outputs.logits, _of_labels),
    "span": Peer("AutoModelForQuestionAnswering", _ends, _of_places),
}


def encoded_parts(task: Task, known: Split, folder: Any, length: int) -> list[Encoded]:
    """The train and the dev rows as our training packs them."""
    tokenizer = kb.load_tokenizer(folder)
    return [encode_texts(tokenizer, rows.texts, length, kind=task.how) for rows in (known.train, known.dev) if rows]


def trained(
    known: Split, folder: Any, seed: int, *, epochs: int, batch: int, length: int, rate: float, decay: float
) -> tuple[Task, Any, Encoded]:
    """Fine-tune transformers' model of the weights in a folder.

    Returns:
        the task, the outputs of the dev rows after the last update as our metrics take them, and these rows.
    """
    import torch
    import transformers

    transformers.logging.set_verbosity_error()  # the head is new
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(processes.available())
    torch.manual_seed(seed)
    assert known.train is not None
    task, peer = known.task.how.fitted(known.task, "train", known.train.targets), PEERS[known.task.kind]
    columns = {"num_labels": max(1, len(task.labels))} if peer.losses is not _of_places else {}
    model = getattr(transformers, peer.auto).from_pretrained(folder, **columns).train()
    train, dev = encoded_parts(task, known, folder, length)
    steps = epochs * -(-len(train.units(task.how.together)) // batch)
    optimizer = torch.optim.AdamW(_groups(model, decay), lr=rate, eps=1e-6)
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, steps // 10, steps)

    def logits(arrays: Arrays) -> Any:
        return peer.logits(model(**{other: arrays[name].long() for name, other in NAMES.items()}))

    targets = task.how.scaled(task, known.train.targets)
    batches = training_batches(train, targets, batch=batch, longest=length, seed=seed, task=task)
    for _, arrays in zip(range(steps), batches):
        arrays = {name: torch.tensor(value) for name, value in arrays.items()}
        errors, weight = peer.losses(logits(arrays), arrays), arrays["label_weight"]
        optimizer.zero_grad()
        ((errors * weight).sum() / weight.sum()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    model.eval()

    def answer(arrays: Arrays) -> Any:
        with torch.no_grad():
            values = logits({name: torch.tensor(value.numpy()) for name, value in arrays.items()}).numpy()
        return next(iter(task.how.outputs(task, ops.convert_to_tensor(values)).values()))

    return task, run(answer, dev, length, per_token=task.how.per_token), dev


def _groups(model: Any, decay: float) -> list[dict[str, Any]]:
    """Biases and norms without decay, as BERT trains them."""
    groups: dict[bool, list] = {True: [], False: []}
    for name, parameter in model.named_parameters():
        groups["bias" not in name and "LayerNorm" not in name].append(parameter)
    return [{"params": each, "weight_decay": decay * decayed} for decayed, each in groups.items()]
