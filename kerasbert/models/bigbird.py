"""Big Bird: Transformers for Longer Sequences (Zaheer et al., 2020), the internal construction (ITC).

Differences from BERT:

- Section 2 and appendix D, "Block-Sparse": a row is cut into blocks of c tokens. A block sees itself and both neighbours, the
  first and the last block, which see all and are seen by all, and r more that are drawn once for each layer, head and block.
- Section 3: "full" rows of masked tokens alone; a SentencePiece vocabulary of 50,000; positions up to 4,096, GELU by tanh.

As in transformers: a row of at most (5 + 2r) c tokens has full attention; a longer one is filled up to whole blocks, of which the
last is the last global one, so that what it computes depends on its padding; blocks are drawn by numpy from the layer's number,
up to block 2r + 5, and at 1,024, 3,072 and 4,096 tokens as in the released code (a neighbour that is drawn counts twice).

An answer's ends have a feed-forward network of their own in the head. Differs: transformers leaves the question's tokens out of
the softmax of its loss; here they take part, as in BERT.

Differs: transformers draws in training alone and else sees the first block r times more, `sparse.plan` "first": what its
checkpoints are read with. `--set sparse.plan=drawn` sees as the paper does. Its long rows have no attention dropout; ours have.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

from keras import ops

from kerasbert.checkpoints.names import Class, Dialect
from kerasbert.errors import InputError
from kerasbert.inputs import Shape, Tensor
from kerasbert.layers.block import Block, PreNormBlock
from kerasbert.layers.block_sparse import Row, Sparse, SparseAttention
from kerasbert.layers.context import Context, Queries
from kerasbert.layers.encoder import Encoder
from kerasbert.layers.feedforward import GATED, FeedForward, Linear
from kerasbert.layers.heads import LabelHead
from kerasbert.layers.norms import LayerNorm
from kerasbert.models.bert import BERT, ONE_MAP
from kerasbert.models.bert import HF as BERT_HF
from kerasbert.registry import register
from kerasbert.spec import Spec
from kerasbert.storage.json_view import Json


@dataclasses.dataclass(frozen=True)
class BigBirdSpec(Spec):
    """An encoder with blocks of tokens.

    Args:
        sparse: Sparse.
    """

    sparse: Sparse = Sparse()

    def validate(self) -> "BigBirdSpec":
        super().validate()
        self.sparse.check()
        if self.attention.causal and self.sparse.plan != "full":
            raise InputError("attention.causal needs sparse.plan 'full': blocks are seen both ways")
        return self

    def seen(self, layer: int, length: float) -> float:
        """Neighbours, both ends and what is drawn; and the share of the ends, which see all."""
        if self.sparse.plan == "full" or length <= self.sparse.limit:
            return length
        return min(length, (7 + self.sparse.random) * self.sparse.block)


class BigBirdBlock(Block):
    """A layer whose attention is over blocks in long rows. Args: as Block; sparse: Sparse; longest: int, of the Spec."""

    def __init__(self, *, sparse: Sparse, longest: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.settings |= {"sparse": sparse, "longest": longest}

    def attention_class(self, *args: Any, **kwargs: Any) -> SparseAttention:
        """That of the layer."""
        at = {name: self.settings[name] for name in ("sparse", "longest")}
        return SparseAttention(*args, seed=self.layer, **at, **kwargs)


class PreNormBigBirdBlock(BigBirdBlock, PreNormBlock):
    """The same with the norms in front of the sublayers."""


class BigBirdSpanHead(LabelHead):
    """The ends of an answer behind a feed-forward network of the head's own (released code): x [B, S, H] -> float32 [B, S, L].

    Args: as LabelHead; spec: BigBirdSpec.
    """

    def __init__(self, *args: Any, spec: BigBirdSpec, **kwargs: Any) -> None:
        super().__init__(*args, dropout=spec.dropout, **kwargs)
        self.spec = spec

    def build(self, shape: Shape) -> None:
        super().build(shape)
        spec, policy = self.spec, {"dtype": self.dtype_policy}
        width, activation = spec.per_layer(spec.feedforward.width, 0), spec.feedforward.activation
        self.feedforward = FeedForward(width, activation, self.initializer, name="feedforward", **policy)
        self.norm = LayerNorm(spec.epsilon, name="norm", **policy)
        for layer in (self.feedforward, self.norm):
            layer.build(shape)

    def call(self, x: Tensor, training: bool = False) -> Tensor:
        inner = self.feedforward(self.dropout(x, training=training), training=training)
        return ops.cast(Linear.call(self, self.norm(x + self.dropout(inner, training=training))), "float32")


class BigBird(Encoder):
    """The encoder. Call: as its parent's; with `attention=True` or a `visible_matrix` long rows have all scores."""

    pooled_kinds = ("choice",)
    padding_counts = True  # the last block of the padded row is seen by all, as in transformers

    @property
    def label_activation(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]  # of this Spec
        """The blocks'."""
        return self.spec.feedforward.activation.removeprefix(GATED)

    @property
    def span_head(self) -> Callable:
        """A head of the Spec."""
        return functools.partial(BigBirdSpanHead, spec=self.spec)

    @property
    def block_class(self) -> Callable:
        """Blocks of the Spec's attention."""
        kind = PreNormBigBirdBlock if self.spec.blocks.norm == "pre" else BigBirdBlock
        return functools.partial(kind, sparse=self.spec.sparse, longest=self.spec.longest)

    def context(self, inputs: Mapping[str, Tensor]) -> Context:
        return self.told(inputs)

    def told(self, inputs: Mapping[str, Tensor], dense: bool = False) -> Context:
        """What every block is told: of a long row a `Row`.

        Args:
            dense: whether all scores are asked for.
        """
        usual, length = super().context(inputs), ops.shape(inputs["token_ids"])[1]
        sparse, most = self.spec.sparse, length if isinstance(length, int) else self.spec.longest
        if sparse.plan == "full" or most <= sparse.limit:
            return usual
        real, pieces = inputs.get("padding_mask"), inputs.get("packed_ids")
        return dataclasses.replace(usual, scoring=Row(length, real, pieces, dense or "visible_matrix" in inputs))

    def call(
        self, inputs: Tensor, training: bool = False, queries: Queries = None, attention: bool = False
    ) -> dict[str, Tensor]:
        self.check(inputs)
        return self.run(inputs, self.told(inputs, bool(attention)), training, queries, attention)


