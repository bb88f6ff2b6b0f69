"""Leveraging Pre-trained Checkpoints for Sequence Generation Tasks (Rothe, Narayan and Severyn, 2020): BERT2BERT, BERTSHARE.

An encoder-decoder whose two stacks are BERT's, or RoBERTa's, begun with the weights of a pretrained encoder (section 3):

- the encoder is the pretrained one; a text is of its first segment, and there is no pooler;
- the decoder is the same stack with a causal mask and an attention to the encoder in each block, whose weights are the only
  ones that no checkpoint has; its sublayers stand in the order of Vaswani et al. (2017), norms behind them as in BERT;
- "encoder and decoder share the embedding matrix" (`share="embeddings"`); in BERTSHARE all that both have (`share="all"`): of a
  base 136 million numbers instead of 221. `share="none"` is what transformers' EncoderDecoderModel makes;
- BERT2RND begins the decoder's blocks at random, RND2BERT the encoder's.

`finetune RUN --task generation --set task.decoder=bert2bert` makes such a model of an encoder's run, `import RUN --model
bert2bert/base` too. Tokens are predicted by the head of pretraining, a map and a norm before the table (`output.transform`), as
in transformers' BertLMHeadModel; the authors' released models have a bias alone (`bert-generation`). The
decoder starts with [CLS].

Differs: the paper's counts are of the output without that map.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from keras import ops

from kerasbert import progress
from kerasbert import spec as specs
from kerasbert.checkpoints.directory import built
from kerasbert.checkpoints.halves import TwoBerts, dialect
from kerasbert.checkpoints.plans import name_of
from kerasbert.errors import InputError
from kerasbert.inputs import Shape, Tensor
from kerasbert.layers.block import Block, stack
from kerasbert.layers.decoder_block import DecoderBlock
from kerasbert.layers.embeddings import Embeddings
from kerasbert.layers.encoder_decoder import SOURCE_AND_TARGET, EncoderDecoder, EncoderDecoderSpec, Stack
from kerasbert.layers.heads import GeluMaskedLM, MaskedLM, tied_logits, token_head
from kerasbert.layers.naming import names
from kerasbert.layers.random import Dropout
from kerasbert.models import bert, roberta
from kerasbert.models.transformer import Bias
from kerasbert.registry import Family, family_of, register

if TYPE_CHECKING:
    import keras


SHARED = ("none", "embeddings", "all")
SUBLAYERS = ("attention", "attention_norm", "feedforward", "feedforward_norm")
"""What a block of the encoder and one of the decoder have in common."""


@dataclasses.dataclass(frozen=True)
class Output:
    """How tokens are predicted.

    Args:
        transform: bool, whether the head of masked LM stands before the table, a map with a norm; else a bias alone.
    """

    transform: bool = True


@dataclasses.dataclass(frozen=True)
class Bert2BertSpec(EncoderDecoderSpec):
    """A Spec of two stacks of BERT.

    Args:
        share: what of the encoder the decoder has too: "none", "embeddings", or "all" but for the attention to the source.
    """

    share: str = "embeddings"
    output: Output = Output()

    def validate(self) -> "Bert2BertSpec":
        """Check what no single field can tell; returns self."""
        super().validate()
        if self.share not in SHARED:
            raise InputError(f"share must be one of {', '.join(SHARED)}. Received: {self.share!r}")
        if self.share == "all" and self.decoder.layers not in (None, self.blocks.layers):
            raise InputError(
                f"decoder.layers is {self.decoder.layers}, expected {self.blocks.layers} (blocks.layers), whose weights the "
                "decoder has where share is 'all'"
            )
        if self.blocks.norm != "post":
            raise InputError(f"blocks.norm must be 'post', as of BERT. Received: {self.blocks.norm!r}")
        return self


class BertStack(Stack):
    """BERT's embeddings and blocks of a kind; `call` reads ids, int [B, S], for x.

    Args:
        spec, kind: as of Stack.
        embeddings: another stack's, shared, or None.
    """

    def __init__(
        self, spec: specs.Spec, kind: Callable[..., Block], embeddings: Embeddings | None = None, **kwargs: Any
    ) -> None:
        super().__init__(spec, kind, **kwargs)
        self.embeddings = embeddings

    def build(self, shape: Shape | None = None) -> None:
        spec, kwargs = self.spec, {"dtype": self.dtype_policy}
        self.norm = None
        if self.embeddings is None:
            self.embeddings = Embeddings(spec, name="embeddings", **kwargs)
            self.embeddings.build()
        self.dropout = Dropout(spec.dropout, name="dropout", **kwargs)  # at places of its own, of shared embeddings too
        self.dropout.build()
        self.blocks = stack(spec, self.kind, **kwargs)

    def embed(self, x: Tensor, position_ids: Tensor | None = None, training: bool = False) -> Tensor:
        assert self.embeddings is not None
        x = self.embeddings.sum(x, None, position_ids)
        norm = self.embeddings.norm
        x = self.dropout(x, training=training) if norm is None else norm(x, dropout=self.dropout, training=training)
        return x if self.embeddings.projection is None else self.embeddings.projection(x)


class Bert2Bert(EncoderDecoder):
    """Two stacks of BERT's blocks, each with BERT's embeddings.

    Weights: `encoder/embeddings/...`, `encoder/block_i/...`, the same of `decoder/` with `cross_attention`, without what is
    shared, and `output/...`.
    """

    first_token = "cls"
    token_head: type[MaskedLM] = MaskedLM
    spec: Bert2BertSpec

    def _build(self) -> None:
        spec, kwargs = self.spec, {"dtype": self.dtype_policy}
        self.encoder_stack = BertStack(spec, Block, name="encoder", **kwargs)
        self.encoder_stack.build()
        own = spec.share == "none"
        kind = self._sharing if spec.share == "all" else DecoderBlock
        embeddings = None if own else self.encoder_stack.embeddings
        self.decoder_stack = BertStack(spec.of_decoder(), kind, embeddings, name="decoder", **kwargs)
        self.decoder_stack.build()
        if spec.output.transform:
            self.head = token_head(self.token_head, spec, name="output", **kwargs)
            self.head.build((None, None, spec.hidden))
        else:
            self.head = Bias(name="output", dtype="float32")
            self.head.build((None, None, spec.embeddings.vocabulary))

    def _sharing(self, layer: int, **settings: Any) -> DecoderBlock:
        """A block of the decoder with the sublayers of the encoder's in the same place."""
        made = DecoderBlock(layer=layer, **settings)
        for name in SUBLAYERS:
            setattr(made, name, getattr(self.encoder_stack.blocks[layer], name))
        return made

    def embed(self, token_ids: Tensor) -> Tensor:
        """The ids themselves, which each stack embeds by its own tables."""
        return token_ids

    @property
    def table(self) -> Tensor:
        """The decoder's table of tokens [V, E]."""
        assert self.decoder_stack.embeddings is not None
        return self.decoder_stack.embeddings.tokens.table

    def logits(self, x: Tensor) -> Tensor:
        return self.head(x, self.table) if isinstance(self.head, MaskedLM) else self.head(tied_logits(x, self.table))

    def scaled(self, x: Tensor) -> Tensor:
        """What the rows of `output_rows` are multiplied with: the bias is one column more."""
        if isinstance(self.head, MaskedLM):
            x = self.head.norm(self.head.transform(x, activation=self.head.activation))
        return ops.concatenate([x, ops.ones_like(x[..., :1])], axis=-1)

    @property
    def output_rows(self) -> Tensor:
        """The table [V, E + 1] whose products are the logits, with the bias as its last column."""
        return ops.concatenate([ops.convert_to_tensor(self.table), ops.expand_dims(self.head.bias, 1)], axis=1)


