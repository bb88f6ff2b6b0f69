"""RoFormer: Enhanced Transformer with Rotary Position Embedding (Su et al., 2021).

Differences from BERT, section 3.2: no learned positions; queries and keys are rotated by their places, numbers 2i and 2i + 1 of a
head together (equation 34), so that a score depends on the distance. No pooler, no next sentence: masked tokens alone (4.2).

Of the released code: `rotary.values` rotates the values too (rotary_value); embeddings may be narrower than the stack. A text is
classified by a layer over the first token with the blocks' activation.

Differs: the Chinese releases split texts by jieba before WordPiece. Here a vocabulary is BERT's WordPiece, and their tokenizer is
refused.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from kerasbert.checkpoints import buffers
from kerasbert.checkpoints.names import Class
from kerasbert.errors import InputError
from kerasbert.inputs import Tensor
from kerasbert.layers.block import Block
from kerasbert.layers.context import Context
from kerasbert.layers.encoder import Encoder
from kerasbert.layers.feedforward import GATED
from kerasbert.layers.rotary import RotaryAttention, check_head_size, with_places
from kerasbert.models.bert import HF as BERT_HF
from kerasbert.models.bert import ONE_MAP
from kerasbert.registry import Family, register
from kerasbert.spec import Embeddings, Spec
from kerasbert.storage.json_view import Json


@dataclasses.dataclass(frozen=True)
class Rotary:
    """What is rotated.

    Args:
        values: bool, whether the values are, beside queries and keys.
    """

    values: bool = False


@dataclasses.dataclass(frozen=True)
class RoFormerSpec(Spec):
    """A Spec with rotary positions."""

    rotary: Rotary = Rotary()

    def validate(self) -> "RoFormerSpec":
        """Check what no single field can tell; returns self."""
        super().validate()
        check_head_size(self.head_size)
        if self.embeddings.kind != "none":
            raise InputError(f"RoFormer has embeddings.kind none. Received: {self.embeddings.kind}")
        return self


class RoFormerAttention(RotaryAttention):
    """Rotary attention with pairs as in the paper.

    Args: as Attention; values: bool, whether values are rotated too.
    """

    def __init__(self, *args: Any, values: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **{"interleaved": True, **kwargs})
        self.values = values

    def placed(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        bias: Tensor | None,
        *,
        scoring: Tensor | None = None,
        **at: object,
    ) -> tuple:
        value = self.turned(value, scoring) if self.values else value
        return super().placed(query, key, value, bias, scoring=scoring, **at)

    def get_config(self) -> Json:
        return {**super().get_config(), "values": self.values}


class RoFormerBlock(Block):
    """BERT's layer. Args: as Block; values: bool, as of RoFormerAttention."""

    def __init__(self, *, values: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.values = values

    def attention_class(self, *args: Any, **kwargs: Any) -> RoFormerAttention:
        """That of the Spec."""
        return RoFormerAttention(*args, values=self.values, **kwargs)

    def get_config(self) -> Json:
        return {**super().get_config(), "values": self.values}


class RoFormer(Encoder):
    """The encoder."""

    open_lengths = True

    @property
    def block_class(self) -> Callable:
        """Blocks that rotate what the Spec says."""
        return functools.partial(RoFormerBlock, values=self.spec.rotary.values)

    @property
    def label_activation(self) -> str:
        """The blocks'."""
        return self.spec.feedforward.activation.removeprefix(GATED)

    def context(self, inputs: Mapping[str, Tensor]) -> Context:
        return with_places(super().context(inputs), inputs)


def _table(spec: RoFormerSpec) -> np.ndarray:
    """The sinusoids that their files hold."""
    return np.asarray(buffers.sines((spec.embeddings.positions, spec.head_size)), "float32")


HF = BERT_HF.derive(
    ("bert.", "roformer."),
    rows=(
        ("embeddings/projection", "roformer.embeddings_project"),
        ("heads/classifier/inner", "classifier.dense"),
        ("heads/classifier", "classifier.out_proj"),
    ),
    heads={name: BERT_HF.heads[name] for name in ("mlm", "span")}
    | {"classifier": {"inner/kernel": "H H", "inner/bias": "H", "kernel": "H L", "bias": "L"}},
    config=(*BERT_HF.config, ("embeddings.width", "embedding_size"), ("rotary.values", "rotary_value")),
    silent={"embedding_size": lambda config: config.get("hidden_size"), "rotary_value": False},
    fixed={"model_type": "roformer", "is_decoder": False, "add_cross_attention": False},
    classes={
        "RoFormerModel": Class(),
        "RoFormerForMaskedLM": Class(("mlm",)),
        "RoFormerForSequenceClassification": Class(("classifier",)),
        "RoFormerForTokenClassification": ONE_MAP,
        "RoFormerForQuestionAnswering": Class(("span",)),
        "RoFormerForMultipleChoice": Class(
            refused="answers by the vector of the last place, be it padding",
            without=("classifier.*",),
        ),
    },
    ignored={"*encoder.embed_positions.weight": buffers.sines},
    stored={"roformer.encoder.embed_positions.weight": _table},
    unprojected=True,
)

ROFORMER = register(
    Family(
        name="roformer",
        spec=RoFormerSpec(pooler=False, embeddings=Embeddings(vocabulary=50000, positions=1536, kind="none")),
        sizes={"base": {}},
        encoder=RoFormer,
        objective="masked_lm",
        names={"hf": HF},
        paper="Su et al., 2021, RoFormer: Enhanced Transformer with Rotary Position Embedding",
    )
)