class BigBirdDialect(Dialect):
    """transformers draws blocks where it trains, and sees the first one elsewhere: no configuration tells."""

    by_call = ("sparse.plan",)

    def write_config(self, config: Json, spec: BigBirdSpec) -> Json:
        return config | {"attention_type": "original_full" if spec.sparse.plan == "full" else "block_sparse"}


_SPAN = {
    "feedforward/inner/kernel": "H F",
    "feedforward/inner/bias": "F",
    "feedforward/outer/kernel": "F H",
    "feedforward/outer/bias": "H",
    "norm/gamma": "H",
    "norm/beta": "H",
    **BERT_HF.shapes("span"),
}
HF = BigBirdDialect.of_names(BERT_HF).derive(
    rows=(
        ("pooler", "bert.pooler"),
        ("heads/span/feedforward/inner", "qa_classifier.intermediate.dense"),
        ("heads/span/feedforward/outer", "qa_classifier.output.dense"),
        ("heads/span/norm", "qa_classifier.output.LayerNorm"),
        ("heads/span", "qa_classifier.qa_outputs"),
    ),
    config=(
        *BERT_HF.config,
        ("sparse.block", "block_size"),
        ("sparse.random", "num_random_blocks"),
        ("sparse.plan", "attention_type"),
    ),
    values={"attention_type": {"block_sparse": "first", "original_full": "full"}},
    silent={"block_size": 64, "num_random_blocks": 3, "attention_type": "block_sparse"},
    fixed={
        "model_type": "big_bird",
        "is_decoder": False,
        "add_cross_attention": False,
        "use_bias": True,
        "rescale_embeddings": False,
    },
    heads={name: BERT_HF.heads[name] for name in ("mlm", "nsp", "classifier")} | {"span": _SPAN},
    model_types=("big_bird",),
    classes={
        "BigBirdModel": Class(),
        "BigBirdForMaskedLM": Class(("mlm",)),
        "BigBirdForPreTraining": Class(("mlm", "nsp")),
        "BigBirdForSequenceClassification": Class(
            ("classifier",),
            rows=(("heads/classifier/inner", "classifier.dense"), ("heads/classifier", "classifier.out_proj")),
            shapes={"classifier": {"inner/kernel": "H H", "inner/bias": "H", "kernel": "H L", "bias": "L"}},
        ),
        "BigBirdForTokenClassification": ONE_MAP,
        "BigBirdForMultipleChoice": Class(("classifier",)),
        "BigBirdForQuestionAnswering": Class(("span",), pooler=False, numbers=True),
    },
    special={"bos_token_id": "cls", "eos_token_id": "sep", "sep_token_id": "sep"},
    spec={"sparse.plan": "first"},
)

BIGBIRD = register(
    dataclasses.replace(BERT, spec=BigBirdSpec()).derive(
        "bigbird",
        spec={"embeddings.vocabulary": 50358, "embeddings.positions": 4096, "feedforward.activation": "gelu_tanh"},
        sizes={"base": {}, "large": BERT.sizes["large"]},
        aliases={},
        encoder=BigBird,
        tokenizer="unigram",
        objective="masked_lm",
        names={"hf": HF},
        paper="Zaheer et al., 2020, Big Bird: Transformers for Longer Sequences",
    )
)
