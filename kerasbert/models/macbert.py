"""MacBERT: Revisiting Pre-Trained Models for Chinese Natural Language Processing (Cui et al., 2020).

BERT's network and checkpoints; section 3.2 changes its pretraining, "MLM as correction":

- whole words are selected, alone and in n-grams of up to four words (40, 30, 20 and 10%), 15% of the tokens;
- [MASK], which no text of a task holds, is never shown: of the selected words 80% are replaced by a similar word (each word
  of an n-gram by one of its own), 10% by a random word, 10% are kept; where there is no similar word, by a random one;
- the order of two segments is asked for (ALBERT's SOP) in the place of the next sentence.

Similar words are those whose vectors are near (the paper takes them from the toolkit Synonyms, which computes with word2vec):
`--set objective.vectors=DIR` names what `kerasbert vectors` wrote, or a file of others. Chinese words are those of the records
(`kerasbert data --words SOURCE`) and of the vectors, which are learned from text with blanks between words.

Differs: a word is replaced by one of as many tokens, so that the place of a token stays its place. The paper says 15% of the
words; here they are words that make 15% of the tokens, as the budget of every masked LM. Which similar word is taken is not
said: here one of the nearest ten.
"""

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from kerasbert.errors import InputError
from kerasbert.inputs import Tensor
from kerasbert.layers import random
from kerasbert.models.bert import BERT, HF, TF1
from kerasbert.objectives import similar, units
from kerasbert.objectives.bert import BertPretraining
from kerasbert.objectives.masked_lm import MaskedLM, mask_tokens, ordinary, row_keys
from kerasbert.objectives.select import divide
from kerasbert.registry import register, register_objective

if TYPE_CHECKING:
    from kerasbert.data.records import Records


@dataclasses.dataclass(frozen=True)
class Correction(MaskedLM):
    """Masked LM as correction. `mask` is the share of similar words, `random` that of random words.

    Args:
        vectors: file or directory of word vectors that similar words come from.
        similar: int, the nearest words that one is drawn from.
        words: int, words of the vectors that are taken, the most frequent; time grows with the square.
    """

    vectors: str | None = None
    similar: int = 10
    words: int = 50_000

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.similar, self.words) < 1:
            raise InputError(f"similar {self.similar} and words {self.words}, expected at least 1 each")


class MacBertPretraining(BertPretraining):
    """Masked LM as correction + sentence order.

    Without vectors every replacement is a random word: what `check-tpu` and a trial of the shapes need. `check` refuses to
    pretrain so unless `mask` is 0, which asks for it.
    """

    packing = "order"
    settings_class = Correction
    defaults: Mapping[str, object] = {"select": "fourgrams"}

    @classmethod
    def check(cls, settings: Correction, records: "Records") -> None:
        super().check(settings, records)
        if settings.mask > 0 and settings.vectors is None:
            raise InputError(
                "the objective macbert shows similar words and has no word vectors to find them: --set objective.vectors=DIR "
                "(kerasbert vectors makes one), or random words alone: --set objective.mask=0 --set objective.random=0.9"
            )

    def prepare(self, features: Mapping[str, Tensor]) -> dict[str, Tensor]:
        plain = dataclasses.replace(self.settings, mask=0.0, random=0.0)
        batch = mask_tokens(features, plain, tokenizer=self.tokenizer, seed=self.seed)
        settings, token_ids = self.settings, features["token_ids"]
        eligible = (batch["padding_mask"] > 0) & ordinary(token_ids, self.tokenizer)
        kind = settings.select if settings.select in units.UNITS else "words"
        key = row_keys(features, settings, self.seed, "similar words")
        words = None
        if settings.vectors is not None and settings.mask > 0:
            words = similar.of_file(settings.vectors, self.tokenizer, settings.similar, settings.words)
        batch["token_ids"] = similar.corrupt(
            random.key(key[:, 0], key[:, 1]),
            token_ids,
            (batch["mlm_positions"], batch["mlm_weights"] > 0),
            divide(eligible, units.begins(kind, features, self.tokenizer)) | ~eligible,
            words=words,
            ordinary_ids=np.setdiff1d(np.arange(self.tokenizer.size, dtype=np.int32), self.tokenizer.special_ids),
            shares=(settings.mask, settings.random),
        )
        return batch


register_objective("macbert", MacBertPretraining)

# the two-way head of BERT's classes and files answers for the order here
_HEADS = {("sop" if head == "nsp" else head): weights for head, weights in HF.heads.items()}
MACBERT = register(
    BERT.derive(
        "macbert",
        spec={"embeddings.vocabulary": 21128},
        sizes={"base": {}, "large": BERT.sizes["large"]},
        aliases={"base-chinese": "base", "large-chinese": "large"},
        objective="macbert",
        names={
            **BERT.names,
            "hf": HF.derive(
                rows=(("heads/sop", "cls.seq_relationship"),),
                heads=_HEADS,
                classes={
                    name: dataclasses.replace(each, heads=tuple("sop" if h == "nsp" else h for h in each.heads))
                    for name, each in HF.classes.items()
                },
            ),
            "tf1": TF1.derive(
                rows=(
                    ("heads/sop/kernel", "cls/seq_relationship/output_weights", "T"),
                    ("heads/sop/bias", "cls/seq_relationship/output_bias"),
                ),
                heads=_HEADS,
            ),
        },
        paper="Cui et al., 2020, Revisiting Pre-Trained Models for Chinese Natural Language Processing",
    )
)
