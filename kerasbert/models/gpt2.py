"""GPT-2: Language Models are Unsupervised Multitask Learners (Radford et al., 2019).

Section 2.3: the Transformer's decoder alone, as in GPT (Radford et al., 2018), with

- layer norms in front of the sublayers, and one more after the last block;
- the kernels in front of the residual sums starting at 1/sqrt(N) of the others, where N is the number of residual layers, 2 L;
- 50,257 pieces of byte-level BPE, contexts of 1,024 tokens.

Of the released code: GELU is the tanh approximation, the output is the table of tokens and has no bias, no dropout within the
feed-forward layers. <|endoftext|> begins and ends texts, and pads here, where a mask says what is real.

A text is classified by its last token's vector, as transformers' GPT2ForSequenceClassification does.
"""

import functools
import math
from collections.abc import Callable

from kerasbert.checkpoints import buffers, keras_hub
from kerasbert.checkpoints.forms import Joined
from kerasbert.checkpoints.names import Class, Dialect
from kerasbert.layers.block import Block, PreNormBlock
from kerasbert.layers.causal import CausalLM
from kerasbert.registry import Family, register
from kerasbert.spec import Attention, Blocks, Embeddings, FeedForward, Spec


class GPT2(CausalLM):
    """A stack whose tokens see themselves and those before them."""

    label_bias = False

    @property
    def block_class(self) -> Callable:
        """Blocks of the Spec's norm, whose kernels in front of the residual sums start smaller (section 2.3)."""
        smaller = self.spec.initializer / math.sqrt(2 * self.spec.blocks.layers)
        return functools.partial(PreNormBlock if self.spec.blocks.norm == "pre" else Block, output_initializer=smaller)


def _size(layers: int, hidden: int, heads: int) -> dict[str, int]:
    return {"blocks.layers": layers, "hidden": hidden, "attention.heads": heads, "feedforward.width": 4 * hidden}


_BLOCK = "transformer.h.{i}"
HF = Dialect(
    rows=(
        ("embeddings/tokens", "transformer.wte"),
        ("embeddings/positions", "transformer.wpe"),
        *(
            (f"block_{{i}}/attention/{part}", f"{_BLOCK}.attn.c_attn#{n}")
            for n, part in enumerate(("query", "key", "value"))
        ),
        ("block_{i}/attention/output", f"{_BLOCK}.attn.c_proj"),
        ("block_{i}/attention_norm", f"{_BLOCK}.ln_1"),
        ("block_{i}/feedforward/inner", f"{_BLOCK}.mlp.c_fc"),
        ("block_{i}/feedforward/outer", f"{_BLOCK}.mlp.c_proj"),
        ("block_{i}/feedforward_norm", f"{_BLOCK}.ln_2"),
        ("norm", "transformer.ln_f"),
        ("heads/classifier", "score", "T"),
        ("heads/span", "qa_outputs", "T"),
    ),
    # their Conv1D keeps a matrix as [in, out]
    leaves={
        "kernel": (".weight",),
        "bias": (".bias",),
        "gamma": (".weight",),
        "beta": (".bias",),
        "table": (".weight",),
    },
    forms={"*.attn.c_attn.*": Joined(3)},
    heads={"classifier": {"kernel": "H L"}, "span": {"kernel": "H 2", "bias": "2"}},
    config=(
        ("embeddings.vocabulary", "vocab_size"),
        ("embeddings.positions", "n_positions"),
        ("hidden", "n_embd"),
        ("blocks.layers", "n_layer"),
        ("attention.heads", "n_head"),
        ("feedforward.width", "n_inner"),
        ("feedforward.activation", "activation_function"),
        ("dropout", "resid_pdrop"),
        ("dropout", "embd_pdrop"),
        ("attention.dropout", "attn_pdrop"),
        ("initializer", "initializer_range"),
        ("epsilon", "layer_norm_epsilon"),
    ),
    silent={"n_inner": lambda config: 4 * config["n_embd"] if isinstance(config.get("n_embd"), int) else None},
    fixed={
        "model_type": "gpt2",
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "add_cross_attention": False,
        "tie_word_embeddings": True,
    },
    special={"bos_token_id": "sep", "eos_token_id": "sep"},
    classes={
        "GPT2LMHeadModel": Class(),
        "GPT2Model": Class(),
        "GPT2ForSequenceClassification": Class(("classifier",)),
        "GPT2ForTokenClassification": Class(
            ("classifier",),
            rows=(("heads/classifier", "classifier", "T"),),
            shapes={"classifier": {"kernel": "H L", "bias": "L"}},
        ),
        "GPT2ForQuestionAnswering": Class(("span",)),
        "GPT2DoubleHeadsModel": Class(refused="chooses among texts by the vector of a token that each call names"),
    },
    prefix="transformer.",
    unread={
        "summary_*": "of a refused class",
        "n_ctx": "n_positions by another name",
        "reorder_and_upcast_attn": "float32 is what everything is computed in",
        "predict_special_tokens": "unread by the released code too",
        "n_special": "counted in vocab_size",
    },
    tied={"lm_head.weight": "transformer.wte.weight"},
    ignored={"*.attn.bias": buffers.causal, "*.attn.masked_bias": buffers.hidden},
)

KERAS_HUB = keras_hub.dialect(
    "GPT2Backbone", *keras_hub.block("transformer_decoder"), ("norm", "layers/layer_normalization")
)

GPT2_FAMILY = register(
    Family(
        name="gpt2",
        spec=Spec(
            epsilon=1e-5,
            pooler=False,
            embeddings=Embeddings(vocabulary=50257, positions=1024, segments=0),
            attention=Attention(causal=True),
            feedforward=FeedForward(activation="gelu_tanh"),
            blocks=Blocks(norm="pre"),
        ),
        sizes={
            "small": {},
            "medium": _size(24, 1024, 16),
            "large": _size(36, 1280, 20),
            "xl": _size(48, 1600, 25),
        },
        encoder=GPT2,
        kind="decoder",
        tokenizer="bpe",
        objective="causal_lm",
        names={"hf": HF, "keras_hub": KERAS_HUB},
        readout="last",
        paper="Radford et al., 2019, Language Models are Unsupervised Multitask Learners",
    )
)
