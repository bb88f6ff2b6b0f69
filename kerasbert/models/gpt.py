"""GPT: Improving Language Understanding by Generative Pre-Training (Radford et al., 2018).

Section 4.1: the Transformer's decoder alone, twelve layers, 768 wide, twelve heads,

- norms after the sublayers, none on the embeddings and none after the last block;
- GELU (the released code's is the tanh approximation), learned positions for 512 tokens, the table of tokens as the output;
- dropout 0.1 on embeddings, attention and residual sums; kernels start at N(0, 0.02);
- 40,000 merges of BPE over lower-cased words, whose last character has a </w> (tokenizer kind word_bpe): 40,478 pieces.

The released tokenizer cleans texts with ftfy and splits them with spaCy; here, as in transformers, BERT's splitting does, so that
some texts have other tokens than in the paper. Its vocabulary has no special token but <unk>, which pads here, where a mask says
what is real.

A text is classified by its last token's vector, two texts are one after the other. Differs: the start, delimiter and extract
tokens of section 3.3 are no part of the released vocabulary, and none are put around texts here; the auxiliary language model of
section 3.2 (lambda 0.5) has no place in fine-tuning yet; choices are scored by one linear map, as there, of the last token.
"""

from kerasbert.layers.block import Block, PreNormBlock
from kerasbert.layers.embeddings import Embeddings as BertEmbeddings
from kerasbert.models.gpt2 import GPT2, GPT2_FAMILY
from kerasbert.models.gpt2 import HF as GPT2_HF
from kerasbert.registry import register


class Embeddings(BertEmbeddings):
    """Tokens and positions, not normalised."""

    normalised = False


class GPT(GPT2):
    """A post-norm stack whose tokens see themselves and those before them."""

    embeddings_class = Embeddings

    @property
    def block_class(self):
        """Blocks whose kernels all start alike."""
        return PreNormBlock if self.spec.blocks.norm == "pre" else Block


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
    activations={"gelu": "gelu_tanh", "relu": "relu", "swish": "swish", "silu": "swish"},
    special={},
    architectures={
        "OpenAIGPTLMHeadModel": (),
        "OpenAIGPTModel": (),
        "OpenAIGPTForSequenceClassification": ("classifier",),
    },
    refused={"OpenAIGPTDoubleHeadsModel": "reads the place of a classification token from its input"},
    ignore=("*.attn.bias", "*.attn.masked_bias", "*position_ids"),
)

GPT_FAMILY = register(
    GPT2_FAMILY.derive(
        "gpt",
        spec={"embeddings.vocabulary": 40478, "embeddings.positions": 512, "blocks.norm": "post"},
        sizes={"base": {}},
        encoder=GPT,
        tokenizer="word_bpe",
        names={"hf": HF},
        paper="Radford et al., 2018, Improving Language Understanding by Generative Pre-Training",
    )
)
