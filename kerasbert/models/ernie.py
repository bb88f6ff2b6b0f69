"""ERNIE: Enhanced Representation through Knowledge Integration (Sun et al., 2019), known as ERNIE 1.0.

BERT's encoder (section 3.1), pretrained in stages that mask ever larger units (section 3.2): single tokens (3.2.1, basic:
Chinese characters), whole phrases (3.2.2), whole named entities (3.2.3). What a phrase or an entity is comes with the
records (`kerasbert data --words SOURCE --entities SOURCE`); a stage is a phase of the run with its own settings:

    phases:
      - {steps: 300_000, objective: {select: tokens}}
      - {steps: 300_000, objective: {select: words}}
      - {objective: {select: entities}}

The paper does not say how long the stages are. Without phases, phrases are masked. Sizes are those of the released Chinese
model: vocabulary 18,000, 513 positions, relu. The sentence-pair question is that of the released code.

Differs: the dialogue language model (section 4.2) is left out: it needs conversations of three turns, not text.
Differs: where an entity's stage finds no entity it masks phrases and words; how far the paper goes is not said.
"""

from collections.abc import Mapping

from kerasbert.checkpoints.names import of_family
from kerasbert.models.bert import BERT, HF
from kerasbert.objectives.bert import BertPretraining
from kerasbert.registry import register, register_objective


class KnowledgeMasking(BertPretraining):
    """BERT's pretraining with whole phrases, or what a phase selects (section 3.2)."""

    defaults: Mapping[str, object] = {"select": "words"}


register_objective("ernie", KnowledgeMasking)

ERNIE_HF = HF.derive(
    ("bert.", "ernie."),
    fixed={**HF.fixed, "model_type": "ernie", "use_task_id": False},
    unread={**HF.unread, "task_type_vocab_size": "rows of a table that use_task_id alone reads"},
    classes=of_family(HF.classes, "Bert", "Ernie"),
)
ERNIE = register(
    BERT.derive(
        "ernie",
        spec={
            "embeddings.vocabulary": 18000,
            "embeddings.positions": 513,
            "feedforward.activation": "relu",
            "epsilon": 1e-5,
        },
        sizes={"base": {}},
        aliases={},
        names={"hf": ERNIE_HF},
        objective="ernie",
        paper="Sun et al., 2019, ERNIE: Enhanced Representation through Knowledge Integration",
    )
)
