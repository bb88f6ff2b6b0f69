"""ELECTRA: Pre-training Text Encoders as Discriminators Rather Than Generators (Clark et al., 2020).

A generator, which is a small masked language model, fills the masked places with samples; the encoder, the paper's
discriminator, tells of every token whether it was replaced (section 2, replaced token detection).

- Section 2: the generator is trained by maximum likelihood and not against the discriminator: no gradient goes through the
  samples. Where a sample equals the original token, the token counts as original. Loss: mlm + 50 * rtd.
- Section 3.2 (weight sharing): both read the same embeddings of width E, and the generator's logits are the product with
  the token table. In the released code the norm of the embeddings is shared too; each network has a projection of its own
  where its hidden size is not E.
- Section 3.2 (smaller generators), table 6: layers as many, hidden size, feed-forward width and heads a fraction: 1/4 for
  small and large, 1/3 for base.
- Table 6, "mask percent": 15%, 25% for large; the released configure_pretraining.py has the same.
- No pooler. Fine-tuning puts a layer of H units with gelu and then the labels on the first token: transformers' head
  (ElectraClassificationHead), and ours. The released code has the labels alone (finetune/classification): a classifier
  of it is read as it is (`hidden_layer` false in the task of its model.json) and can be written back as tf1, not as hf.
- Released code, pretrain_helpers.py: 85% of the selected tokens are [MASK] for the generator and the others stay; all of
  them are replaced by samples. The detection loss is of every real token, [CLS] and [SEP] included (run_pretraining.py).

Differs: the released code draws positions with replacement, so that some fall together; here they are all different.
Differs: it cuts the text of an example into two segments nine times of ten; the default packing is "full", one segment.
Records with pairs are taken too, their labels are not asked for.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import keras
from keras import ops

from kerasbert import registry
from kerasbert.checkpoints import keras_hub
from kerasbert.checkpoints.directory import built, head_names, named_weights
from kerasbert.checkpoints.names import Class
from kerasbert.errors import InputError
from kerasbert.inputs import Shape, Tensor
from kerasbert.layers import heads, random, visibility
from kerasbert.layers.backend import pick
from kerasbert.layers.block import stack
from kerasbert.layers.context import Context
from kerasbert.layers.feedforward import Linear
from kerasbert.models.bert import BERT, HF, ONE_MAP, TF1, Encoder
from kerasbert.objectives.base import label_sums
from kerasbert.objectives.bert import BertPretraining
from kerasbert.registry import register, register_objective
from kerasbert.spec import Spec
from kerasbert.storage.json_view import Json

if TYPE_CHECKING:
    from kerasbert.checkpoints.safetensors import Safetensors

RTD_WEIGHT = 50.0  # section 3.1 and table 6


@dataclasses.dataclass(frozen=True)
class GeneratorSize:
    """How large the generator is.

    Args:
        share: float, of the discriminator's H, N and F (table 6, "generator size"); None for the paper's, 1/3 where H is
            768 and 1/4 elsewhere (`share_of`).
    """

    share: float | None = None


def share_of(spec: Spec) -> float:
    """Of the discriminator's H, N and F that the paper's generator has (table 6, "generator size")."""
    return 1 / 3 if spec.hidden == 768 else 1 / 4


def smaller(spec: Spec, share: float, multiple: int = 1) -> Any:
    """The Spec with that share of its H, N and F, H a multiple of `multiple`; heads and embeddings stay as wide."""

    def scaled(value: int | tuple[int, ...]) -> object:
        return tuple(map(scaled, value)) if isinstance(value, tuple) else max(1, round(share * value))

    return spec.base.derive(
        {
            "hidden": multiple * max(1, round(share * spec.hidden / multiple)),
            "attention.heads": scaled(spec.attention.heads),
            "attention.head_size": spec.head_size,
            "feedforward.width": scaled(spec.feedforward.width),
            "embeddings.width": spec.embeddings.width or spec.hidden,
        }
    )


@dataclasses.dataclass(frozen=True)
class ElectraSpec(Spec):
    """A discriminator and the size of its generator, which lives in pretraining alone."""

    generator: GeneratorSize = GeneratorSize()

    def of_generator(self) -> "ElectraSpec":
        """The Spec of the generator's blocks; its heads are as wide as the discriminator's."""
        return smaller(self, self.generator.share or share_of(self))


class ElectraEncoder(Encoder):
    """The discriminator, a BERT without a pooler."""

    open_lengths = True

    label_activation = "gelu"
    token_head = heads.GeluMaskedLM  # of a generator that is an encoder of its own (transformers' ElectraForMaskedLM)

    def token_model(self, tensors: "Safetensors") -> tuple["ElectraEncoder", str] | None:
        """The generator of a run as an encoder of its own, and what the names of its head's weights begin with.

        Args:
            tensors: of the run's directory.

        Returns:
            None where the directory holds no generator.
        """
        if "generator" not in head_names(tensors):
            return None
        generator = built(registry.family_of(self), self.spec.of_generator())
        generator.tokenizer = self.tokenizer
        for name, variable in named_weights(generator).items():
            own = not name.startswith("embeddings/") or name.startswith("embeddings/projection/")
            variable.assign(tensors.read(f"heads/generator/{name.removeprefix('embeddings/')}" if own else name))
        return generator, "heads/generator/"


class Generator(keras.layers.Layer):
    """The masked language model whose samples replace tokens (section 2): projection, blocks and token head.

    Args:
        spec: Spec, the generator's own.
        block_class: a family's own blocks, or None.
        token_head: class of the head.
    Call: x [B, S, E], the embeddings; bias [B, 1, Q or 1, S] or None; positions [B, P]; table [V, E]
        -> logits [B, P, V] float32.
    """

    def __init__(self, spec: Spec, block_class: Callable | None, token_head: type, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.spec, self.block_class, self.token_head = spec, block_class, token_head

    def build(self, shape: Shape) -> None:
        spec, kwargs = self.spec, {"dtype": self.dtype_policy}
        self.projection = None
        if spec.embeddings.width != spec.hidden:
            self.projection = Linear(spec.hidden, spec.initializer, name="projection", **kwargs)
            self.projection.build(shape)
        self.blocks = stack(spec, self.block_class, **kwargs)
        self.mlm = heads.token_head(self.token_head, spec, **kwargs)
        self.mlm.build((None, None, spec.hidden))

    def call(
        self, x: Tensor, bias: Tensor = None, positions: Tensor = None, table: Tensor = None, training: bool = False
    ) -> Tensor:
        if self.projection is not None:
            x = self.projection(x)
        for block in self.blocks:
            x, _ = block(x, context=Context(bias), training=training)
        return self.mlm(pick(x, positions), table)


class ElectraModel(heads.HeadedModel):
    """Generator, samples, discriminator.

    Call: the encoder's inputs with masked token_ids, mlm_positions, mlm_labels [B, P] int and mlm_weights [B, P] -> the
        encoder's outputs on the corrupted tokens, mlm_logits [B, P, V] float32, sampled [B, P] int32, corrupted_ids
        [B, S] int32, replaced [B, S] bool and rtd_logits [B, S] float32.
    """

    def call(self, inputs: Tensor, training: bool = False) -> dict[str, Tensor]:
        encoder = self.body
        encoder.check(inputs)
        logits = self.generated(inputs, training)
        sampled = random.sample(logits, random.rows_key("replaced tokens", ops.shape(logits)[0]))
        corrupted, replaced = substitute(inputs, sampled)
        outputs = encoder({**inputs, "token_ids": corrupted}, training=training)
        return outputs | {
            "mlm_logits": logits,
            "sampled": sampled,
            "corrupted_ids": corrupted,
            "replaced": replaced,
            "rtd_logits": self.heads["rtd"](outputs["sequence"])[..., 0],
        }

    def generated(self, inputs: Mapping[str, Tensor], training: bool) -> Tensor:
        """The generator's logits: float32 [B, P, V]."""
        encoder = self.body
        visible = encoder.visible(inputs)
        summed = encoder.embeddings.sum(inputs["token_ids"], inputs.get("segment_ids"), inputs.get("position_ids"))
        return self.heads["generator"](
            encoder.embeddings.normalise(summed, training),
            None if visible is None else visibility.bias(visible),
            positions=inputs["mlm_positions"],
            table=encoder.embeddings.tokens.table,
            training=training,
        )


