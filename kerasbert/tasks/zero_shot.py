"""Zero-shot classification: a model of entailment is asked of each label whether the text implies it.

Yin et al., 2019, Benchmarking Zero-shot Text Classification, section 4; scores as of transformers' pipeline.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from kerasbert.answers import Classification
from kerasbert.answers.base import softmax
from kerasbert.errors import InputError
from kerasbert.options import checked
from kerasbert.tasks import predict
from kerasbert.tasks.entailment import columns
from kerasbert.tasks.given import listed
from kerasbert.tasks.graph_values import BATCH
from kerasbert.value_types import check_whole

if TYPE_CHECKING:
    import os

    import keras

    from kerasbert.tasks.ensemble import Ensemble


TEMPLATE = "This example is {}."


@checked
def zero_shot(
    model: "str | os.PathLike | keras.Model | Ensemble",
    texts: Sequence[str],
    labels: Sequence[str],
    *,
    template: str = TEMPLATE,
    multi_label: bool = False,
    entailment: str | None = None,
    length: int | None = None,
    batch: int = BATCH,
) -> list[Classification]:
    """One Classification per text, its scores from the best label to the worst; no model was trained for these labels.

    Args:
        model: a directory or a loaded model that was fine-tuned on pairs (premise, hypothesis), such as MNLI's.
        texts: the premises.
        labels: names; each becomes a hypothesis.
        template: the hypothesis, with {} for the label.
        multi_label: bool, whether several labels may hold: each is then scored alone, against contradiction. Otherwise
            the scores of the labels sum to 1.
        entailment: str, the model's label for it; by default the one that begins with "entail".
        length: int, tokens of a pair. batch: int, pairs at once.

    Raises:
        InputError: a model of another kind, no label for entailment, no labels, or a template without {}.
    """
    check_whole("batch", batch)
    model = predict.as_model(model)
    texts = listed(texts)
    wrong = next((i for i, text in enumerate(texts) if not isinstance(text, str)), None)
    if wrong is not None:
        raise InputError(f"texts must be a list of str, and text {wrong} is {texts[wrong]!r:.40}")
    named = isinstance(labels, list | tuple) and all(isinstance(label, str) for label in labels)
    if not named or not labels or len(set(labels)) < len(labels):
        raise InputError(f"labels must be a list of names, each once. Received: {labels!r:.100}")
    if template.count("{}") != 1:
        raise InputError(f"template must hold {{}} once, for the label. Received: {template!r}")
    yes, no = columns(getattr(model, "task", None), model.labels or (), entailment)
    pairs = [(text, template.replace("{}", label)) for text in texts for label in labels]
    if not pairs:
        return []
    encoded = predict.encoded_for(model, pairs, length)
    values = predict.outputs_of(model, encoded, predict.longest(model, length), batch).astype("float64")
    values = values.reshape(len(texts), len(labels), -1)
    alone = multi_label or len(labels) == 1
    scores = softmax(values[..., [no, yes]])[..., 1] if alone else softmax(values[..., yes])
    truncated = {pair // len(labels) for pair in encoded.truncated}
    return [_answer(labels, row, i in truncated) for i, row in enumerate(scores)]


def _answer(labels: Sequence[str], scores: np.ndarray, truncated: bool) -> Classification:
    order: list[int] = np.argsort(-scores, kind="stable").tolist()
    ranked = {labels[i]: float(scores[i]) for i in order}
    best = labels[order[0]]
    return Classification(best, ranked[best], ranked, truncated)
