"""mT5: A Massively Multilingual Pre-trained Text-to-Text Transformer (Xue et al., 2021).

Section 3.2: T5 v1.1 (a gate with GELU, an output table of its own, no dropout in pretraining) of 101 languages, with a
vocabulary of 250,000 pieces, 250,112 rows of the tables. Section 3.2's sizes are those of v1.1: 300M, 580M, 1.2B, 3.7B and
13B parameters. Languages are sampled by |L|^0.3 (section 3.2): `kerasbert data --language ... --smoothing 0.3`.

`mt5-encoder` is its encoder alone, as `t5-encoder` is T5's.
"""

from typing import Any

from kerasbert.checkpoints.names import Dialect, of_family
from kerasbert.models import t5_encoder
from kerasbert.models.t5 import HF, KERAS_HUB, T5_FAMILY, V1_1, V1_1_SIZES, activations
from kerasbert.registry import register

GATED = "gated-gelu"


def multilingual(model_type: str, prefix: str, **changes: Any) -> Dialect:
    """The names of T5 in files of a family whose feed-forward networks have a gate where nothing is said."""
    given = {
        "fixed": {**HF.fixed, **activations(GATED), "model_type": model_type},
        "silent": {**HF.silent, "feed_forward_proj": GATED},
        "spec": {"output.own": False},  # unless the file holds two tables
        "classes": of_family(HF.classes, "T5", prefix),
    }
    return HF.derive(**(given | changes))


def encoder_alone(model_type: str, prefix: str, **changes: Any) -> Dialect:
    """The names of such a family's encoder."""
    theirs = t5_encoder.HF
    given = {
        "fixed": {**theirs.fixed, **activations(GATED), "model_type": model_type},
        "silent": {**theirs.silent, "feed_forward_proj": GATED},
        "model_types": (model_type,),
        "classes": of_family(theirs.classes, "T5", prefix),
    }
    return theirs.derive(**(given | changes))


MT5 = register(
    T5_FAMILY.derive(
        "mt5",
        spec=V1_1_SIZES["base"] | V1_1 | {"embeddings.vocabulary": 250112},
        sizes=V1_1_SIZES,
        # its classes never scale what the decoder gives
        names={
            "hf": multilingual(
                "mt5",
                "MT5",
                config=tuple(row for row in HF.config if row[0] != "output.scaled"),
                silent={
                    **{key: value for key, value in HF.silent.items() if key != "scale_decoder_outputs"},
                    "feed_forward_proj": GATED,
                },
                unread={**HF.unread, "scale_decoder_outputs": "no class of mT5 reads it"},
            ),
            "keras_hub": KERAS_HUB,
        },
        paper="Xue et al., 2021, mT5: A Massively Multilingual Pre-trained Text-to-Text Transformer",
    )
)

MT5_ENCODER = register(
    t5_encoder.T5_ENCODER.derive(
        "mt5-encoder",
        spec=V1_1_SIZES["base"] | {"feedforward.activation": "gated_gelu_tanh", "embeddings.vocabulary": 250112},
        sizes=V1_1_SIZES,
        names={"hf": encoder_alone("mt5", "MT5")},
        paper=MT5.paper,
    )
)