def substitute(inputs: Mapping[str, Tensor], sampled: Tensor) -> tuple[Tensor, Tensor]:
    """Put samples in the places that were selected.

    Args:
        inputs: token_ids int32 [B, S]; mlm_positions, mlm_labels int32 [B, P]; mlm_weights [B, P], 1 = selected.
        sampled: int32 [B, P].

    Returns:
        token_ids [B, S] with the samples, and bool [B, S]: the sample is not the token that stood there.
    """
    token_ids, selected = inputs["token_ids"], inputs["mlm_weights"] > 0
    column = ops.arange(token_ids.shape[1], dtype="int32")
    # [B, P, S], which a compiler never stores; a scatter would be slow on TPU
    here = ops.logical_and(ops.equal(inputs["mlm_positions"][..., None], column), selected[..., None])
    other = ops.not_equal(sampled, inputs["mlm_labels"])[..., None]
    new = ops.sum(ops.where(here, sampled[..., None], 0), axis=1)
    return ops.where(ops.any(here, axis=1), new, token_ids), ops.any(ops.logical_and(here, other), axis=1)


class ElectraPretraining(BertPretraining):
    """The generator's masked LM and the discriminator's replaced token detection (section 2)."""

    packing = "full"
    defaults: Mapping[str, object] = {"mask": 0.85, "random": 0.0}
    of_large: Mapping[str, object] = {"rate": 0.25}  # table 6, "mask percent"; configure_pretraining.py: mask_prob
    model_class = ElectraModel

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.scales = {"mlm": 1.0, "rtd": RTD_WEIGHT}

    def heads(self, encoder: Encoder) -> tuple[Json, dict[str, tuple]]:
        spec, dtype = encoder.spec, encoder.dtype_policy
        generator = self.generator(encoder)
        # the released code's generator has its blocks' activation in the head too
        activation = spec.feedforward.activation
        rtd = heads.LabelHead(1, spec.initializer, activation=activation, name="rtd", dtype=dtype)
        read = spec.embeddings.width or spec.hidden
        return {"generator": generator, "rtd": rtd}, {
            "generator": (None, None, read),
            "rtd": (None, None, spec.hidden),
        }

    def generator(self, encoder: Encoder) -> keras.layers.Layer:
        """What replaces tokens; it reads the embeddings."""
        spec = encoder.spec
        if not hasattr(spec, "of_generator"):
            raise InputError(
                "the objective electra needs a generator, which this model's Spec does not describe: pretrain an electra (or a "
                "funnel with --objective funnel_electra, a deberta-v3 with deberta_v3)"
            )
        own, dtype = spec.of_generator(), encoder.dtype_policy
        return Generator(own, encoder.block_class, heads.MaskedLM, name="generator", dtype=dtype)

    @classmethod
    def defaults_of(cls, spec: Spec) -> Mapping[str, object]:
        return {**cls.defaults, **(cls.of_large if spec.hidden >= 1024 else {})}

    @classmethod
    def networks(cls, spec: ElectraSpec, predictions: float) -> list[tuple[Spec, float]]:
        return [(spec.of_generator(), predictions), (spec, 0.0)]

    def counts(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        real = ops.sum(ops.cast(batch["padding_mask"], "float32"))
        return {"mlm": ops.sum(batch["mlm_weights"]), "rtd": real}

    def sums(self, outputs: Mapping[str, Tensor], batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        labels, weights = batch["mlm_labels"], batch["mlm_weights"]
        mlm, accuracy = label_sums(outputs["mlm_logits"], labels, weights)
        original = ops.cast(ops.equal(outputs["sampled"], labels), "float32")
        real = ops.cast(batch["padding_mask"], "float32")
        logits, replaced = outputs["rtd_logits"], ops.cast(outputs["replaced"], "float32")
        # -log sigmoid(x) of what is replaced, -log sigmoid(-x) of the others, without overflow
        nats = ops.relu(logits) - logits * replaced + ops.log1p(ops.exp(-ops.abs(logits)))
        right = ops.cast(ops.equal(logits > 0, outputs["replaced"]), "float32")
        return {
            "mlm": mlm,
            "mlm/accuracy": accuracy,
            "mlm/sampled_original": ops.sum(original * weights),
            "rtd": ops.sum(nats * real),
            "rtd/accuracy": ops.sum(right * real),
            "rtd/replaced": ops.sum(replaced * real),
        }


register_objective("electra", ElectraPretraining)

_RTD = {"inner/kernel": "H H", "inner/bias": "H", "kernel": "H 1", "bias": "1"}
_CLASSIFIER = {"inner/kernel": "H H", "inner/bias": "H", "kernel": "H L", "bias": "L"}
_CONFIG = (
    *HF.config,
    ("embeddings.width", "embedding_size"),
    ("generator.share", "generator_hidden_size"),  # what the released configure_pretraining.py calls it
)
# The classes of transformers: a discriminator, or a generator as an encoder of its own (ElectraForMaskedLM).
ELECTRA_HF = HF.derive(
    ("bert.", "electra."),
    ("cls.predictions.transform.dense", "generator_predictions.dense"),
    ("cls.predictions.transform.LayerNorm", "generator_predictions.LayerNorm"),
    ("cls.predictions.decoder", "generator_lm_head"),
    ("cls.predictions.bias", "generator_lm_head.bias"),
    rows=(
        ("embeddings/projection", "electra.embeddings_project"),
        ("heads/rtd/inner", "discriminator_predictions.dense"),
        ("heads/rtd", "discriminator_predictions.dense_prediction"),
        ("heads/classifier/inner", "classifier.dense"),
        ("heads/classifier", "classifier.out_proj"),
    ),
    heads={"mlm": HF.heads["mlm"], "rtd": _RTD, "classifier": _CLASSIFIER, "span": HF.heads["span"], "generator": None},
    config=_CONFIG,
    fixed={
        **HF.fixed,
        "model_type": "electra",
        "summary_type": "first",
        "summary_use_proj": True,
        "summary_activation": "gelu",
    },
    classes={
        "ElectraModel": Class(),
        "ElectraForPreTraining": Class(("rtd",)),
        "ElectraForMaskedLM": Class(("mlm",)),
        "ElectraForSequenceClassification": Class(("classifier",)),
        "ElectraForTokenClassification": ONE_MAP,
        "ElectraForQuestionAnswering": Class(("span",)),
        "ElectraForMultipleChoice": Class(
            ("classifier",),
            rows=(("heads/classifier/inner", "sequence_summary.summary"), ("heads/classifier", "classifier")),
        ),
    },
    unprojected=True,
)
# The released code calls a classifier by its task: task_specific/sst/dense.
# The generator of a released checkpoint is not read: small's is as large as the discriminator, which no configuration says.
# Pretraining that goes on from one starts a new generator, and says so.
ELECTRA_TF1 = TF1.derive(
    ("bert/", "electra/"),
    rows=(
        ("embeddings/projection", "electra/embeddings_project"),
        ("heads/rtd/inner", "discriminator_predictions/dense"),
        ("heads/rtd", "discriminator_predictions/dense_1"),
        ("heads/classifier", "task_specific/classifier/dense"),
    ),
    renames=((r"^task_specific/[^/]+/dense/", "task_specific/classifier/dense/"),),
    heads={"rtd": _RTD, "classifier": TF1.heads["classifier"], "generator": None},
    config=_CONFIG,
    ignored={**TF1.ignored, "generator/*": None, "generator_predictions/*": None},
    unprojected=True,
)

# KerasHub's has a pooler and the tanh approximation of GELU
KERAS_HUB = keras_hub.dialect(
    "ElectraBackbone",
    ("embeddings/projection", "layers/dense"),
    ("pooler", "layers/dense_1"),
    config=(
        ("embeddings.vocabulary", "vocab_size"),
        ("embeddings.segments", "num_segments"),
        ("embeddings.width", "embedding_dim"),
    ),
    pooler=True,
    feedforward__activation="gelu_tanh",
).derive(
    unprojected=True,
    classes={"ElectraBackbone": Class(), keras_hub.UNPROJECTED: Class(rows=(("pooler", "layers/dense"),))},
)

ELECTRA = register(
    dataclasses.replace(
        BERT,
        name="electra",
        spec=ElectraSpec(pooler=False),
        sizes={
            "small": {"hidden": 256, "attention.heads": 4, "feedforward.width": 1024, "embeddings.width": 128},
            "base": {},
            "large": BERT.sizes["large"],
        },
        aliases={},
        encoder=ElectraEncoder,
        names={"hf": ELECTRA_HF, "tf1": ELECTRA_TF1, "keras_hub": KERAS_HUB},
        objective="electra",
        paper="Clark et al., 2020, ELECTRA: Pre-training Text Encoders as Discriminators Rather Than Generators",
    )
)
