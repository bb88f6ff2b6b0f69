"""MASS: Masked Sequence to Sequence Pre-training for Language Generation (Song et al., 2019).

The network is the Transformer's (section 4.1: six layers a stack, 1,024 wide, feed-forward layers of 4,096). Of the released code
(github.com/microsoft/MASS, MASS-summarization, s2s_model.py): positions are learned, each stack has its own, 512 after one that
padding has; a norm on the sum of tokens and positions; GELU; BERT's 30,522 pieces; dropout on the attention probabilities too;
weights start as BERT's. `base` is its transformer_mass_base and the released mass-base-uncased (768 wide, 12 heads), `middle`
the paper's and mass-middle-uncased.

What it learns from (section 3.2; masked_dataset.py) is an objective: the encoder reads a text of which half is masked in one
piece; the decoder writes that piece and reads what it has written of it, nothing else of the text. Its positions are those in
the text, which `decoder_position_ids` says.

Differs: no dropout within the feed-forward layers (the code's activation_dropout, 0.1), and the released translation models, of
another code (XLM's, one vector of the language added to each token), have no file here.
"""

from kerasbert.models.transformer import TRANSFORMER, Transformer
from kerasbert.registry import register


class Mass(Transformer):
    """The Transformer's two stacks, the sum of tokens and positions normalised."""

    embeddings_norm = True
    first_token = "sep"  # of a task (fairseq); the pretraining's fragment begins behind a [MASK]


_BASE = {"hidden": 768, "attention.heads": 12, "feedforward.width": 3072}

MASS = register(
    TRANSFORMER.derive(
        "mass",
        spec={
            "hidden": 1024,
            "initializer": 0.02,
            "embeddings.kind": "learned",
            "embeddings.vocabulary": 30522,
            "embeddings.positions": 513,
            "embeddings.offset": 1,
            "attention.heads": 16,
            "attention.dropout": None,
            "feedforward.width": 4096,
            "feedforward.activation": "gelu",
        },
        sizes={"middle": {}, "base": _BASE},
        encoder=Mass,
        tokenizer="wordpiece",
        objective="mass",
        names={},
        paper="Song et al., 2019, MASS: Masked Sequence to Sequence Pre-training for Language Generation",
    )
)
