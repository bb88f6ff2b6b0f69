"""Answers whose ends are looked for by their starts: XLNetForQuestionAnswering and XLMForQuestionAnswering of transformers."""

import numpy as np
import pytest

import kerasbert as kb
from kerasbert import text
from kerasbert.layers.beam_span import IMPOSSIBLE
from kerasbert.tasks import beam_span
from kerasbert.tasks.model import TaskObjective
from kerasbert.tasks.predict import encoded_for, task_logits
from kerasbert.tasks.span import Target
from kerasbert.testing.battery import tokenizer
from tests.checkpoints.theirs import close, make, parity, same_weights, transformers

QUESTIONS = [
    ("the film", "the cat sees the good river"),
    ("old", "a house by the stone"),
    ("the dog runs", "very old is the old stone"),
]
TARGETS = [Target(("good",), 17, 21), Target(()), Target(("very old",), 0, 8)]
LENGTH = 48


def pieces(family):
    return tokenizer("unigram", "xlnet") if family == "xlnet" else tokenizer("bpe")


def imported(family, seed, starts, folder):
    """Their model with all ends told, and ours of its files, with a tokenizer."""
    size = len(pieces(family).vocabulary)
    config = {"start_n_top": starts, "end_n_top": LENGTH, "vocab_size": size, "layer_norm_eps": 1e-3}
    if family == "xlnet":
        config |= {"d_model": 18 + 4 * seed, "n_layer": 2, "n_head": 2, "d_inner": 23}
        their = make("XLNetForQuestionAnswering", config, seed)
    else:
        their = make("XLMForQuestionAnswering", config | {"emb_dim": 18 + 6 * seed, "n_layers": 2, "n_heads": 3}, seed)
    their.save_pretrained(folder / "theirs")
    text.save_hf(pieces(family), folder / "theirs" / "tokenizer.json")
    kb.import_checkpoint(folder / "theirs", out=folder / "ours")
    return their, kb.load(folder / "ours")


def given(model, family, options=None):
    """A batch of ours with its targets, and the same in their words."""
    import torch

    task = model.task.optioned({"unanswerable": True} | (options or {}))
    encoded = encoded_for(model, QUESTIONS, LENGTH)
    batch = task.how.batch(task, encoded.rows, TARGETS, len(QUESTIONS), LENGTH)
    batch |= encoded.arrays(range(len(QUESTIONS)), LENGTH, lengths=[LENGTH])
    allowed, null = (np.asarray(x) for x in beam_span.places(model.tokenizer, batch, model.kind.answers.letter))
    theirs = {"input_ids": batch["token_ids"], "attention_mask": batch["padding_mask"], "cls_index": null.argmax(1)}
    if family == "xlnet":
        theirs["token_type_ids"] = batch["segment_ids"]
    theirs = {name: torch.tensor(np.asarray(x)).long() for name, x in theirs.items()}
    return batch, allowed, null, theirs | {"p_mask": torch.tensor(1 - allowed.astype("float32"))}


@parity
@pytest.mark.parametrize(("seed", "starts"), [(0, 1), (1, 3), (2, 5)])
@pytest.mark.parametrize("family", ["xlnet", "xlm"])
def test_starts_and_their_ends(family, seed, starts, tmp_path):
    import torch

    their, model = imported(family, seed, starts, tmp_path)
    batch, allowed, null, theirs = given(model, family)
    with torch.no_grad():
        expected = their(**theirs)
    found = np.asarray(task_logits(model, batch))
    assert found.shape == (*allowed.shape, 2 * starts)
    begins, ends = found[..., ::2], found[..., 1::2]
    for row in range(len(found)):
        assert allowed[row].sum() > starts
        context = allowed[row] & ~null[row]
        for k in range(starts):
            at = int(expected.start_top_index[row, k])
            if context[at]:
                assert np.flatnonzero(begins[row, :, k] > IMPOSSIBLE).tolist() in (
                    [at],
                    sorted({at, null[row].argmax()}),
                )
                close(np.exp(begins[row, at, k]), expected.start_top_log_probs[row, k])
            whole = expected.end_top_log_probs.reshape(len(found), LENGTH, starts)[row, :, k]
            order = expected.end_top_index.reshape(len(found), LENGTH, starts)[row, :, k]
            told = torch.zeros(LENGTH).scatter(0, order, whole)
            close(np.exp(ends[row, context, k]), told[context])
    close(found[null][:, 0], expected.cls_logits)
    assert not found[null][:, 1:].any()


@parity
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("family", ["xlnet", "xlm"])
def test_the_loss_and_its_gradients(family, seed, tmp_path):
    import tensorflow as tf
    import torch

    their, model = imported(family, seed, 3, tmp_path)
    batch, _, _, theirs = given(model, family)
    about = {"start_positions": batch["label"][:, 0], "end_positions": batch["label"][:, 1]}
    about = {name: torch.tensor(x).long() for name, x in about.items()} | {
        "is_impossible": torch.tensor(batch["no_answer"])
    }
    loss = their(**theirs, **about).loss
    loss.backward()
    model.task = model.task.optioned({"unanswerable": True})
    objective = TaskObjective.__new__(TaskObjective)
    objective.model, objective.kind, objective.scales = model, model.kind, {"label": 1.0}
    with tf.GradientTape() as tape:
        ours = objective.losses({name: tf.constant(x) for name, x in batch.items()}, training=False)["label"] / len(
            QUESTIONS
        )
    close(ours.numpy(), loss)
    head = model.heads["beam_span"]
    token, start = tape.gradient(ours, [head.end_token.kernel, head.end_start.kernel])
    end = (their if family == "xlnet" else their.qa_outputs).end_logits.dense_0.weight.grad
    close(np.concatenate([token, start]).T, end)


@parity
@pytest.mark.parametrize("family", ["xlnet", "xlm"])
def test_back_again(family, tmp_path):
    their, model = imported(family, 1, 4, tmp_path)
    kb.export_checkpoint(tmp_path / "ours", tmp_path / "back")
    back, loading = type(their).from_pretrained(tmp_path / "back", output_loading_info=True)
    assert not any(loading[part] for part in ("missing_keys", "unexpected_keys", "mismatched_keys")), loading
    assert back.config.start_n_top == 4
    for name, tensor in back.state_dict().items():
        assert (tensor == their.state_dict()[name]).all(), name
    again = kb.import_checkpoint(tmp_path / "back", out=tmp_path / "again")
    same_weights(again, kb.import_checkpoint(tmp_path / "theirs"))
    assert kb.load(tmp_path / "again").task.options == model.task.options
    first = {"context_first": True} if family == "xlnet" else {}  # as run_qa for a tokenizer that pads at the left
    assert model.task.options == {"starts": 4, **first}
    assert transformers().AutoConfig.from_pretrained(tmp_path / "back").architectures == [type(their).__name__]
