"""GPT: Improving Language Understanding by Generative Pre-Training (Radford et al., 2018).

Section 4.1: the Transformer's decoder alone, twelve layers, 768 wide, twelve heads,

- norms after the sublayers, none on the embeddings and none after the last block;
- GELU (the released code's is the tanh approximation), learned positions for 512 tokens, the table of tokens as the output;
- dropout 0.1 on embeddings, attention and residual sums; kernels start at N(0, 0.02);
- 40,000 merges of BPE over lower-cased words, whose last character has a </w> (tokenizer kind word_bpe): 40,478 pieces.

The released tokenizer cleans texts with ftfy and splits them with spaCy; here, as in transformers, BERT's splitting does, so that
some texts have other tokens than in the paper. Its vocabulary has no special token but <unk>, which pads here, where a mask says
what is real.

A text is classified by its last token's vector. The start, delimiter and extract tokens of section 3.3 are no part of the
released vocabulary: `with_task_tokens` gives a model three rows for them, and then they stand around every text that it reads.

The auxiliary language model of section 3.2 is `kerasbert finetune --auxiliary-lm 0.5`.

Differs: similarity reads a pair in one order, not in both (3.3).
"""

from collections.abc import Callable

import keras
import numpy as np

from kerasbert import registry
from kerasbert.checkpoints import buffers
from kerasbert.checkpoints.directory import built, named_weights
from kerasbert.checkpoints.names import Class, of_family
from kerasbert.errors import InputError
from kerasbert.layers.block import Block, PreNormBlock
from kerasbert.models.gpt2 import GPT2, GPT2_FAMILY
from kerasbert.models.gpt2 import HF as GPT2_HF
from kerasbert.registry import register
from kerasbert.text.added import AddedToken
from kerasbert.text.word_bpe import WordPairEncoding


class GPT(GPT2):
    """A post-norm stack whose tokens see themselves and those before them."""

    @property
    def block_class(self) -> Callable:
        """Blocks whose kernels all start alike."""
        return PreNormBlock if self.spec.blocks.norm == "pre" else Block


START, DELIMITER, EXTRACT = "_start_", "_delimiter_", "_classify_"  # as the released code has them
TEMPLATE = (f"{START} $A {EXTRACT}", f"{START} $A {DELIMITER} $B {EXTRACT}")


def with_task_tokens(model: keras.Model) -> keras.Model:
    """A model whose texts stand between start and extract tokens, two of them with a delimiter between (section 3.3).

    The three rows of the table are new, all other weights are the model's.

    Args:
        model: a GPT with its tokenizer, as `kerasbert.load` and `kerasbert.import_checkpoint` give it.

    Returns:
        another one, for `kerasbert.finetune`.

    Raises:
        InputError: a model without a tokenizer of kind word_bpe, or one that has such tokens.
    """
    tokenizer = model.tokenizer
    if getattr(tokenizer, "kind", None) != WordPairEncoding.kind:
        raise InputError(
            f"the model's tokenizer is of kind {getattr(tokenizer, 'kind', None)!r}, expected word_bpe, GPT's"
        )
    if EXTRACT in tokenizer.vocabulary:
        raise InputError(f"the model's tokenizer has {EXTRACT} already: its texts stand between such tokens")
    pieces, settings = [*tokenizer.vocabulary, START, DELIMITER, EXTRACT], tokenizer.settings()
    settings["specials"] = tokenizer.specials | {"cls": START, "sep": DELIMITER}
    settings["added"] = [*tokenizer.added, AddedToken(EXTRACT, special=True)]
    extended = WordPairEncoding(pieces, tokenizer.merges, **settings | {"template": TEMPLATE})
    rows = max(model.spec.embeddings.vocabulary, extended.size)
    family = registry.family_of(model)
    made = built(family, model.spec.derive({"embeddings.vocabulary": rows}), model.model_name)
    weights = named_weights(made)
    for name, weight in named_weights(model).items():
        value, new = weight.value.numpy(), weights[name]
        known = tokenizer.size if name == "embeddings/tokens/table" else len(value)
        new.assign(np.concatenate([value[:known], new.value.numpy()[known:]]))
    made.tokenizer = extended
    return made


_THEIRS = ("GPT2LMHeadModel", "GPT2Model", "GPT2ForSequenceClassification")  # classes that GPT has as well
HF = GPT2_HF.derive(
    ("transformer.wte", "transformer.tokens_embed"),
    ("transformer.wpe", "transformer.positions_embed"),
    config=(
        ("embeddings.vocabulary", "vocab_size"),
        ("embeddings.positions", "n_positions"),
        ("hidden", "n_embd"),
        ("feedforward.width", "n_embd", 4),
        ("blocks.layers", "n_layer"),
        ("attention.heads", "n_head"),
        ("feedforward.activation", "afn"),
        ("dropout", "resid_pdrop"),
        ("dropout", "embd_pdrop"),
        ("attention.dropout", "attn_pdrop"),
        ("initializer", "initializer_range"),
        ("epsilon", "layer_norm_epsilon"),
    ),
    silent={"afn": "gelu"},
    fixed={"model_type": "openai-gpt", "tie_word_embeddings": True},
    model_types=("openai-gpt",),
    values={"afn": {"gelu": "gelu_tanh", "relu": "relu", "swish": "swish", "silu": "swish"}},
    special={},
    classes={
        **of_family({name: GPT2_HF.classes[name] for name in _THEIRS}, "GPT2", "OpenAIGPT"),
        "OpenAIGPTDoubleHeadsModel": Class(refused="reads the place of a classification token from its input"),
    },
    ignored={**GPT2_HF.ignored, "*position_ids": buffers.counted},
)

GPT_FAMILY = register(
    GPT2_FAMILY.derive(
        "gpt",
        spec={
            "embeddings.vocabulary": 40478,
            "embeddings.positions": 512,
            "embeddings.norm": False,
            "blocks.norm": "post",
        },
        sizes={"base": {}},
        encoder=GPT,
        tokenizer="word_bpe",
        names={"hf": HF},
        paper="Radford et al., 2018, Improving Language Understanding by Generative Pre-Training",
    )
)
