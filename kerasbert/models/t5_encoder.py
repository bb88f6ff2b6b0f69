"""T5's encoder alone (Raffel et al., 2020, section 2.1; Ni et al., 2022, Sentence-T5, section 3: "encoder-only mean").

The first stack of T5 or T5 v1.1 under its own names: RMS norms in front of the sublayers and behind the last one, distances
whose learned numbers all layers share, no positions. The vector of a text is the mean of its tokens' vectors; labels of words
have a linear map (T5ForTokenClassification).

Differs: no dropout behind the last norm; a head has its own.
"""

import dataclasses
from collections.abc import Mapping

from keras import ops

from kerasbert.checkpoints.names import Class, Dialect
from kerasbert.errors import InputError
from kerasbert.inputs import TEXT, Tensor
from kerasbert.layers.buckets import Buckets, DistanceTable
from kerasbert.layers.context import Context
from kerasbert.layers.encoder import Encoder
from kerasbert.layers.norms import RMSNorm
from kerasbert.models import t5
from kerasbert.registry import Family, register
from kerasbert.spec import Attention, Blocks, Embeddings, FeedForward, Spec
from kerasbert.storage.json_view import Json


@dataclasses.dataclass(frozen=True)
class T5EncoderSpec(Spec):
    """A Spec with T5's distances; `initializer` is a factor, as there."""

    pooler: bool = False
    relative: Buckets = Buckets()

    head_deviation = t5.Spec.head_deviation

    def validate(self) -> "T5EncoderSpec":
        """Check what no single field can tell; returns self."""
        super().validate()
        if isinstance(self.attention.heads, tuple):
            raise InputError(
                f"attention.heads must be one number, for all layers share the distances. Received: {self.attention.heads}"
            )
        return self


class T5Encoder(Encoder):
    """The encoder. Weights beside the blocks': `embeddings/tokens/table`, `relative/table` [buckets, N], `norm/gamma`."""

    block_class, norm_class = t5.T5Block, RMSNorm
    spec: T5EncoderSpec

    def _build(self) -> None:
        super()._build()
        self.relative = self.table_of_distances()

    def table_of_distances(self) -> DistanceTable | None:
        """The numbers that all layers share."""
        made = t5.distance_table(self.spec, name="relative", dtype=self.dtype_policy)
        made.build()
        return made

    def distances(self, places: Tensor) -> Tensor:
        """What the blocks are told of places int32 [B or 1, S]: the numbers of each pair, float32 [B or 1, N, S, S]."""
        assert self.relative is not None
        return self.relative(places, places)

    @property
    def longest(self) -> None:
        """There is none."""
        return None

    def context(self, inputs: Mapping[str, Tensor]) -> Context:
        context = dataclasses.replace(super().context(inputs), position_ids=inputs.get("position_ids"))
        places, _ = context.places(ops.shape(inputs["token_ids"])[1])
        return dataclasses.replace(context, scoring=self.distances(places), position_ids=None)


def _theirs(ours: str, theirs: str) -> tuple[str, str]:
    """A row of T5's encoder as one of a stack alone."""
    return ours.removeprefix("encoder/"), f"transformer.{theirs}"


class T5EncoderDialect(Dialect):
    """Their type of a model says nothing of the stacks that it has."""

    def write_config(self, config: Json, spec: T5EncoderSpec) -> Json:
        """With the ids of the released vocabulary."""
        return {"eos_token_id": 1, "is_encoder_decoder": False} | config


_LEFT_OUT = ("decoder.layers", "output.scaled")
HF = T5EncoderDialect(
    rows=(
        *(
            _theirs(ours, theirs)
            for ours, theirs in t5.HF.rows
            if ours.startswith("encoder/") or ours == "embeddings/tokens"
        ),
        ("heads/classifier", "classifier"),
    ),
    leaves={**t5.HF.leaves, "bias": (".bias",)},
    heads={"classifier": {"kernel": "H L", "bias": "L"}},
    config=tuple(row for row in t5.HF.config if row[0] not in _LEFT_OUT),
    fixed={"model_type": "t5", **t5.activations("relu")},
    classes={"T5EncoderModel": Class(), "T5ForTokenClassification": Class(("classifier",))},
    model_types=("t5",),
    prefix="transformer.",
    silent={"feed_forward_proj": "relu", "relative_attention_max_distance": 128},
    special={"eos_token_id": "sep"},
    tied={"transformer.encoder.embed_tokens.weight": "transformer.shared.weight"},
    unread={
        **t5.HF.unread,
        "is_encoder_decoder": "the class says it",
        "decoder_start_token_id": "there is no decoder",
        "num_decoder_layers": "there is no decoder",
        "scale_decoder_outputs": "there is no decoder",
    },
)

T5_ENCODER = register(
    Family(
        name="t5-encoder",
        spec=T5EncoderSpec(
            epsilon=1e-6,
            initializer=1.0,
            embeddings=Embeddings(vocabulary=32128, segments=0, kind="none", norm=False),
            attention=Attention(heads=12),
            feedforward=FeedForward(activation="relu"),
            blocks=Blocks(norm="pre", bias=False),
        ),
        sizes={
            name: {path: value for path, value in size.items() if not path.startswith("output.")}
            for name, size in t5.T5_FAMILY.sizes.items()
        },
        encoder=T5Encoder,
        tokenizer="unigram",
        objective="",
        names={"hf": HF},
        inputs=TEXT[:2],
        readout="mean",
        has=(),  # heads cannot be cut layer by layer
        longest=lambda spec: None,
        paper="Raffel et al., 2020, Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer",
    )
)
