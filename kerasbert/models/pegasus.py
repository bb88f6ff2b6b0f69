"""PEGASUS: Pre-training with Extracted Gap-sentences for Abstractive Summarization (Zhang et al., 2020).

Section 4, "base" and "large": the Transformer's encoder-decoder of 12 layers of 768 units and 16 of 1,024, with sines and cosines
as positions. Of the released code (google-research/pegasus): norms in front of the sublayers and one more behind each stack,
tokens' vectors times sqrt(d_model), ReLU, 96,103 pieces of SentencePiece's unigram model, 103 of them for masks and other uses.
Padding (0) starts the decoder, </s> (1) ends a text. `base` has the pieces of `large`; section 6.1's 223 million parameters are
those of about 32,000.

What is added to the logits, `final_logits_bias` of transformers, is zero in all released models: it is kept as a head, `lm`.

Differs: no dropout within the feed-forward layers.
"""

import numpy as np

from kerasbert.checkpoints import buffers
from kerasbert.checkpoints.names import Class, Dialect
from kerasbert.layers.encoder_decoder import SOURCE_AND_TARGET, EncoderDecoder, ScaledEmbeddings, ScaledSpec
from kerasbert.models import bart
from kerasbert.models.mbart import NORMS
from kerasbert.registry import Family, register
from kerasbert.spec import Attention, Blocks, FeedForward
from kerasbert.storage.json_view import Json


class Pegasus(EncoderDecoder):
    """Two stacks of pre-norm blocks; tokens times sqrt(hidden) before sines and cosines are added."""


def _table(spec: ScaledSpec) -> np.ndarray:
    """The sines and cosines that their files hold."""
    return np.asarray(buffers.sines((spec.embeddings.positions, spec.hidden)), "float32")


class PegasusDialect(Dialect):
    """The ids of a vocabulary like the released one's."""

    def write_config(self, config: Json, spec: ScaledSpec) -> Json:
        """With these ids."""
        ids = {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0, "forced_eos_token_id": 1}
        return ids | config


_ALONE = ("/embeddings_norm", "/positions", "heads/classifier", "heads/span")
_BART = bart.HF
HF = PegasusDialect(
    rows=(*NORMS, *(row for row in _BART.rows if not any(part in row[0] for part in _ALONE))),
    leaves=_BART.leaves,
    forms=_BART.forms,
    prefix=_BART.prefix,
    tied=_BART.tied,
    unread=_BART.unread,
    heads={"lm": _BART.heads["lm"]},
    config=(*_BART.config, ("embeddings.scaled", "scale_embedding")),
    silent={"scale_embedding": False},
    fixed={key: value for key, value in _BART.fixed.items() if key != "scale_embedding"}
    | {
        "model_type": "pegasus",
        "normalize_before": True,
        "add_final_layer_norm": True,
        "normalize_embedding": False,
        "static_position_embeddings": True,
    },
    special={"eos_token_id": "sep", "decoder_start_token_id": "pad", "forced_eos_token_id": "sep"},
    classes={
        "PegasusForConditionalGeneration": Class(("lm",)),
        "PegasusModel": Class(),
        "PegasusForCausalLM": Class(refused="is a decoder without the encoder"),
    },
    ignored={"*.embed_positions.weight": buffers.sines},
    stored={f"model.{stack}.embed_positions.weight": _table for stack in bart.STACKS},
)

PEGASUS = register(
    Family(
        name="pegasus",
        spec=ScaledSpec(
            hidden=1024,
            epsilon=1e-5,
            embeddings=ScaledEmbeddings(vocabulary=96103, positions=1024, segments=0, kind="sinusoidal"),
            attention=Attention(heads=16),
            feedforward=FeedForward(width=4096, activation="relu"),
            blocks=Blocks(layers=16, norm="pre"),
        ),
        sizes={
            "large": {},
            "base": {"blocks.layers": 12, "hidden": 768, "attention.heads": 12, "feedforward.width": 3072},
        },
        encoder=Pegasus,
        kind="seq2seq",
        tokenizer="unigram",
        objective="gap_sentences",
        names={"hf": HF},
        inputs=SOURCE_AND_TARGET,
        readout="none",
        paper="Zhang et al., 2020, PEGASUS: Pre-training with Extracted Gap-sentences for Abstractive Summarization",
    )
)
