"""XLM: Cross-lingual Language Model Pretraining (Lample & Conneau, 2019).

Differences from BERT: a language embedding is added to every token and there are no segments (section 3.1, figure 1);
masked LM on streams of sentences (3.3, packing `doc`) and translation LM (3.4, packing `translations`): a sentence and its
translation in one sequence, the positions of the second counted from 0 again. Of the released code: no pooler, and the token
head is the transposed table and a bias, without a layer before it.

Differs: the paper draws the tokens of its streams by the root of their inverse frequency (3.3); here all are alike. Its
tokenizer (fastBPE after Moses) is not here; byte-level BPE or a unigram vocabulary over all languages takes its place.

The numbers of languages come from one table, `languages.json` beside the tokenizer (`text.languages`).
"""

import dataclasses
from collections.abc import Mapping

from keras import ops

from kerasbert.checkpoints import beam_span, buffers
from kerasbert.checkpoints.names import Class
from kerasbert.inputs import TEXT, Input, Shape, Tensor
from kerasbert.layers import embeddings
from kerasbert.layers.backend import project
from kerasbert.layers.embeddings import Table
from kerasbert.layers.heads import MaskedLM
from kerasbert.models import bert
from kerasbert.models.bert import BERT
from kerasbert.models.bert import HF as BERT_HF
from kerasbert.objectives.bert import BertPretraining
from kerasbert.registry import register, register_objective
from kerasbert.spec import Embeddings as EmbeddingsSpec
from kerasbert.spec import Spec as BertSpec


@dataclasses.dataclass(frozen=True)
class LanguageEmbeddings(EmbeddingsSpec):
    """BERT's embeddings and languages.

    Args:
        languages: int, rows of the language table; a model of one language has none.
    """

    languages: int = 1


@dataclasses.dataclass(frozen=True)
class Spec(BertSpec):
    """BERT's Spec with languages."""

    embeddings: LanguageEmbeddings = LanguageEmbeddings()


class Embeddings(embeddings.Embeddings):
    """Token + position + language (figure 1), normalised.

    Call: as its parent's, and language_ids [B, S] or None (then no language is added, as in the released code).
    Trainable weights: languages*E more than its parent where there are several.
    """

    spec: Spec

    def build(self, shape: Shape | None = None) -> None:
        super().build(shape)
        parts, spec = self.spec.embeddings, self.spec
        self.languages = None
        if parts.languages > 1:
            width = parts.width or spec.hidden
            self.languages = Table(parts.languages, width, spec.initializer, name="languages", dtype=self.dtype_policy)
            self.languages.build()

    def call(
        self,
        token_ids: Tensor,
        segment_ids: Tensor = None,
        position_ids: Tensor = None,
        language_ids: Tensor = None,
        training: bool = False,
    ) -> Tensor:
        x = self.sum(token_ids, segment_ids, position_ids)
        if self.languages is not None and language_ids is not None:
            x = x + self.languages(language_ids)
        return self.finish(x, training)


class TokenHead(MaskedLM):
    """Predict tokens with the transposed token table and a bias: x [B, P, H], table [V, H] -> float32 [B, P, V]."""

    def build(self, shape: Shape) -> None:
        self.bias = self.add_weight(shape=(self.vocabulary,), initializer="zeros", name="bias")

    def call(self, x: Tensor, table: Tensor) -> Tensor:
        logits = project(x, ops.transpose(ops.cast(table, x.dtype)))
        return ops.cast(logits, "float32") + ops.cast(self.bias, "float32")


class Encoder(bert.Encoder):
    """BERT's encoder with a further input: language_ids int [B, S]."""

    embeddings_class = Embeddings
    token_head = TokenHead

    def embed(self, inputs: Mapping[str, Tensor], training: bool = False) -> Tensor:
        places = inputs.get("segment_ids"), inputs.get("position_ids"), inputs.get("language_ids")
        return self.embeddings(inputs["token_ids"], *places, training=training)


class XlmPretraining(BertPretraining):
    """Masked LM, and translation LM on rows of two parts (section 3.4), with the languages that the records bring."""

    packing = "doc"

    def prepare(self, features: Mapping[str, Tensor]) -> dict[str, Tensor]:
        batch = super().prepare(features)
        first = features["segment_lengths"][:, :1]
        column = ops.arange(batch["token_ids"].shape[1], dtype="int32")[None]
        within = column < first
        if "languages" in features:
            languages = features["languages"]
            batch["language_ids"] = ops.where(within, languages[:, :1], languages[:, 1:])
        if "pieces" not in features:  # packed rows: each piece has positions of its own already
            # "we reset the positions of target sentences" (3.4): the translation stands where its source stands
            batch["position_ids"] = ops.where(within, column, column - first)
        return batch


