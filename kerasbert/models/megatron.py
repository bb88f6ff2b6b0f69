"""Megatron-LM's BERT (Shoeybi et al., 2020, Megatron-LM: Training Multi-Billion Parameter Language Models).

Two differences from BERT:

- Section 5.3, figure 7: the layer norms stand in front of the sublayers, so that the residual path is an identity, and one
  more after the last layer. Larger BERTs then do not become worse.
- Section 4.2: the kernels in front of the residual sums, of attention's output and of the outer feed-forward, start at
  0.02 / sqrt(2 L) for L layers, all others at 0.02.

Tensor parallelism, the subject of the paper, is not here; the 3.9B size can be counted and built, and needs an accelerator
that holds it.

Differs: the paper trains with sentence order prediction and whole word n-gram masking of ALBERT (5.3); the objective here
is BERT's unless `--select` and the packing say otherwise.
"""

import functools
import math
from collections.abc import Callable

from kerasbert.checkpoints.names import of_family
from kerasbert.layers.block import Block, PreNormBlock
from kerasbert.models.bert import BERT, Encoder
from kerasbert.models.bert import HF as BERT_HF
from kerasbert.registry import register


class MegatronEncoder(Encoder):
    """BERT's encoder with smaller initial kernels in front of the residual sums (section 4.2)."""

    open_lengths = True

    @property
    def block_class(self) -> Callable:
        """Blocks of the Spec's norm, with that initializer."""
        kind = PreNormBlock if self.spec.blocks.norm == "pre" else Block
        return functools.partial(
            kind, output_initializer=self.spec.initializer / math.sqrt(2 * self.spec.blocks.layers)
        )


HF = BERT_HF.derive(
    rows=(
        ("block_{i}/attention_norm", "bert.encoder.layer.{i}.attention.ln"),
        ("block_{i}/feedforward_norm", "bert.encoder.layer.{i}.ln"),
        ("norm", "bert.encoder.ln"),
    ),
    fixed={"position_embedding_type": "absolute", "is_decoder": False, "add_cross_attention": False},
    classes=of_family(BERT_HF.classes, "Bert", "MegatronBert"),
)

MEGATRON_BERT = register(
    BERT.derive(
        "megatron-bert",
        spec={
            "blocks.norm": "pre",
            "embeddings.vocabulary": 29056,
            "hidden": 1024,
            "blocks.layers": 24,
            "attention.heads": 16,
            "feedforward.width": 4096,
        },
        sizes={
            "345m": {},
            "3.9b": {"hidden": 2560, "blocks.layers": 48, "attention.heads": 40, "feedforward.width": 10240},
        },
        aliases={},
        encoder=MegatronEncoder,
        names={"hf": HF},
        paper="Shoeybi et al., 2020, Megatron-LM: Training Multi-Billion Parameter Language Models",
    )
)
