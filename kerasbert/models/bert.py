"""BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding (Devlin et al., 2019).

The small sizes are of "Well-Read Students Learn Better" (Turc et al., 2019, table 1).
"""

from collections.abc import Callable

import keras

from kerasbert import registry
from kerasbert import spec as specs
from kerasbert.checkpoints import keras_hub
from kerasbert.checkpoints.names import Dialect
from kerasbert.layers import visibility
from kerasbert.layers.block import stack
from kerasbert.layers.embeddings import Embeddings
from kerasbert.layers.heads import MaskedLM, Pooler
from kerasbert.layers.norms import LayerNorm
from kerasbert.registry import Family, register
from kerasbert.spec import Spec


def serializable(kind: type) -> type:
    """Register a class under its file's and its own name, so that a `.keras` file that holds it can be loaded."""
    module = kind.__module__.rpartition(".")[2].partition("_plugin_")[0]  # a plug-in's module is named by its hash
    return keras.saving.register_keras_serializable("kerasbert", f"{module}.{kind.__qualname__}")(kind)


@serializable
class Encoder(keras.Model):
    """Transformer encoder: embeddings, blocks, pooler (section 3).

    Args:
        spec: Spec.
    Call: dict of token_ids [B, S] int, padding_mask [B, S] (bool or 0/1, True = a real token; all real by default),
        segment_ids [B, S], position_ids [B, S], packed_ids [B, S] (pieces of one number see each other alone; instead of
        padding_mask, padding is 0) -> dict of sequence [B, S, H], pooled [B, H] (with a pooler),
        hidden (tuple of L+1 [B, S, H]) and, with `attention=True`, attention (tuple of L [B, N, S, S]).
        `read="first"` computes the last layer for the first token alone: sequence is [B, 1, H].

    A Keras model that holds it can be saved as `.keras` and cloned; the file has no tokenizer (`kb.save` writes one).
    """

    embeddings_class: type = Embeddings
    block_class: Callable | None = None  # a family's own block
    pooler_class: type = Pooler
    token_head: type = MaskedLM  # predicts tokens
    label_activation: str | None = None  # of a hidden layer in the head of a task, for encoders without a pooler

    def __init__(self, spec: Spec, name: str = "encoder", **kwargs):
        super().__init__(name=name, **kwargs)
        self.spec = spec
        self.tokenizer = None
        self.labels = None
        self.model_name: str | None = None  # family/size that it was built from

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        serializable(cls)

    def build(self, shape=None):
        spec, kwargs = self.spec, {"dtype": self.dtype_policy}
        self.embeddings = self.embeddings_class(spec, name="embeddings", **kwargs)
        self.embeddings.build()
        self.blocks = stack(spec, self.block_class, **kwargs)
        self.norm = None
        if spec.blocks.norm == "pre":
            self.norm = LayerNorm(spec.epsilon, name="norm", **kwargs)
            self.norm.build((None, None, spec.hidden))
        self.pooler = None
        if spec.pooler:
            self.pooler = self.pooler_class(spec.hidden, spec.initializer, name="pooler", **kwargs)
            self.pooler.build((None, spec.hidden))
        self.built = True

    def visible(self, inputs):
        """bool [B, Q or 1, K], True = may look, or None where everybody sees everything."""
        if "packed_ids" in inputs:
            return visibility.packed(inputs["packed_ids"])
        return visibility.padding(inputs["padding_mask"]) if "padding_mask" in inputs else None

    def embed(self, inputs, training=False):
        """What the tokens start as: [B, S, H]."""
        places = inputs.get("segment_ids"), inputs.get("position_ids")
        return self.embeddings(inputs["token_ids"], *places, training=training)

    def call(self, inputs, training=False, read=None, attention=False):
        self.check(inputs)
        visible = self.visible(inputs)
        bias = None if visible is None else visibility.bias(visible)
        x = self.embed(inputs, training)
        hidden, seen = [x], []
        for layer, part in enumerate(self.blocks):
            last = layer + 1 == len(self.blocks)
            x, probabilities = part(x, bias, read=read if last else None, training=training)
            if last and self.norm is not None:
                x = self.norm(x)
            hidden.append(x)
            seen.append(probabilities)
        outputs = {"sequence": x, "hidden": tuple(hidden)}
        if self.pooler is not None:
            outputs["pooled"] = self.pooler(x)
        if attention:
            outputs["attention"] = tuple(seen)
        return outputs

    def check(self, inputs):
        """Refuse what would fail later with a message about matrices."""
        length, longest = inputs["token_ids"].shape[1], self.spec.longest
        if length and length > longest and "position_ids" not in inputs:
            raise ValueError(
                f"token_ids has length {length}, expected at most {longest} (embeddings.positions): truncate"
            )

    def get_config(self):
        name = self.model_name or registry.family_of(self).name
        return super().get_config() | {"model": name, "spec": specs.to_dict(self.spec)}

    @classmethod
    def from_config(cls, config):
        config = dict(config)
        name = config.pop("model")
        kind = type(registry.family(name.partition("/")[0]).spec)
        encoder = cls(specs.from_dict(config.pop("spec"), kind), **config)
        encoder.model_name = name
        return encoder

    def build_from_config(self, config):
        if not self.built:
            self.build()