register_objective("xlm", XlmPretraining)

HF = BERT_HF.derive(
    rows=(
        ("embeddings/tokens/table", "transformer.embeddings.weight"),
        ("embeddings/positions/table", "transformer.position_embeddings.weight"),
        ("embeddings/languages/table", "transformer.lang_embeddings.weight"),
        ("embeddings/norm", "transformer.layer_norm_emb"),
        ("block_{i}/attention/query", "transformer.attentions.{i}.q_lin"),
        ("block_{i}/attention/key", "transformer.attentions.{i}.k_lin"),
        ("block_{i}/attention/value", "transformer.attentions.{i}.v_lin"),
        ("block_{i}/attention/output", "transformer.attentions.{i}.out_lin"),
        ("block_{i}/attention_norm", "transformer.layer_norm1.{i}"),
        ("block_{i}/feedforward/inner", "transformer.ffns.{i}.lin1"),
        ("block_{i}/feedforward/outer", "transformer.ffns.{i}.lin2"),
        ("block_{i}/feedforward_norm", "transformer.layer_norm2.{i}"),
        ("heads/mlm/bias", "pred_layer.proj.bias"),
        ("heads/classifier", "sequence_summary.summary"),
        ("heads/span", "qa_outputs"),
        *beam_span.rows("qa_outputs."),
    ),
    forms=beam_span.FORMS,
    heads={
        "mlm": {"bias": "V"},
        "classifier": BERT_HF.heads["classifier"],
        "span": BERT_HF.heads["span"],
        **beam_span.HEADS,
    },
    config=(
        ("embeddings.vocabulary", "vocab_size"),
        ("embeddings.positions", "max_position_embeddings"),
        ("embeddings.languages", "n_langs"),
        ("hidden", "emb_dim"),
        ("blocks.layers", "n_layers"),
        ("attention.heads", "n_heads"),
        ("feedforward.width", "emb_dim", 4),
        ("dropout", "dropout"),
        ("attention.dropout", "attention_dropout"),
        ("initializer", "init_std"),
        ("epsilon", "layer_norm_eps"),
    ),
    fixed={
        "model_type": "xlm",
        "gelu_activation": True,
        "sinusoidal_embeddings": False,
        "causal": False,
        "asm": False,
        "is_encoder": True,
        "use_lang_emb": True,
        "summary_type": "first",
        "summary_use_proj": True,
        "summary_proj_to_labels": True,
        "summary_activation": None,
    },
    classes={
        "XLMModel": Class(),
        "XLMWithLMHeadModel": Class(("mlm",)),
        "XLMForSequenceClassification": Class(("classifier",)),
        "XLMForTokenClassification": Class(("classifier",), rows=(("heads/classifier", "classifier"),)),
        "XLMForQuestionAnsweringSimple": Class(("span",)),
        "XLMForQuestionAnswering": Class((beam_span.HEAD,)),
        "XLMForMultipleChoice": Class(refused="has two linear maps in a row and no activation between"),
    },
    prefix="transformer.",
    renames=(),
    tied={"pred_layer.proj.weight": "transformer.embeddings.weight"},
    ignored={"*position_ids": buffers.counted},
    unread={
        "embed_init_std": "how a new model starts",
        "lang_id": "the language is given with the text",
        "mask_token_id": "an id of the tokenizer",
        **beam_span.UNREAD,
    },
)


def _size(layers: int, hidden: int, heads: int) -> dict[str, int]:
    return {"blocks.layers": layers, "hidden": hidden, "attention.heads": heads, "feedforward.width": 4 * hidden}


LANGUAGE = Input(
    "language_ids",
    optional=True,
    filled_by="setting",
    setting="language",
    choices=lambda tokenizer: tokenizer.languages or {},
)

# 3.1 and 5.1: GELU, dropout 0.1, learned positions; one table of 95,000 pieces for 15 languages
SPEC = Spec(pooler=False, embeddings=LanguageEmbeddings(vocabulary=95_000, segments=0))

XLM = register(
    dataclasses.replace(BERT, spec=SPEC).derive(
        "xlm",
        spec=_size(12, 1024, 8),
        sizes={
            "mlm-tlm-xnli15-1024": {"embeddings.languages": 15},
            "mlm-en-2048": _size(12, 2048, 16) | {"embeddings.vocabulary": 30145},
            "mlm-100-1280": _size(16, 1280, 16) | {"embeddings.vocabulary": 200_000},
        },
        aliases={},
        encoder=Encoder,
        tokenizer="bpe",
        objective="xlm",
        inputs=(*TEXT, LANGUAGE),
        names={"hf": HF},
        paper="Lample & Conneau, 2019, Cross-lingual Language Model Pretraining",
    )
)