class Roberta2Roberta(Bert2Bert):
    """The same of RoBERTa, whose head of tokens has GELU whatever the blocks have."""

    token_head = GeluMaskedLM


# Begun with a pretrained encoder

BEGINNINGS = {  # of `made` -> what begins with the pretrained weights
    "bert2bert": ("encoder", "decoder"),
    "bertshare": ("encoder", "decoder"),
    "bert2rnd": ("encoder",),
    "rnd2bert": ("decoder",),
}


def made(
    model: "keras.Model",
    named: Bert2BertSpec | None = None,
    begun: str = "bert2bert",
    *,
    target: str,
    head: Mapping[str, np.ndarray] | None = None,
) -> Bert2Bert:
    """An encoder-decoder of an encoder, with its weights where it has them; the attention to the source begins as new.

    Args:
        model: a built encoder with `.tokenizer`, and `.heads`, arrays by name, where it was imported.
        named: settings of the size that was asked for, whose `share` and `decoder` hold; None for those of the paper.
        begun: which of BEGINNINGS. Shared embeddings are always those of the encoder.
        target: name of the family that is made.
        head: arrays by name of what predicts tokens; None: that of `model.heads`. Without one it begins as new, which is told.

    Raises:
        InputError: the encoder is adapted, or has more than BERT's weights.
    """
    family, spec = TARGETS[target], model.spec
    default = cast(Bert2BertSpec, family.spec)
    if spec != spec.base:
        raise InputError(
            "the encoder is adapted (lora, adapters), and its weights are to begin two stacks: join them first (kb.merged), or "
            f"adapt the {target}: kerasbert import RUN --model {target}/base --out DIR makes one"
        )
    kept = {path: specs.get(spec, path) for path in specs.paths(type(spec)) if path != "pooler"}
    share = "all" if begun == "bertshare" else named.share if named else default.share
    layers = {} if named is None else {"decoder.layers": named.decoder.layers}
    new = default.derive({**kept, "share": share, **layers})
    encoder = cast(Bert2Bert, built(family, new, name_of(family, new)))
    own, warm = names(encoder), BEGINNINGS[begun]
    for name, value in names(model).items():
        places = [f"{side}/{name}" for side in ("encoder", "decoder") if f"{side}/{name}" in own]
        if not places and not name.startswith("pooler/"):
            raise InputError(f"{family_of(model).name} has {name}, which {target} has no place for")
        for place in places:
            shared = share == "all" or (share == "embeddings" and name.startswith("embeddings/"))
            if shared or place.partition("/")[0] in warm:
                own[place].assign(value)
    found = (getattr(model, "heads", None) or {}).get("mlm", {}) if head is None else head
    if head is None and not found:
        progress.say("the model has no head mlm, which pretraining learns: a new one starts at random")
    for name, value in found.items() if "decoder" in warm else ():
        own[f"output/{name}"].assign(value)
    encoder.tokenizer, encoder.labels = model.tokenizer, None
    return encoder