def _size(layers: int, hidden: int) -> dict[str, int]:
    """Turc et al., 2019: F = 4H and heads of 64."""
    return {"blocks.layers": layers, "hidden": hidden, "attention.heads": hidden // 64, "feedforward.width": 4 * hidden}


# Checkpoint names: ours, theirs
_ROWS = (
    ("embeddings/norm", "bert.embeddings.LayerNorm"),
    ("block_{i}/attention/query", "bert.encoder.layer.{i}.attention.self.query"),
    ("block_{i}/attention/key", "bert.encoder.layer.{i}.attention.self.key"),
    ("block_{i}/attention/value", "bert.encoder.layer.{i}.attention.self.value"),
    ("block_{i}/attention/output", "bert.encoder.layer.{i}.attention.output.dense"),
    ("block_{i}/attention_norm", "bert.encoder.layer.{i}.attention.output.LayerNorm"),
    ("block_{i}/feedforward/inner", "bert.encoder.layer.{i}.intermediate.dense"),
    ("block_{i}/feedforward/outer", "bert.encoder.layer.{i}.output.dense"),
    ("block_{i}/feedforward_norm", "bert.encoder.layer.{i}.output.LayerNorm"),
    ("pooler", "bert.pooler.dense"),
    ("heads/mlm/transform", "cls.predictions.transform.dense"),
    ("heads/mlm/norm", "cls.predictions.transform.LayerNorm"),
)
_SHARED = {
    "heads": {
        "mlm": {"transform/kernel": "H E", "transform/bias": "E", "norm/gamma": "E", "norm/beta": "E", "bias": "V"},
        "nsp": {"kernel": "H 2", "bias": "2"},
        "classifier": {"kernel": "H L", "bias": "L"},
    },
    "config": (
        ("embeddings.vocabulary", "vocab_size"),
        ("embeddings.positions", "max_position_embeddings"),
        ("embeddings.segments", "type_vocab_size"),
        ("hidden", "hidden_size"),
        ("blocks.layers", "num_hidden_layers"),
        ("attention.heads", "num_attention_heads"),
        ("feedforward.width", "intermediate_size"),
        ("feedforward.activation", "hidden_act"),
        ("dropout", "hidden_dropout_prob"),
        ("attention.dropout", "attention_probs_dropout_prob"),
        ("initializer", "initializer_range"),
        ("epsilon", "layer_norm_eps"),
    ),
}
HF = Dialect(
    rows=(
        *_ROWS,
        ("embeddings/tokens/table", "bert.embeddings.word_embeddings.weight"),
        ("embeddings/positions/table", "bert.embeddings.position_embeddings.weight"),
        ("embeddings/segments/table", "bert.embeddings.token_type_embeddings.weight"),
        ("heads/mlm/bias", "cls.predictions.bias"),
        ("heads/nsp", "cls.seq_relationship"),
        ("heads/classifier", "classifier"),
    ),
    # torch keeps a matrix as [out, in]
    leaves={"kernel": (".weight", "T"), "bias": (".bias",), "gamma": (".weight",), "beta": (".bias",)},
    fixed={
        "model_type": "bert",
        "position_embedding_type": "absolute",
        "is_decoder": False,
        "add_cross_attention": False,
    },
    architectures={
        "BertModel": (),
        "BertForMaskedLM": ("mlm",),
        "BertForPreTraining": ("mlm", "nsp"),
        "BertForNextSentencePrediction": ("nsp",),
        "BertForSequenceClassification": ("classifier",),
    },
    without_pooler=("BertForMaskedLM", "BertForTokenClassification", "BertForQuestionAnswering"),
    prefix="bert.",
    renames=((r"LayerNorm\.gamma$", "LayerNorm.weight"), (r"LayerNorm\.beta$", "LayerNorm.bias")),
    tied={
        "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    },
    ignore=("*embeddings.position_ids", "*embeddings.token_type_ids"),
    **_SHARED,
)
TF1 = Dialect(
    rows=(
        *((ours, theirs.replace(".", "/").replace("layer/{i}", "layer_{i}")) for ours, theirs in _ROWS),
        ("embeddings/tokens/table", "bert/embeddings/word_embeddings"),
        ("embeddings/positions/table", "bert/embeddings/position_embeddings"),
        ("embeddings/segments/table", "bert/embeddings/token_type_embeddings"),
        ("heads/mlm/bias", "cls/predictions/output_bias"),
        ("heads/nsp/kernel", "cls/seq_relationship/output_weights", "T"),
        ("heads/nsp/bias", "cls/seq_relationship/output_bias"),
        ("heads/classifier/kernel", "output_weights", "T"),
        ("heads/classifier/bias", "output_bias"),
    ),
    leaves={"kernel": ("/kernel",), "bias": ("/bias",), "gamma": ("/gamma",), "beta": ("/beta",)},
    ignore=("*/adam_m", "*/adam_v", "*/lamb_m", "*/lamb_v", "*/Adam", "*/Adam_1", "global_step", "beta?_power"),
    **_SHARED,
)

# KerasHub's BERT, the one with TensorFlow's own code as its model, has the tanh approximation of GELU
KERAS_HUB = keras_hub.dialect(
    "BertBackbone",
    ("pooler", "layers/dense"),
    config=(("embeddings.segments", "num_segments"),),
    feedforward__activation="gelu_tanh",
)

BERT = register(
    Family(
        name="bert",
        spec=Spec(),
        sizes={
            "base": {},
            "large": _size(24, 1024),
            "base-cased": {"embeddings.vocabulary": 28996},
            "large-cased": _size(24, 1024) | {"embeddings.vocabulary": 28996},
            "base-chinese": {"embeddings.vocabulary": 21128},
            "base-multilingual-cased": {"embeddings.vocabulary": 119547},
            "base-multilingual-uncased": {"embeddings.vocabulary": 105879},
            "tiny": _size(2, 128),
            "mini": _size(4, 256),
            "small": _size(4, 512),
            "medium": _size(8, 512),
            "xlarge": _size(24, 2048),
        },
        aliases={f"{size}-uncased": size for size in ("base", "large", "tiny", "mini", "small", "medium")},
        encoder=Encoder,
        names={"hf": HF, "tf1": TF1, "keras_hub": KERAS_HUB},
        paper="Devlin et al., 2019, BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding",
    )
)
