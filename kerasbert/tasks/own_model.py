"""A user's own functional Keras model around an encoder, as `kb.predict`, `kb.export` and `mobile.compress` see a model."""

from collections.abc import Mapping

import keras
import numpy as np
from keras import ops

from kerasbert import inputs, registry
from kerasbert.errors import InputError
from kerasbert.inputs import Tensor
from kerasbert.tasks.base import kind_of
from kerasbert.tasks.task import Task

LEAST = 1e-7  # of a probability, before its logarithm
PADDED = {"float32": 1e-4}  # of an answer, by which padding may move it: rounding


def answering(model: keras.Model) -> keras.Model:
    """The model itself, or what answers by a functional Keras model that holds an encoder.

    What its output [B, N] ends in says what an answer is: a softmax, one of N labels; one sigmoid, one of two labels; several
    sigmoids, several labels. A model with `labels` whose output ends in neither gives logits of one label. Labels without names
    are "0", "1" and so on. Another output is a vector.

    Raises:
        InputError: several outputs, another shape, inputs that no text fills, or as many labels as it has not.
    """
    encoder = held(model)
    if encoder is None or hasattr(model, "spec"):
        return model
    taken, (output,) = Taken(model, encoder), _outputs(model)
    if len(output.shape) != 2 or output.shape[-1] is None:
        shape = ", ".join("B" if i == 0 else str(size or "S") for i, size in enumerate(output.shape))
        raise InputError(
            f"the model's output is [{shape}], expected one [B, N]: kb.export takes it as it is, predict and compress do not"
        )
    ending, labels = _ending(output), getattr(model, "labels", None)
    single = ending == "sigmoid" and output.shape[-1] == 1
    count = 2 if single else output.shape[-1]
    if labels is None and ending:
        labels = range(count)
    if labels is not None and len(labels) != count:
        raise InputError(f"the model has {len(labels)} labels and an output for {count}, expected one each")
    kind = "multi_label" if ending == "sigmoid" and not single else "classification"
    task = Task("vector", "vector", metric="spearman") if labels is None else Task(kind, kind)
    names = [str(label) for label in labels or ()]
    return OwnAnswers(taken, Task(**{**vars(task), "labels": dict(zip(names, names))}), ending)


def held(model: object) -> "keras.Model | None":
    """The encoder that a Keras model holds, at whatever depth; None of another."""
    if not isinstance(model, keras.Model):
        return None
    layers = model._flatten_layers(include_self=False)
    return next((each for each in layers if hasattr(each, "spec") and hasattr(each, "tokenizer")), None)


