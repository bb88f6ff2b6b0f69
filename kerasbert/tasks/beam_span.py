"""Spans whose ends are looked for by their starts: what `tasks.span` does with `starts` (Yang et al., 2019, section 3.1)."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

import numpy as np
from keras import ops

from kerasbert import spec as specs
from kerasbert.answers.span import SpanKind, null_item, text_item
from kerasbert.errors import InputError
from kerasbert.inputs import Tensor
from kerasbert.layers.beam_span import BeamSpan
from kerasbert.objectives.base import correct, cross_entropy

if TYPE_CHECKING:
    from kerasbert.layers.encoder import Encoder
    from kerasbert.storage.json_view import JsonMap
    from kerasbert.tasks.model import TaskModel
    from kerasbert.text.base import Tokenizer

GIVEN = "given_start"  # in a batch that is learnt from: int [B], where the right answer begins


def head(encoder: "Encoder", options: "JsonMap", name: str) -> BeamSpan:
    """The layer that reads an encoder's tokens."""
    spec, policy = encoder.spec, encoder.dtype_policy
    deviation = specs.head_deviation(spec)
    return BeamSpan(options["starts"], spec.epsilon, deviation, name=name, dtype=policy)


def places(tokenizer: "Tokenizer | None", inputs: Mapping[str, Tensor], letter: str = "B") -> tuple[Tensor, Tensor]:
    """Where an answer may begin or end, and the token of no answer, which is allowed too: bool [B, S] each.

    The context stands behind as many special tokens as the tokenizer's template has in front of it; `letter` is its own there.

    Raises:
        InputError: no tokenizer tells where, or one that finds such tokens within texts too.
    """
    if tokenizer is None:
        raise InputError("starts looks for the context in a row by the tokenizer's template, and there is no tokenizer")
    items, ids = tokenizer.pair, ops.cast(inputs["token_ids"], "int32")
    specials = sorted({item.id for item in items if not item.text})
    if spelled := sorted({tokenizer.vocabulary[i] for i in specials} & {token.content for token in tokenizer.added}):
        raise InputError(
            f"starts looks for the context between {', '.join(spelled)}, which the tokenizer finds within texts too: import "
            "without --special-tokens-in-texts"
        )
    at = text_item(items, letter)
    before = sum(not item.text for item in items[:at])
    special = ops.any(ops.equal(ops.expand_dims(ids, 2), np.array(specials, "int32")), axis=2)
    passed = ops.cumsum(ops.cast(special, "int32"), axis=1)
    context = ops.logical_and(ops.equal(passed, before), ops.logical_not(special))
    if "padding_mask" in inputs:
        context = ops.logical_and(context, ops.cast(inputs["padding_mask"], "bool"))
    same = ops.cast(ops.equal(ids, items[null_item(items, tokenizer.cls_id)].id), "int32")
    null = ops.logical_and(ops.cast(same, "bool"), ops.equal(ops.cumsum(same, axis=1), 1))
    return ops.logical_or(context, null), null


def logits(model: "TaskModel", read: Tensor, inputs: Mapping[str, Tensor] | None, training: bool) -> Tensor:
    """What the head says of tokens, as of `BeamSpan`."""
    if inputs is None:
        raise InputError("starts looks for the context in a row, and there are no inputs")
    layer = model.heads[model.kind.head]
    letter = cast(SpanKind, model.kind.answers).letter
    return layer(read, *places(model.tokenizer, inputs, letter), inputs.get(GIVEN), training=training)


def losses(found: Tensor, batch: Mapping[str, Tensor], unanswerable: bool) -> dict[str, Tensor]:
    """Half the cross-entropies of start and end, and half that of whether there is an answer: as XLNet's released code.

    Args:
        found: [B, S, 3] as of `BeamSpan` given a start.
    """
    label, weights = batch["label"], batch["label_weight"]
    ends = [(found[..., i], label[:, i]) for i in (0, 1)]
    hits = correct(*ends[0]) * correct(*ends[1])
    none = found[:, 0, 2]
    known = ops.softplus(none) - none * batch["no_answer"] if unanswerable else 0.0 * none
    loss = (cross_entropy(*ends[0]) + cross_entropy(*ends[1]) + known) / 2
    return {"label": ops.sum(loss * weights), "label/accuracy": ops.sum(hits * weights)}
