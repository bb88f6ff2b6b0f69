"""mBART: Multilingual Denoising Pre-training for Neural Machine Translation (Liu et al., 2020), and mBART-50 (Tang et al., 2020).

Section 2.2: BART-large of 12 layers a stack, of texts in 25 languages, with one vocabulary of 250,000 SentencePiece pieces, and
one more norm on top of encoder and decoder, "which we found stabilised training at FP16 precision". Noise: spans of Poisson(3.5)
lengths, 35% of the words, become one [MASK] each, and the sentences of a text change places.

Of the released code (fairseq, mbart_large): the norms stand in front of the sublayers; the embeddings are normalised too, and
multiplied by sqrt(d_model) before that. The tables hold 250,027 rows (25 languages and <mask> behind the pieces), mBART-50's
250,054.

Languages are tokens. mBART reads `text </s> en_XX` and its decoder starts with the language that is written; mBART-50 reads
`en_XX text </s>`, its decoder starts with </s>, and the first token that it writes is forced to be the language. What stands
around a source is the tokenizer's template, the language that is written an option of the task: `start=ro_RO` or
`forced_bos_token_id=250020`, which a checkpoint's generation_config.json may say.

Differs: pretraining writes the row as it stands, without tokens of languages, and no dropout within the feed-forward layers.
"""

from types import MappingProxyType

from kerasbert.checkpoints.names import Class
from kerasbert.inputs import SHIFTED
from kerasbert.layers.encoder_decoder import SOURCE_AND_TARGET, ScaledEmbeddings, ScaledSpec
from kerasbert.models import bart
from kerasbert.objectives.infilling import Infilling
from kerasbert.registry import Family, register, register_objective
from kerasbert.spec import Attention, Blocks, FeedForward


class MBart(bart.Bart):
    """Two stacks of pre-norm blocks, their embeddings scaled and normalised, with one more norm on top of each."""


class MBartInfilling(Infilling):
    """BART's noises by mBART's numbers (section 2.2)."""

    defaults = MappingProxyType({"rate": 0.35, "mean": 3.5})


NORMS = tuple((f"{stack}/norm", f"model.{stack}.layer_norm") for stack in bart.STACKS)
_BART = bart.HF
HF = _BART.derive(
    rows=NORMS,
    config=(*_BART.config, ("embeddings.scaled", "scale_embedding")),
    silent={"scale_embedding": False},
    fixed={key: value for key, value in _BART.fixed.items() if key != "scale_embedding"}
    | {"model_type": "mbart", "normalize_before": True, "add_final_layer_norm": True},
    special={key: part for key, part in _BART.special.items() if key != "decoder_start_token_id"},
    unread={**_BART.unread, "decoder_start_token_id": "an option of the task that writes: generation_config says it"},
    classes={
        "MBartForConditionalGeneration": Class(("lm",)),
        "MBartModel": Class(),
        "MBartForQuestionAnswering": Class(("span",)),
        "MBartForSequenceClassification": Class(
            refused="reads the vector at </s>, behind which its texts have the language: the last token's is read here"
        ),
        "MBartForCausalLM": Class(refused="is a decoder without the encoder"),
    },
)

register_objective("mbart", MBartInfilling)
MBART = register(
    Family(
        name="mbart",
        spec=ScaledSpec(
            hidden=1024,
            epsilon=1e-5,
            embeddings=ScaledEmbeddings(vocabulary=250027, positions=1026, offset=2, segments=0),
            attention=Attention(heads=16),
            feedforward=FeedForward(width=4096),
            blocks=Blocks(layers=12, norm="pre"),
        ),
        sizes={"large-cc25": {}, "large-50": {"embeddings.vocabulary": 250054}},
        encoder=MBart,
        kind="seq2seq",
        tokenizer="unigram",
        objective="mbart",
        names={"hf": HF},
        inputs=SOURCE_AND_TARGET,
        of_text=(*SOURCE_AND_TARGET[:2], SHIFTED),
        readout="last",
        paper="Liu et al., 2020, Multilingual Denoising Pre-training for Neural Machine Translation",
    )
)
