"""How much arithmetic an update is, estimated, and how much the device could do.

Assumptions: products of matrices only (2 per multiply-add), backward = 2 x forward (for frozen matrices too), useful tokens
(no padding), nothing for recomputation, LoRA and adapters (under 3%); attention sees the mean length of a sequence (PaLM,
Chowdhery et al., 2022, appendix B), or what `Spec.seen` says of it. For BERT-base, 32 x 128 without padding, that is 2.24e12;
XLA's cost analysis of the compiled step counts 2.31e12.
"""

import os
from typing import Any

import tensorflow as tf

from kerasbert.layers.feedforward import GATED
from kerasbert.registry import Family
from kerasbert.spec import Spec
from kerasbert.training import chips
from kerasbert.training.step import on_cpu

# Peak of bfloat16 (float16 where there is none) products without sparsity, in FLOP/s per chip or GPU: vendors' data sheets
GPUS = {"H200": 989e12, "H100": 989e12, "A100": 312e12, "L4": 121e12, "V100": 125e12, "T4": 65e12}


def family_flops(family: Family, spec: Spec, tokens: float, sequences: float, predictions: float) -> float:
    """`update_flops` as the family counts them; 0 where it cannot tell."""
    if family.flops is None and not family.has_blocks and family.one_stack:
        return 0.0
    count = family.flops or (update_flops if family.one_stack else two_stacks)
    return count(spec, tokens, sequences, predictions)


def update_flops(spec: Spec, tokens: float, sequences: float, predictions: float) -> float:
    """FLOPs of one update of an encoder with a masked-LM head.

    Args:
        spec: Spec.
        tokens: useful tokens of the batch.
        sequences: rows.
        predictions: masked tokens of the batch.

    >>> from kerasbert.spec import Spec
    >>> round(update_flops(Spec(), 128.0, 1.0, 20.0) / 1e9, 1)
    69.9
    """
    hidden, width = spec.hidden, spec.embeddings.width or spec.hidden
    per_token = 2 * width * hidden if width != hidden else 0
    for layer in range(spec.blocks.layers):
        attention = spec.per_layer(spec.attention.heads, layer) * spec.head_size
        per_token += 2 * spec.attention_maps(layer) * hidden * attention
        per_token += 2 * 2 * attention * spec.seen(layer, tokens / sequences)
        per_token += 2 * _products(spec) * hidden * spec.per_layer(spec.feedforward.width, layer)
    head = 2 * hidden * width + 2 * width * spec.embeddings.vocabulary
    pooler = 2 * hidden * hidden if spec.pooler else 0
    return 3.0 * (tokens * per_token + predictions * head + sequences * pooler)


def _products(spec: Spec) -> int:
    """Matrices of a feed-forward network."""
    return 3 if spec.feedforward.activation.startswith(GATED) else 2


def two_stacks(spec: Any, tokens: float, sequences: float, predictions: float) -> float:
    """FLOPs of one update of an encoder-decoder.

    Args:
        spec: EncoderDecoderSpec.
        tokens: useful tokens that the encoder reads.
        sequences: rows.
        predictions: tokens that the decoder writes.

    >>> from kerasbert.layers.encoder_decoder import EncoderDecoderSpec
    >>> round(two_stacks(EncoderDecoderSpec(), 512.0, 1.0, 114.0) / 1e9, 1)
    425.1
    """
    width = spec.attention.heads * spec.head_size
    linear, feedforward = 2 * spec.hidden * width, 2 * _products(spec) * spec.hidden * spec.feedforward.width
    source, target = tokens / sequences, predictions / sequences
    encoder = spec.blocks.layers * (4 * linear + 4 * width * source + feedforward)
    layers = spec.of_decoder().blocks.layers
    read = layers * 2 * linear  # keys and values of the source
    decoder = layers * (6 * linear + 4 * width * (target + source) + feedforward)
    head = 2 * spec.hidden * spec.embeddings.vocabulary
    return 3.0 * (tokens * (encoder + read) + predictions * (decoder + head))


def peak(strategy: tf.distribute.Strategy) -> float | None:
    """Peak FLOP/s of all devices of a strategy, None where it is not known (CPU)."""
    replicas = strategy.num_replicas_in_sync
    if isinstance(strategy, tf.distribute.TPUStrategy):
        kind = chips.kind(os.environ.get("TPU_ACCELERATOR_TYPE"))
        cores = 2 if kind in ("v2", "v3") else 1  # there a replica is half a chip
        return replicas * chips.PEAKS[kind] / cores if kind else None
    if on_cpu(strategy):
        return None
    name = tf.config.experimental.get_device_details(tf.config.list_physical_devices("GPU")[0]).get("device_name", "")
    found = next((rate for part, rate in GPUS.items() if part in name.replace("-", " ").split()), None)
    return replicas * found if found else None
