"""What the battery needs of families that write tokens: a next-token loss, and what two stacks must hold."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
from keras import ops

from kerasbert import registry
from kerasbert.inputs import Tensor
from kerasbert.layers.heads import LabelHead
from kerasbert.layers.readout import readout
from kerasbert.objectives.base import Objective, cross_entropy

if TYPE_CHECKING:
    from collections.abc import Callable

    import keras


class NextToken(Objective):
    """Each token from those before it: of the target where there are two stacks, else of the text.

    It trains a family that has no objective of its own, on random tokens.
    """

    scales: Mapping[str, float] = MappingProxyType({"lm": 1.0})

    def heads(self, encoder: "keras.Model") -> "tuple[dict[str, keras.layers.Layer], dict[str, tuple]]":
        return {}, {}

    def counts(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {"lm": ops.sum(self._labels(batch)[1])}

    def losses(self, batch: Mapping[str, Tensor], training: bool = True) -> dict[str, Tensor]:
        labels, weights = self._labels(batch)
        encoder = self.model.body
        logits = encoder.logits(self.model(batch, training=training)["sequence"])[:, :-1]
        right = ops.take_along_axis(logits, ops.expand_dims(labels, -1), axis=-1)[..., 0]
        return {"lm": ops.sum((ops.logsumexp(logits, axis=-1) - right) * weights)}

    def _labels(self, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """What follows each token, and whether something does: [B, T - 1] twice."""
        prefix = "decoder_" if "decoder_token_ids" in batch else ""
        labels, mask = batch[f"{prefix}token_ids"], batch[f"{prefix}padding_mask"]
        return labels[:, 1:], ops.cast(mask[:, 1:], "float32")


class RowLabel(Objective):
    """Which of two classes a text is of, by the number of its row: it trains a family that predicts no tokens."""

    scales: Mapping[str, float] = MappingProxyType({"label": 1.0})

    def heads(self, encoder: "keras.Model") -> "tuple[dict[str, keras.layers.Layer], dict[str, tuple]]":
        head = LabelHead(2, 0.2, name="label", dtype=encoder.dtype_policy)
        return {"label": head}, {"label": (None, encoder.spec.hidden)}

    def counts(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {"label": ops.sum(ops.ones_like(batch["row"], dtype="float32"))}

    def losses(self, batch: Mapping[str, Tensor], training: bool = True) -> dict[str, Tensor]:
        sequence = self.model(batch, training=training)["sequence"]
        kind = registry.family_of(self.model.body).readout
        logits = self.model.heads["label"](readout(sequence, batch["padding_mask"], kind), training=training)
        return {"label": ops.sum(cross_entropy(logits, ops.mod(batch["row"], 2)))}


def target(ids: np.ndarray, mask: np.ndarray) -> dict[str, np.ndarray]:
    """A target to a source [B, S]: the last rows' tokens first, two tokens shorter, row 0 with the most padding."""
    return {"decoder_token_ids": ids[::-1, 2:].copy(), "decoder_padding_mask": mask[::-1, 2:].copy()}


def check_two_stacks(
    model: "keras.Model", inputs: Mapping[str, np.ndarray], layers: int | None, relative: "Callable"
) -> None:
    """Padding of neither side is seen, nor what a target's token comes before; single queries are as among all.

    Args:
        inputs: of three rows; the last target row has no padding.
        layers: int, of the decoder; None where it has no blocks.
        relative: (one, other) -> largest difference as a share.
    """
    outputs = model(inputs)
    whole, length = np.asarray(outputs["sequence"]), inputs["decoder_token_ids"].shape[1]
    assert layers is None or len(outputs["hidden"]) == layers + 1
    for queries, picked in (("first", [[0]] * 3), (np.array([[2, 1], [0, 0], [1, 3]], "int32"), None)):
        single = np.asarray(model(inputs, queries=queries)["sequence"])
        assert relative(single, np.take_along_axis(whole, np.array(picked or queries)[..., None], axis=1)) < 1e-5
    for side in ("", "decoder_"):
        ids, mask = inputs[f"{side}token_ids"], inputs[f"{side}padding_mask"]
        other = model({**inputs, f"{side}token_ids": np.where(mask == 1, ids, ids[0, 0])})["sequence"]
        real = inputs["decoder_padding_mask"] == 1
        np.testing.assert_array_equal(np.asarray(other)[real], whole[real])
    later = {**inputs, "decoder_token_ids": inputs["decoder_token_ids"].copy()}
    later["decoder_token_ids"][:, length - 2] += 1
    changed = np.asarray(model(later)["sequence"])
    np.testing.assert_array_equal(changed[:, : length - 2], whole[:, : length - 2])
    assert relative(changed[2, length - 2], whole[2, length - 2]) > 1e-4
    source = {**inputs, "token_ids": np.roll(inputs["token_ids"], 1, axis=0)}
    assert relative(model(source)["sequence"], whole) > 1e-4


def check_steps(model: "keras.Model", inputs: Mapping[str, np.ndarray], relative: "Callable") -> None:
    """Token after token from a cache, the logits are those of all tokens at once, whatever the other rows have.

    Args:
        model: with `start` and `step`.
        inputs: as the model is called on, texts at the left.
        relative: (one, other) -> largest difference as a share.
    """
    side = "decoder_" if "decoder_token_ids" in inputs else ""
    ids, lengths = inputs[f"{side}token_ids"], inputs[f"{side}padding_mask"].sum(axis=1)
    rows, length = ids.shape
    whole = np.asarray(model.logits(model(inputs)["sequence"]))
    # from the first token on; with a prompt of 3 tokens at most, whose last one is read again, each row at a place of its own
    prompt = {f"{side}{name}": inputs[f"{side}{name}"][:, :3] for name in ("token_ids", "padding_mask")}
    begun = prompt[f"{side}padding_mask"].sum(axis=1) - 1
    begins = [({**inputs, **prompt}, begun)]
    if side:
        source = {name: value for name, value in inputs.items() if not name.startswith(side)}
        begins.append((source, np.zeros(rows, "int32")))
    for given, column in begins:
        state = model.start(given, length + 2)
        for t in range(length):
            at = np.minimum(column + t, lengths - 1).astype("int32")
            logits, state = model.step(ids[np.arange(rows), at], at, state)
            assert relative(logits, whole[np.arange(rows), at]) < 1e-5
