"""BART: Denoising Sequence-to-Sequence Pre-training for Natural Language Generation, Translation, and Comprehension
(Lewis et al., 2020).

Section 2.1: the Transformer's encoder-decoder with GELU in place of ReLU, and no layer before the output, which is
the table of tokens. Of the released code (fairseq, bart_base and bart_large): learned positions of their own in both
stacks, counted from 2 as RoBERTa's; a norm on the sum of tokens and positions; norms after the sublayers; RoBERTa's
pieces. The decoder starts with </s>.

A text is classified by the decoder's vector of its last token, </s> (section 3.1), before which the decoder has read the source.

What is added to the logits, `final_logits_bias` of transformers, is not trained and zero in all released models: it is kept as a
head, `lm`.

Differs: no dropout within the feed-forward layers (fairseq's activation_dropout).
"""

from kerasbert.checkpoints import keras_hub
from kerasbert.checkpoints.forms import Leading
from kerasbert.checkpoints.names import TORCH_LEAVES, Class, Dialect
from kerasbert.inputs import SHIFTED
from kerasbert.layers.encoder_decoder import SOURCE_AND_TARGET, EncoderDecoder, EncoderDecoderSpec
from kerasbert.registry import Family, register
from kerasbert.spec import Blocks, Embeddings, Spec
from kerasbert.storage.json_view import Json


class Bart(EncoderDecoder):
    """Two stacks of post-norm blocks, their embeddings normalised."""

    embeddings_norm = True
    first_token = "sep"
    label_activation = "tanh"


STACKS = ("encoder", "decoder")
_ATTENTION = (("query", "q_proj"), ("key", "k_proj"), ("value", "v_proj"), ("output", "out_proj"))


def _rows(stack: str, *attentions: tuple[str, str]) -> tuple[tuple[str, str], ...]:
    """Names of one stack."""
    block, theirs = f"{stack}/block_{{i}}", f"model.{stack}.layers.{{i}}"
    rows = [(f"{stack}/positions", f"model.{stack}.embed_positions")]
    rows += [(f"{stack}/embeddings_norm", f"model.{stack}.layernorm_embedding")]
    for ours, name in attentions:
        rows += [(f"{block}/{ours}/{part}", f"{theirs}.{name}.{leaf}") for part, leaf in _ATTENTION]
        rows += [(f"{block}/{ours}_norm", f"{theirs}.{name}_layer_norm")]
    rows += [(f"{block}/feedforward/inner", f"{theirs}.fc1"), (f"{block}/feedforward/outer", f"{theirs}.fc2")]
    return (*rows, (f"{block}/feedforward_norm", f"{theirs}.final_layer_norm"))


class BartDialect(Dialect):
    """Positions, of which they count 2 rows of the table less."""

    def read_config(self, config: Json) -> Json:
        """With the rows of the table."""
        count = config.get("max_position_embeddings")
        return config | ({"max_position_embeddings": count + 2} if type(count) is int and count >= 0 else {})

    def write_config(self, config: Json, spec: Spec) -> Json:
        """With their count, and the ids of a vocabulary like the released one's."""
        ids = {"bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2, "forced_eos_token_id": 2}
        return ids | config | {"max_position_embeddings": config["max_position_embeddings"] - 2}


HF = BartDialect(
    rows=(
        ("embeddings/tokens", "model.shared"),
        *_rows("encoder", ("attention", "self_attn")),
        *_rows("decoder", ("attention", "self_attn"), ("cross_attention", "encoder_attn")),
        ("heads/lm/bias", "final_logits_bias"),
        ("heads/classifier/inner", "classification_head.dense"),
        ("heads/classifier", "classification_head.out_proj"),
        ("heads/span", "qa_outputs"),
    ),
    leaves=TORCH_LEAVES,
    forms={"final_logits_bias": Leading()},
    heads={
        "lm": {"bias": "V"},
        "classifier": {"inner/kernel": "H H", "inner/bias": "H", "kernel": "H L", "bias": "L"},
        "span": {"kernel": "H 2", "bias": "2"},
    },
    config=(
        ("embeddings.vocabulary", "vocab_size"),
        ("embeddings.positions", "max_position_embeddings"),
        ("hidden", "d_model"),
        ("blocks.layers", "encoder_layers"),
        ("decoder.layers", "decoder_layers"),
        ("attention.heads", "encoder_attention_heads"),
        ("attention.heads", "decoder_attention_heads"),
        ("feedforward.width", "encoder_ffn_dim"),
        ("feedforward.width", "decoder_ffn_dim"),
        ("feedforward.activation", "activation_function"),
        ("dropout", "dropout"),
        ("attention.dropout", "attention_dropout"),
        ("initializer", "init_std"),
    ),
    fixed={
        "model_type": "bart",
        "is_encoder_decoder": True,
        "scale_embedding": False,
        "normalize_before": False,
        "add_final_layer_norm": False,
        "normalize_embedding": True,
        "static_position_embeddings": False,
        "tie_word_embeddings": True,
    },
    special={
        "bos_token_id": "cls",
        "eos_token_id": "sep",
        "decoder_start_token_id": "sep",
        "forced_eos_token_id": "sep",
    },
    classes={
        "BartForConditionalGeneration": Class(("lm",)),
        "BartModel": Class(),
        "BartForSequenceClassification": Class(("classifier",)),
        "BartForQuestionAnswering": Class(("span",)),
        "BartForCausalLM": Class(refused="is a decoder without the encoder"),
    },
    prefix="model.",
    unread={
        "num_hidden_layers": "encoder_layers by another name",
        "add_bias_logits": "the file holds the bias",
        "extra_pos_embeddings": (2,),
    },
    tied=dict.fromkeys(
        (*(f"model.{stack}.embed_tokens.weight" for stack in STACKS), "lm_head.weight"), "model.shared.weight"
    ),
)

# KerasHub leaves out the rows before the first position, as RoBERTa's
KERAS_HUB = keras_hub.dialect(
    "BartBackbone",
    *(
        row
        for number, stack in enumerate(("", "_1"))
        for row in (
            *keras_hub.block(f"transformer_{STACKS[number]}", f"{STACKS[number]}/block_{{i}}"),
            (f"{STACKS[number]}/positions/table", f"layers/position_embedding{stack}/vars/0"),
            (f"{STACKS[number]}/embeddings_norm", f"layers/layer_normalization{stack}"),
        )
    ),
    embeddings__offset=0,
)

BART = register(
    Family(
        name="bart",
        spec=EncoderDecoderSpec(
            epsilon=1e-5,
            embeddings=Embeddings(vocabulary=50265, positions=1026, offset=2, segments=0),
            blocks=Blocks(layers=6),
        ),
        sizes={
            "base": {},
            "large": {"blocks.layers": 12, "hidden": 1024, "attention.heads": 16, "feedforward.width": 4096},
        },
        encoder=Bart,
        kind="seq2seq",
        tokenizer="bpe",
        objective="infilling",
        names={"hf": HF, "keras_hub": KERAS_HUB},
        inputs=SOURCE_AND_TARGET,
        of_text=(*SOURCE_AND_TARGET[:2], SHIFTED),
        readout="last",
        paper="Lewis et al., 2020, BART: Denoising Sequence-to-Sequence Pre-training for Natural Language Generation, "
        "Translation, and Comprehension",
    )
)