# Checkpoints: transformers' EncoderDecoderModel

HF = dialect(bert.HF, ("bert",), "bert.")
ROBERTA_HF = dialect(roberta.HF, ("roberta", "xlm-roberta", "camembert"), "roberta.")
_PLAIN = bert.HF.derive(
    rows=(("heads/mlm/bias", "lm_head.bias"),),
    config=tuple(row for row in bert.HF.config if row[0] != "embeddings.segments"),
    tied={
        "lm_head.decoder.weight": "bert.embeddings.word_embeddings.weight",
        "lm_head.decoder.bias": "lm_head.bias",
    },
)
GENERATION_HF = dialect(_PLAIN, ("bert-generation",), "bert.", stored={})

_PAPER = "Rothe et al., 2020, Leveraging Pre-trained Checkpoints for Sequence Generation Tasks"
SIZES = {name: bert.BERT.sizes[name] for name in ("base", "large", "tiny", "mini", "small", "medium")}


def _family(name: str, of: Family, encoder: type, sizes: tuple[str, ...], *, hf: TwoBerts, **changes: Any) -> Family:
    """A family of two stacks like another family's encoder; `changes` are fields of Family."""
    halves = {field.name: getattr(of.spec, field.name) for field in dataclasses.fields(specs.Spec)}
    halves["pooler"] = False
    spec = Bert2BertSpec(**halves)
    shared = {f"{size}-share": {**of.sizes[size], "share": "all"} for size in ("base", "large")}
    return Family(
        name=name,
        spec=spec,
        sizes={size: of.sizes[size] for size in sizes} | shared,
        encoder=encoder,
        kind="seq2seq",
        tokenizer=of.tokenizer,
        objective="",
        names={"hf": hf},
        inputs=SOURCE_AND_TARGET,
        readout="none",
        paper=_PAPER,
        **changes,
    )


_BERTS = ("bert", "mbert", "bert-wwm", "macbert", "spanbert", "structbert", "tinybert", "unilm", "ernie")
BERT2BERT = register(
    _family(
        "bert2bert",
        bert.BERT,
        Bert2Bert,
        ("base", "large", "tiny", "mini", "small", "medium"),
        hf=HF,
        made_of=dict.fromkeys(_BERTS, functools.partial(made, target="bert2bert")),
    )
)
ROBERTA2ROBERTA = register(
    _family(
        "roberta2roberta",
        roberta.ROBERTA,
        Roberta2Roberta,
        ("base", "large"),
        hf=ROBERTA_HF,
        made_of=dict.fromkeys(("roberta", "xlm-roberta"), functools.partial(made, target="roberta2roberta")),
    )
)
# section 4: BERT's blocks without segments, over 50,358 pieces of SentencePiece; the released models are of 24 layers
BERT_GENERATION = register(
    dataclasses.replace(
        BERT2BERT,
        name="bert-generation",
        spec=BERT2BERT.spec.derive(
            {"embeddings.vocabulary": 50358, "embeddings.segments": 0, "output.transform": False, "share": "none"}
        ),
        sizes={"large": bert.BERT.sizes["large"]},
        tokenizer="unigram",
        names={"hf": GENERATION_HF},
        made_of={},
    )
)
TARGETS = {family.name: family for family in (BERT2BERT, ROBERTA2ROBERTA)}
