"""UniLM: Unified Language Model Pre-training for Natural Language Understanding and Generation (Dong et al., 2019).

BERT's network (section 2.2; that of BERT-large, cased), whose masks say what is learned. It pretrains four language models, each
by predicting [MASK]s (sections 2.3 and 2.4):

| language model | a token sees | segments |
|---|---|---|
| bidirectional | everything; the next sentence is asked for too | 0, 1 |
| left-to-right | what stands before it, and itself | 2 |
| right-to-left | what stands behind it, and itself | 3 |
| sequence-to-sequence | of the first segment the first; of the second the first, what stands before it, and itself | 4, 5 |

- of the rows a third is bidirectional, a third sequence-to-sequence, a sixth left-to-right and a sixth right-to-left;
- segment embeddings tell the language models apart (section 2.1; the numbers are those of the released code, which has six);
- 15% of the tokens are predicted; single ones in 80% of the choices, two or three in a row in 20%; 80, 10 and 10% of them are
  seen as [MASK], as a random token and as they are.

Generation and its fine-tuning (section 2.5) are those of every encoder, `layers/masked_writer.py`; it uses segments 4 and 5.

The language model of a row is drawn by what the records say of its pair. Of pairs that follow one another two thirds are
sequence-to-sequence and a third is bidirectional; of the others a third each is bidirectional, left-to-right and right-to-left.
Where half of the pairs follow one another, as BERT's do, these are the paper's shares, half of the bidirectional pairs follow,
and every target follows its source.

Differs: the paper begins with the weights of BERT-large, here they begin as new. A left-to-right or right-to-left row is one text
in the paper, here it is two, one behind the other.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import keras
import numpy as np
from keras import ops

from kerasbert.errors import InputError
from kerasbert.inputs import Tensor
from kerasbert.layers import random, visibility
from kerasbert.layers.encoder import Encoder
from kerasbert.layers.masked_writer import segment_ids, writes_at_masks
from kerasbert.models.bert import BERT, HF
from kerasbert.objectives.bert import BertPretraining, PretrainingModel
from kerasbert.objectives.masked_lm import MaskedLM, row_keys
from kerasbert.objectives.select import Selection, tile, whole
from kerasbert.registry import register, register_objective, register_selection

if TYPE_CHECKING:
    from kerasbert.data.records import Records


BIDIRECTIONAL, LEFT_TO_RIGHT, RIGHT_TO_LEFT, SEQ2SEQ = range(4)
SEGMENTS = np.array([[0, 1], [2, 2], [3, 3], [4, 5]], np.int32)  # of both segments of a row, by language model
DRAWN = np.array([[BIDIRECTIONAL, SEQ2SEQ, SEQ2SEQ], [BIDIRECTIONAL, LEFT_TO_RIGHT, RIGHT_TO_LEFT]], np.int32)
TOKEN_NGRAMS = (0.8, 0.1, 0.1)  # of 1, 2 and 3 tokens (section 2.4)


def token_ngrams(
    key: Tensor, eligible: Tensor, count: Tensor, predictions: int, begins: Callable[[], Tensor] | None = None
) -> Selection:
    """Groups of 1 to 3 tokens, 80, 10 and 10% of them (Dong et al., 2019, section 2.4); otherwise as `select.ngrams`."""
    return whole(key, eligible, tile(key, eligible, ops.ones_like(eligible), TOKEN_NGRAMS), count, predictions)


class UniLMModel(PretrainingModel):
    """PretrainingModel whose tokens see what the language model of their row lets them.

    Call: also first_seen and last_seen [B, S], the places that each token sees from and to.
    """

    def call(self, inputs: Tensor, training: bool = False) -> dict[str, Tensor]:
        segments = segment_ids(inputs["segment_ids"], self.encoder.spec.embeddings.segments)
        visible = visibility.within(inputs["first_seen"], inputs["last_seen"])
        return super().call({**inputs, "segment_ids": segments, "visible_matrix": visible}, training=training)


class UniLMPretraining(BertPretraining):
    """Masked LM under four masks + next sentence where the row is bidirectional."""

    defaults: Mapping[str, object] = {"select": "token_ngrams"}
    model_class = UniLMModel

    @classmethod
    def check(cls, settings: MaskedLM, records: "Records") -> None:
        super().check(settings, records)
        if "next_label" not in records.features:
            raise InputError(
                f"records {records.directory} hold no pairs of which some follow one another and some do not, which the "
                "language models of unilm are drawn by: make them again with --packing pairs"
            )

    def heads(self, encoder: Encoder) -> tuple[dict[str, keras.layers.Layer], dict[str, tuple]]:
        if not writes_at_masks(type(encoder)):
            raise InputError(
                f"{type(encoder).__name__} decides by itself who sees whom, and this objective does: choose another (--objective)"
            )
        return super().heads(encoder)

    def prepare(self, features: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """As BERT's batch, segment_ids of the six; first_seen, last_seen int32 [B, S], pair_weights float32 [B]."""
        batch, lengths = super().prepare(features), features["segment_lengths"]
        key = row_keys(features, self.settings, self.seed, "language_model")
        draw = ops.cast(random.bits(key, (1,))[:, 0] % np.uint32(3), "int32")
        mode = ops.expand_dims(ops.take(DRAWN.ravel(), 3 * features["next_label"] + draw), 1)
        here = ops.broadcast_to(ops.arange(batch["token_ids"].shape[1]), ops.shape(batch["token_ids"]))
        end = ops.sum(lengths, axis=1, keepdims=True) - 1
        last = ops.where(
            mode == LEFT_TO_RIGHT, here, ops.maximum(end, here)
        )  # padding, which nobody reads, sees itself
        last = ops.where(mode == SEQ2SEQ, visibility.last_seen(here, lengths[:, :1]), last)
        segments = ops.take(SEGMENTS.ravel(), 2 * mode + batch["segment_ids"])
        return batch | {
            "segment_ids": segments * batch["padding_mask"],
            "first_seen": ops.where(mode == RIGHT_TO_LEFT, here, 0),
            "last_seen": last,
            "pair_weights": ops.cast(mode[:, 0] == BIDIRECTIONAL, "float32"),
        }

    def pair_weights(self, batch: Mapping[str, Tensor], feature: str) -> Tensor:
        return batch["pair_weights"]


register_selection("token_ngrams", token_ngrams)
register_objective("unilm", UniLMPretraining)
UNILM = register(
    BERT.derive(
        "unilm",
        spec={"embeddings.segments": 6, "embeddings.vocabulary": 28996},
        sizes={"base": {}, "large": BERT.sizes["large"], "base-uncased": {"embeddings.vocabulary": 30522}},
        aliases={"base-cased": "base", "large-cased": "large"},
        objective="unilm",
        names={"hf": HF},
        paper="Dong et al., 2019, Unified Language Model Pre-training for Natural Language Understanding and Generation",
    )
)
