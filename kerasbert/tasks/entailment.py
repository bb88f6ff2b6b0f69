"""Which labels of a classifier of pairs say entailment and its opposite: told before TensorFlow is imported."""

from collections.abc import Sequence

from kerasbert.errors import InputError
from kerasbert.tasks.base import Task


def columns(task: Task | None, labels: Sequence[str], entailment: str | None) -> tuple[int, int]:
    """The numbers of the labels of entailment and of its opposite.

    Args:
        task: of the model, None of an encoder. labels: the model's.
        entailment: the label's name; by default the one that begins with "entail".

    Raises:
        InputError: no classifier of pairs, or no label of entailment.
    """
    if task is None or not task.pair or task.how.per_token or not task.how.answers.labelled or len(labels) < 2:
        raise InputError("zero-shot needs a classifier of pairs (premise, hypothesis), such as one fine-tuned on MNLI")
    names = [label.lower() for label in labels]
    told = ", ".join(labels)
    if entailment is not None and entailment.lower() not in names:
        raise InputError(f"the model has no label {entailment!r}. It has: {told}")
    found = [name for name in names if name.startswith("entail")] or [name for name in names if "entail" in name]
    if entailment is None and len(found) != 1:
        raise InputError(f"no label of the model is called entailment. It has: {told}. Name one: --entailment LABEL")
    yes = names.index(found[0] if entailment is None else entailment.lower())
    against = [i for i, name in enumerate(names) if name.startswith("contra")]
    # without such a name, theirs: the first label, or the last where the first is entailment
    return yes, against[0] if against else len(names) - 1 if yes == 0 else 0
