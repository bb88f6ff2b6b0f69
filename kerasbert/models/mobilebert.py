"""MobileBERT: a Compact Task-Agnostic BERT for Resource-Limited Devices (Sun et al., 2020), and its teacher IB-BERT.

3.1 (figure 1, table 1): every layer is narrowed from H to the width of its bottleneck by a linear map, works there, and
is widened again and added to what it read. Queries and keys read a narrow input of their own, values the full one; in
the tiny variant (4.1) all of them read the layer's narrow input. In IB-BERT the bottleneck is inverted (wider than H) and
queries, keys and values read the full input. 3.2: a layer has several feed-forward networks in a row. 3.3: NoNorm, an
element-wise linear map, and ReLU instead of layer norm and GELU. 3.4: tokens of width 128, of which each three in a row
are joined and mapped to H. The paper's "w/o OPT" is `{"bottleneck.norm": "layer_norm", "feedforward.activation": "gelu"}`.

Differs: in the released code the tokens at the ends of a padded row are joined with the vectors of [PAD], of a row
without padding with zeros. Here it is zeros in both, so that an answer does not depend on how far a text is padded.
Differs: the released TF1 code hides padding by a score of -6 alone (0.2% of a token shines through); here it is not seen.
The paper gives 25.3M, 15.1M (tiny) and 293M (IB-BERT) parameters; ours are those of the released configurations: 24.6M,
15.5M and 294.5M (294.2M without the pooler), of which transformers counts the first alike.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from kerasbert import spec as specs
from kerasbert.checkpoints.names import Dialect, of_family
from kerasbert.errors import InputError
from kerasbert.inputs import Shape, Tensor, Values
from kerasbert.layers.attention import Attention
from kerasbert.layers.block import Block
from kerasbert.layers.context import Context
from kerasbert.layers.embeddings import Embeddings, Table, positions
from kerasbert.layers.feedforward import FeedForward, Linear
from kerasbert.layers.heads import MaskedLM, Pooler
from kerasbert.layers.initial import Normal
from kerasbert.layers.narrowed import Narrowed
from kerasbert.layers.norms import LayerNorm, NoNorm
from kerasbert.layers.random import Dropout
from kerasbert.layers.readout import first
from kerasbert.models import bert
from kerasbert.registry import Family, register
from kerasbert.spec import Spec
from kerasbert.storage.json_view import Json


@dataclasses.dataclass(frozen=True)
class Bottleneck:
    """How a layer works at another width than H (sections 3.1 to 3.3).

    Args:
        width: int, within a layer; the heads divide it among themselves.
        key_query_shared: bool, whether queries and keys read a narrow input of their own, values the full one.
        attention: bool, whether queries, keys and values read the layer's narrow input.
        networks: int, feed-forward networks in a row.
        norm: "no_norm" or "layer_norm".
        epsilon: float, of the layer norms of the embeddings and behind a layer's last feed-forward network; None for the
            Spec's. transformers has 1e-5 there whatever layer_norm_eps says, the released code has not.
        pooled: bool, whether MobileBERT's pooled vector is tanh(first @ kernel + bias) (`classifier_activation`) and not
            the first token's as it is; None is no. IB-BERT's always is.
    """

    width: int = 128
    key_query_shared: bool = True
    attention: bool = False
    networks: int = 4
    norm: str = "no_norm"
    epsilon: float | None = None
    pooled: bool | None = None


@dataclasses.dataclass(frozen=True)
class MobileSpec(specs.Spec):
    """A Spec with a bottleneck."""

    bottleneck: Bottleneck = Bottleneck()

    attended = "bottleneck.width"

    def validate(self) -> Spec:
        parts = self.bottleneck
        if min(parts.width, parts.networks) < 1:
            raise InputError(f"bottleneck.width and networks must be at least 1. Received: {parts}")
        if parts.norm not in NORMS:
            raise InputError(f"bottleneck.norm must be one of {', '.join(NORMS)}. Received: {parts.norm!r}")
        if parts.attention and parts.key_query_shared:
            raise InputError(
                "bottleneck.attention and bottleneck.key_query_shared (use_bottleneck_attention and "
                "key_query_shared_bottleneck) are both true, expected one: nothing would read the second bottleneck"
            )
        if not 0 < (self.embeddings.width or 0) < self.hidden:
            raise InputError(
                f"embeddings.width must be a number below hidden {self.hidden}. Received: {self.embeddings.width}"
            )
        if (self.blocks.norm, self.blocks.share, self.blocks.bias) != ("post", "none", True):
            raise InputError("blocks.norm, share and bias must be 'post', 'none' and true with a bottleneck")
        return super().validate()


NORMS = {"no_norm": NoNorm, "layer_norm": LayerNorm}


class Trigrams(Embeddings):
    """Each token with its neighbours, [t+1, t, t-1] joined and mapped to H (section 3.4), then positions and segments.

    Call: token_ids, segment_ids, position_ids [B, S], pieces int [B, S] or None -> [B, S, H]. Neighbours with different
        numbers in `pieces` (text and padding, two pieces of a packed row) do not see each other.
    Trainable weights: V*E + 3*E*H + H + (positions + segments)*H + 2*H.
    """

    spec: MobileSpec

    def build(self, shape: Shape | None = None) -> None:
        spec, kwargs = self.spec, {"dtype": self.dtype_policy}
        parts, width = spec.embeddings, spec.embeddings.width or spec.hidden
        self.tokens = Table(parts.vocabulary, width, spec.initializer, name="tokens", **kwargs)
        self.tokens.build()
        self.positions = positions(spec, spec.hidden, **kwargs)
        if parts.segments:
            self.segments = Table(parts.segments, spec.hidden, spec.initializer, name="segments", **kwargs)
            self.segments.build()
        self.projection = Linear(spec.hidden, spec.initializer, name="projection", **kwargs)
        self.projection.build((None, None, 3 * width))
        self.norm = NORMS[spec.bottleneck.norm](spec.bottleneck.epsilon or spec.epsilon, name="norm", **kwargs)
        self.norm.build((None, None, spec.hidden))
        self.dropout = Dropout(spec.dropout, name="dropout", **kwargs)
        self.dropout.build()

    def call(
        self,
        token_ids: Tensor,
        segment_ids: Tensor = None,
        position_ids: Tensor = None,
        pieces: Tensor = None,
        training: bool = False,
    ) -> Tensor:
        x = self.tokens(token_ids)
        before, after = x[:, :-1], x[:, 1:]
        if pieces is not None:
            pieces = ops.cast(pieces, "int32")
            together = ops.expand_dims(ops.cast(ops.equal(pieces[:, :-1], pieces[:, 1:]), x.dtype), -1)
            before, after = before * together, after * together
        joined = [ops.pad(after, ((0, 0), (0, 1), (0, 0))), x, ops.pad(before, ((0, 0), (1, 0), (0, 0)))]
        x = self.placed(self.projection(ops.concatenate(joined, axis=-1)), segment_ids, position_ids)
        return self.norm(x, dropout=self.dropout, training=training)


class NarrowAttention(Attention):
    """Attention with inputs of other widths than its result, which has the heads' width.

    Args:
        inputs: (width of queries' and keys' input, width of values').
    """

    def __init__(self, *args: Any, inputs: Tensor, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.inputs = tuple(inputs)

    def widths(self, shape: Shape) -> tuple[int, ...]:
        return self.inputs[0], *self.inputs


class BottleneckBlock(Block):
    """A layer between two bottlenecks (figure 1 b and c).

    Args:
        bottleneck: Bottleneck. The others are Block's.
    Call: as Block's. The last feed-forward network is `feedforward`, those before it are `feedforward_0` and so on.
    """

    def __init__(self, *, bottleneck: Bottleneck, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.bottleneck = self.settings["bottleneck"] = bottleneck

    def build(self, shape: Shape) -> None:
        at, parts, kwargs = self.settings, self.bottleneck, {"dtype": self.dtype_policy}
        norm, hidden, narrow = NORMS[parts.norm], shape[-1], (None, None, parts.width)
        end = functools.partial(Narrowed, initializer=at["initializer"], norm=norm, epsilon=at["epsilon"], **kwargs)
        self.entry = end(parts.width, name="bottleneck_input")
        self.entry.build(shape)
        shared = parts.key_query_shared
        self.own_entry = end(parts.width, name="bottleneck_attention") if shared else None
        if self.own_entry is not None:
            self.own_entry.build(shape)
        self.attention = NarrowAttention(
            at["heads"],
            at["head_size"],
            at["attention_dropout"],
            at["initializer"],
            inputs=[parts.width if narrowed else hidden for narrowed in (shared or parts.attention, parts.attention)],
            name="attention",
            **kwargs,
        )
        self.attention.build(narrow)
        self.attention_norm = norm(at["epsilon"], name="attention_norm", **kwargs)
        self.attention_norm.build(narrow)
        self.networks, self.norms, inner = [], [], (at["width"], at["activation"], at["initializer"])
        for number in (*range(parts.networks - 1), None):
            after = "" if number is None else f"_{number}"
            network = FeedForward(*inner, name=f"feedforward{after}", **kwargs)
            network.build(narrow)
            self.networks.append(network)
            epsilon = parts.epsilon if number is None and parts.epsilon else at["epsilon"]
            self.norms.append(norm(epsilon, name=f"feedforward_norm{after}", **kwargs))
            self.norms[-1].build(narrow)
        self.exit = end(hidden, dropout=at["dropout"], name="bottleneck_output")
        self.exit.build(narrow)
        self.build_adapters(narrow, "attention", *(network.name for network in self.networks))

    def call(self, x: Tensor, context: Context | None = None, training: bool = False) -> tuple[Tensor, Tensor]:
        context, told = context or Context(), x
        source, x = x, context.rows(x)
        if self.bottleneck.attention:
            key = value = self.entry(source)
        else:
            key, value = source if self.own_entry is None else self.own_entry(source), source
        query = context.rows(key)
        y = query if self.bottleneck.attention else self.entry(x)
        attended, probabilities = self.attention(query, context.bias, key, value, training=training, **context.at)
        y = self.attention_norm(y, self.adapted("attention", attended, told, context, training))
        for network, norm in zip(self.networks, self.norms, strict=True):
            y = norm(y, self.adapted(network.name, network(y), told, context, training))
        return self.exit(y, x, training=training), probabilities


class FirstToken(Pooler):
    """The first token's vector as it is: [B, S, H] -> [B, H]; no weights."""

    def build(self, shape: Shape) -> None:
        self.built = True

    def call(self, x: Tensor) -> Tensor:
        return first(x)


class TokenHead(MaskedLM):
    """Masked-LM head whose vectors have H, the tokens' table E columns: H - E further ones are its own (released code).

    Call: as MaskedLM's. Trainable weights: H*H + 3*H + V*(H - E) + V.
    """

    def build(self, shape: Shape) -> None:
        rest, self.width = shape[-1] - self.width, shape[-1]
        super().build(shape)
        normal = Normal(stddev=self.initializer)
        self.extra = self.add_weight(shape=(self.vocabulary, rest), initializer=normal, name="extra")

    def call(self, x: Tensor, table: Tensor) -> Tensor:
        return super().call(x, ops.concatenate([ops.cast(table, x.dtype), ops.cast(self.extra, x.dtype)], axis=1))


class InvertedBottleneckBert(bert.Encoder):
    """IB-BERT: BERT's encoder with trigrams and bottlenecks; the teacher (section 3.1)."""

    embeddings_class = Trigrams
    token_head = TokenHead

    @property
    def block_class(self) -> Callable:
        """Blocks with the Spec's bottleneck."""
        return functools.partial(BottleneckBlock, bottleneck=self.spec.bottleneck)

    def embed(self, inputs: Values, training: bool) -> Tensor:
        pieces = inputs.get("packed_ids", inputs.get("padding_mask"))
        at = (inputs["token_ids"], inputs.get("segment_ids"), inputs.get("position_ids"))
        return self.embeddings(*at, pieces=pieces, training=training)


class MobileBert(InvertedBottleneckBert):
    """MobileBERT; its pooled vector is the first token's as it is, unless `bottleneck.pooled`."""

    @property
    def pooler_class(self) -> type[keras.layers.Layer]:
        """What the Spec says about the pooled vector."""
        return Pooler if self.spec.bottleneck.pooled else FirstToken


# (ours, theirs) of a layer; the norms of its ends and of its feed-forward networks
_DENSE = (
    ("block_{i}/bottleneck_input", "bert.encoder.layer.{i}.bottleneck.input.dense"),
    ("block_{i}/bottleneck_attention", "bert.encoder.layer.{i}.bottleneck.attention.dense"),
    ("block_{i}/bottleneck_output", "bert.encoder.layer.{i}.output.bottleneck.dense"),
    ("block_{i}/feedforward_{j}/inner", "bert.encoder.layer.{i}.ffn.{j}.intermediate.dense"),
    ("block_{i}/feedforward_{j}/outer", "bert.encoder.layer.{i}.ffn.{j}.output.dense"),
    ("embeddings/projection", "bert.embeddings.embedding_transformation"),
)
_NORMS = (
    ("block_{i}/bottleneck_input/norm", "bert.encoder.layer.{i}.bottleneck.input.LayerNorm"),
    ("block_{i}/bottleneck_attention/norm", "bert.encoder.layer.{i}.bottleneck.attention.LayerNorm"),
    ("block_{i}/bottleneck_output/norm", "bert.encoder.layer.{i}.output.bottleneck.LayerNorm"),
    ("block_{i}/feedforward_norm_{j}", "bert.encoder.layer.{i}.ffn.{j}.output.LayerNorm"),
)
_MLM = {**bert.HF.shapes("mlm"), "transform/kernel": "H H", "extra": "V R"}
_MLM |= dict.fromkeys(("transform/bias", "norm/gamma", "norm/beta"), "H")
_CONFIG = {
    "config": (
        *bert.HF.config,
        ("embeddings.width", "embedding_size"),
        ("bottleneck.width", "intra_bottleneck_size"),
        ("bottleneck.key_query_shared", "key_query_shared_bottleneck"),
        ("bottleneck.attention", "use_bottleneck_attention"),
        ("bottleneck.networks", "num_feedforward_networks"),
        ("bottleneck.norm", "normalization_type"),
    ),
    "heads": {**bert.HF.heads, "mlm": _MLM},
}
_EPSILON = ("bottleneck.epsilon", "epsilon of layer_norm")  # no key of theirs
FIXED = {"trigram_input": True, "use_bottleneck": True}


class MobileBertDialect(Dialect):
    """A LayerNorm of the bottlenecks, of which no key says the epsilon."""

    def read_config(self, config: Json) -> Json:
        """With the epsilon of torch.nn.LayerNorm."""
        return config | ({_EPSILON[1]: 1e-5} if config.get("normalization_type") == "layer_norm" else {})


# In transformers queries, keys and values that read the full input (IB-BERT) have a matrix of the bottleneck's width: it
# computes such a model only where that is H.
HF = MobileBertDialect.of_names(bert.HF).derive(
    ("bert.", "mobilebert."),
    rows=(
        *((ours, theirs.replace("bert.", "mobilebert.")) for ours, theirs in (*_DENSE, *_NORMS)),
        ("heads/mlm/extra", "cls.predictions.dense.weight", "T"),
    ),
    fixed={"model_type": "mobilebert"} | FIXED,
    unread={"true_hidden_size": "follows from use_bottleneck"},
    classes=of_family(bert.HF.classes, "Bert", "MobileBert"),
    spec={"bottleneck.pooled": True},  # where a configuration is silent
    values={"classifier_activation": {False: None}},
    **(_CONFIG | {"config": (*_CONFIG["config"], ("bottleneck.pooled", "classifier_activation"), (*_EPSILON, 1))}),
)


def _slashes(theirs: str) -> str:
    return theirs.replace(".", "/").replace("layer/{i}", "layer_{i}").replace("ffn/{j}", "ffn_layer_{j}")


NAMES_IN_TF1 = bert.TF1.derive(
    rows=(
        *((ours, _slashes(theirs)) for ours, theirs in (*_DENSE, *_NORMS)),
        ("heads/mlm/extra", "cls/predictions/extra_output_weights"),
    ),
    **_CONFIG,
)
# a NoNorm is called FakeLayerNorm there; the norm of the token head is one of layers
TF1 = NAMES_IN_TF1.derive(
    ("LayerNorm", "FakeLayerNorm"),
    rows=(("heads/mlm/norm", "cls/predictions/transform/LayerNorm"),),
    fixed=FIXED | {"classifier_activation": False, "normalization_type": "no_norm"},
)

MOBILEBERT = register(
    Family(
        name="mobilebert",
        spec=MobileSpec().derive(
            {
                "hidden": 512,
                "dropout": 0.0,
                "embeddings.width": 128,
                "attention.heads": 4,
                "attention.dropout": 0.1,
                "feedforward.width": 512,
                "feedforward.activation": "relu",
                "blocks.layers": 24,
            }
        ),
        sizes={
            "base": {},
            "tiny": {"bottleneck.key_query_shared": False, "bottleneck.attention": True, "bottleneck.networks": 2},
        },
        aliases={"base-uncased": "base"},
        encoder=MobileBert,
        names={"hf": HF, "tf1": TF1},
        paper="Sun et al., 2020, MobileBERT: a Compact Task-Agnostic BERT for Resource-Limited Devices",
    )
)
