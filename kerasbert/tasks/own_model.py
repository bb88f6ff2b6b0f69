"""A user's own functional Keras model around an encoder, as `kb.predict` and `mobile.compress` see a model."""

from typing import TYPE_CHECKING, Any

import keras
from keras import ops

from kerasbert.errors import InputError
from kerasbert.storage.json_view import Json
from kerasbert.tasks.task import Task

if TYPE_CHECKING:
    from kerasbert.layers.encoder import SpecModel


def answering(model: keras.Model) -> keras.Model:
    """The model itself, or what answers by a functional Keras model that holds an encoder.

    One output [B, L] that ends in a softmax, or a model with `labels` (L names), answers with labels: of a model without
    names "0", "1" and so on. Another output [B, N] is a vector.

    Raises:
        InputError: another output, or as many labels as it has not.
    """
    encoder = held(model)
    if encoder is None or hasattr(model, "spec"):
        return model
    output, labels = getattr(model, "output", None), getattr(model, "labels", None)
    if not isinstance(output, keras.KerasTensor) or len(output.shape) != 2 or output.shape[-1] is None:
        raise InputError(
            f"{type(model).__name__} has another output than one [B, N]: kb.export takes it as it is, predict and compress do not"
        )
    softmax = _is_softmax(output)
    if labels is None and softmax:
        labels = [str(i) for i in range(output.shape[-1])]
    if labels is not None and len(labels) != output.shape[-1]:
        raise InputError(f"the model has {len(labels)} labels and {output.shape[-1]} outputs, expected one each")
    task = Task("vector", "vector", metric="spearman") if labels is None else Task("classification")
    names = [str(label) for label in labels or ()]
    return OwnAnswers(model, encoder, Task(**{**vars(task), "labels": dict(zip(names, names))}), softmax)


def held(model: keras.Model) -> Any:
    """The encoder that a Keras model holds and whose inputs it has, as a dict; None of another."""
    if not isinstance(model, keras.Model) or not isinstance(getattr(model, "input", None), dict):
        return None
    return next((each for each in model.layers if hasattr(each, "spec") and hasattr(each, "tokenizer")), None)


def _is_softmax(output: Any) -> bool:
    """Whether the last operation makes probabilities of it."""
    last = output._keras_history.operation
    return (
        isinstance(last, keras.layers.Softmax)
        or getattr(getattr(last, "activation", None), "__name__", "") == "softmax"
    )


class OwnAnswers(keras.Model):
    """What answers by a user's model: its inputs are the encoder's, or some of them.

    Args:
        model: the user's. encoder: that it holds. task: what an answer is. probabilities: bool, whether it gives them.
    Call: the encoder's inputs -> {"logits": float32 [B, L]} of labels, else {"vector": [B, N]}.
    """

    def __init__(self, model: keras.Model, encoder: "SpecModel", task: Task, probabilities: bool) -> None:
        super().__init__(name="own_answers")
        self.own, self.encoder, self.probabilities = model, encoder, probabilities
        self.names, self.task, self.heads = tuple(model.input), task, {}
        self.spec, self.tokenizer, self.model_name = encoder.spec, encoder.tokenizer, encoder.model_name
        self.labels = tuple(task.labels.values()) or None
        self.built = True

    def call(self, inputs: Any) -> Json:
        values = ops.cast(self.own({name: inputs[name] for name in self.names}), "float32")
        if self.labels is None:
            return {self.task.answer_kind.output: values}
        return {"logits": ops.log(ops.maximum(values, 1e-7)) if self.probabilities else values}