class Taken:
    """A user's model and what it is called on.

    Args:
        model: functional, its inputs a dict named as the encoder's or some of them. encoder: that it holds.
    Attributes:
        names: of its inputs. fixed: int, tokens of its inputs where they have one length alone (`keras.Input((128,))`), or None.
    Raises:
        InputError: other inputs.
    """

    def __init__(self, model: keras.Model, encoder: keras.Model) -> None:
        self.model, self.encoder = model, encoder
        taken = getattr(model, "input", None)
        known = [each.name for each in kind_of(encoder).reads(registry.family_of(getattr(encoder, "encoder", encoder)))]
        wanted = f"expected keras.Model(inputs, outputs), whose inputs are a dict of {', '.join(known)} or some of them"
        if not isinstance(taken, dict):
            raise InputError(f"{type(model).__name__} holds an encoder and has no inputs by name, {wanted}")
        if other := [name for name in taken if name not in known]:
            raise InputError(f"the model reads {', '.join(other)}, which no text fills, {wanted}")
        self.names = tuple(taken)
        lengths = {each.shape[1] for each in taken.values() if len(each.shape) > 1} - {None}
        self.fixed = min(lengths) if lengths else None
        self._check_padding()

    def __call__(self, given: Mapping[str, Tensor]) -> Tensor:
        """Its outputs; inputs of one length alone are padded to it."""
        return self.model({name: self._padded(name, given[name]) for name in self.names})

    def _check_padding(self) -> None:
        """Refuse a model whose answer depends on what stands behind a text: on the texts beside it, and on a file's buckets.

        Raises:
            InputError: what to do.
        """
        if self.fixed is not None or self.encoder.tokenizer is None or not set(self.names) <= set(inputs.NAMES):
            return
        tokenizer, tokens = self.encoder.tokenizer, 8
        drawn = np.random.default_rng(0).integers(0, tokenizer.size, (8, tokens))
        drawn[drawn == tokenizer.pad_id] = tokenizer.sep_id
        rows = [inputs.row(ids, [0] * tokens) for ids in drawn.tolist()]
        read = [each for each in inputs.TEXT if each.name in self.names]
        alone, padded = (
            keras.tree.flatten(self(inputs.arrays(read, rows, length, pad_id=tokenizer.pad_id)))
            for length in (tokens, 2 * tokens)
        )
        for one, other in zip(map(ops.convert_to_numpy, alone), map(ops.convert_to_numpy, padded)):
            other = other[:, : one.shape[1]] if one.ndim > 1 else other
            away = float(np.abs(one - other).max()) if one.shape == other.shape else 0.0
            if not away <= PADDED.get(self.encoder.compute_dtype, 0.02) * (1 + float(np.abs(one).max())):
                raise InputError(
                    f"padding behind a text changes the model's answer, by {away:.2g}: let what reads the tokens read "
                    "padding_mask too, or give the inputs the one length that the model was trained with, keras.Input((128,))"
                )

    def _padded(self, name: str, values: Tensor) -> Tensor:
        length = ops.shape(values)[1]
        if self.fixed is None or values.shape[1] == self.fixed:
            return values
        pad = self.encoder.tokenizer.pad_id if name == "token_ids" else 0
        padded = ops.pad(values, [[0, 0], [0, self.fixed - length]], constant_values=pad)
        return ops.reshape(padded, (-1, self.fixed))


def _outputs(model: keras.Model) -> tuple[Tensor]:
    """The one output of a functional model.

    Raises:
        InputError: it has several.
    """
    output = model.output
    several = keras.tree.flatten(output)
    if len(several) != 1:
        names = list(output) if isinstance(output, dict) else list(range(len(several)))
        raise InputError(
            f"the model has {len(several)} outputs ({', '.join(map(str, names))}), expected one: predict and compress take "
            f"keras.Model(model.input, model.output[{names[0]!r}]), and kb.export all of them"
        )
    return (several[0],)


def _ending(output: Tensor) -> str:
    """What makes probabilities of an output in the end: "softmax", "sigmoid", or "" where nothing does."""
    history = output._keras_history
    while isinstance(history.operation, keras.Model):  # one functional model within another
        inner = keras.tree.flatten(history.operation.output)[history.tensor_index]
        history = inner._keras_history
    last = history.operation
    name = getattr(getattr(last, "activation", None), "__name__", "") or type(last).__name__.lower()
    return name if name in ("softmax", "sigmoid") else ""


class OwnAnswers(keras.Model):
    """What answers by a user's model: its inputs are the encoder's, or some of them.

    Args:
        taken: the user's. task: what an answer is. ending: what its output ends in, of `_ending`.
    Call: the encoder's inputs -> {"logits": float32 [B, L]} of labels, else {"vector": [B, N]}.
    """

    def __init__(self, taken: Taken, task: Task, ending: str) -> None:
        super().__init__(name="own_answers")
        self.own, self.encoder, self.ending = taken.model, taken.encoder, ending
        self.taken, self.fixed, self.task, self.heads = taken, taken.fixed, task, {}
        self.spec, self.tokenizer, self.model_name = (
            getattr(self.encoder, name, None) for name in ("spec", "tokenizer", "model_name")
        )
        self.labels = tuple(task.labels.values()) or None
        self.built = True

    def call(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        (values,) = keras.tree.flatten(self.taken(inputs))
        values = ops.cast(values, "float32")
        if self.labels is None:
            return {self.task.answer_kind.output: values}
        if self.ending == "softmax":
            values = ops.log(ops.maximum(values, LEAST))
        elif self.ending == "sigmoid":
            values = ops.log(ops.maximum(values, LEAST)) - ops.log(ops.maximum(1.0 - values, LEAST))
        if values.shape[-1] < len(self.labels):  # one sigmoid: the second label against the first
            values = ops.concatenate([ops.zeros_like(values), values], axis=-1)
        return {"logits": values}
