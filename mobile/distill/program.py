"""Distillation as a training program: the student's model and the pair `weights`, `losses` that the step core takes."""

from collections.abc import Mapping
from typing import Any

import keras
from keras import ops

from kerasbert.errors import InputError
from kerasbert.inputs import Shape, Tensor, Values
from kerasbert.layers.backend import argmax
from kerasbert.layers.heads import HeadedModel
from kerasbert.objectives.base import Objective, correct, cross_entropy
from kerasbert.spec import Spec
from . import losses
from .recipes import HEADED, Distillation, layer_map

# of vectors: (loss, whether the layers are summed as in TinyBERT's equation 11 or averaged as in MobileBERT's code)
BY_LAYER = {
    "hidden": (losses.squared_error, True),
    "features": (losses.feature_error, False),
    "means": (losses.mean_error, False),
    "variances": (losses.variance_error, False),
}


class Widen(keras.layers.Layer):
    """x @ kernel in float32: W_h and W_e of TinyBERT (section 3.1), which training alone needs: [..., A] -> [..., width]."""

    def __init__(self, width: int, **kwargs: Any) -> None:
        super().__init__(dtype="float32", **kwargs)
        self.width = width

    def build(self, shape: Shape) -> None:
        normal = keras.initializers.GlorotUniform()
        self.kernel = self.add_weight(shape=(shape[-1], self.width), initializer=normal, name="kernel")

    def call(self, x: Tensor) -> Tensor:
        return ops.matmul(ops.cast(x, "float32"), self.kernel)


class Imitation(Objective):
    """A student that imitates a frozen teacher.

    The trained model holds the student, its heads and, where the widths differ, `widen_hidden` (one matrix for all layers)
    and `widen_embeddings`. The teacher is no part of it: neither the optimizer nor a checkpoint knows its weights, no
    gradient goes through it and it drops nothing.

    Args:
        student, teacher: models with `.encoder` and `.heads`. The attribute `teacher` may become None where every batch
            brings its answers along, as `teacher`, or none are compared.
        recipe: Distillation.

    Raises:
        InputError: a map of layers that does not fit, heads that differ where attentions are compared.
    """

    def __init__(self, student: HeadedModel, teacher: HeadedModel, recipe: Distillation) -> None:
        self.teacher: HeadedModel | None = teacher
        self.student, self.recipe = student, recipe
        self.scales = dict(recipe.losses)
        self.layers = layer_map(student.spec.blocks.layers, teacher.spec.blocks.layers, recipe.layers)
        if any(name in HEADED for name in self.scales):
            check_heads(student.spec, teacher.spec, self.layers)
        teacher.trainable = False
        student.encoder.keeps_hidden = recipe.inner
        narrow, wide = student.spec.hidden, teacher.spec.hidden
        used = {"widen_embeddings": {"embeddings"}, "widen_hidden": {"cosine", *BY_LAYER}}
        self.widen = {}
        if narrow != wide:
            self.widen = {name: Widen(wide, name=name) for name, by in used.items() if by & set(self.scales)}
        shapes = dict(student.shapes) | dict.fromkeys(self.widen, (None, None, narrow))
        self.model = HeadedModel(student.encoder, student.heads | self.widen, shapes, name="distillation")
        self.model.build()

    def answers(self, model: keras.Model, outputs: Values, batch: Values, training: bool) -> Tensor:
        """Logits [..., C] or numbers [..., 1] of a model."""
        raise NotImplementedError

    def targets(self, batch: Values) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Right answers and whether they count, float32 [...]; whether an answer is compared [...], and a token [B, S]."""
        raise NotImplementedError

    def counts(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        _, labelled, compared, tokens = self.targets(batch)
        counts = {"labels": ops.sum(labelled), "soft": ops.sum(compared), "logits": ops.sum(compared)}
        return {name: counts[name] if name in counts else ops.sum(tokens) for name in self.scales}

    def losses(self, batch: Mapping[str, Tensor], training: bool = True) -> dict[str, Tensor]:
        _, _, compared, tokens = self.targets(batch)
        mine = self.read(self.student, batch, training)
        theirs = {"answers": batch["teacher"]} if "teacher" in batch else {}
        if self.teacher is not None:
            theirs = keras.tree.map_structure(ops.stop_gradient, self.read(self.teacher, batch, False))
        sums = self.inner(mine, theirs, batch, tokens) if self.recipe.inner else {}
        if not self.recipe.answers:
            return sums
        student, teacher = mine["answers"], theirs.get("answers")
        if "labels" in self.scales:
            sums["labels"] = self.error(student, batch)
        if not self.recipe.compared:
            return sums
        student, teacher = self.compared(student, batch), self.compared(teacher, batch)

        def total(values: Tensor) -> Tensor:
            """Of what is compared; several softmaxes of one, such as first and last token, by their mean."""
            return ops.sum(ops.mean(values, axis=tuple(range(len(compared.shape), len(values.shape)))) * compared)

        if "soft" in self.scales:
            sums["soft"] = total(losses.soft_cross_entropy(student, teacher, self.recipe.temperature))
        if "logits" in self.scales:
            sums["logits"] = total(losses.squared_error(student, teacher))
        for name in ("soft", "logits"):
            if name in sums and student.shape[-1] > 1:
                sums[f"{name}/agreement"] = total(correct(student, argmax(teacher)))
        return sums

    def error(self, answers: Tensor, batch: Values) -> Tensor:
        """The sum of the loss "labels"."""
        labels, labelled, _, _ = self.targets(batch)
        return ops.sum(cross_entropy(answers, labels) * labelled)

    def compared(self, answers: Tensor, batch: Values) -> Tensor:
        """What is compared of answers, [..., C]."""
        return answers

    def read(self, model: keras.Model, batch: Values, training: bool) -> dict[str, Tensor]:
        """What is compared: answers, hidden (tuple of L+1 [B, S, H]), attention (tuple of L [B, N, S, S])."""
        attention = any(name in HEADED for name in self.scales)
        outputs = model.encoder(
            batch, training=training, queries=None if self.whole else model.queries(batch), attention=attention
        )
        found = {name: outputs[name] for name in ("hidden", "attention") if name in outputs and self.recipe.inner}
        if self.recipe.answers:
            found["answers"] = ops.cast(self.answers(model, outputs, batch, training), "float32")
        return found

    @property
    def whole(self) -> bool:
        """Whether the last layer is computed for all tokens."""
        return self.recipe.inner

    def inner(self, mine: Values, theirs: Values, batch: Values, tokens: Tensor) -> dict[str, Tensor]:
        """Sums of the losses that compare encoders."""
        found, mapped = {}, [(0, 0), *enumerate(self.layers, 1)]
        widened = {}

        def hidden(layer: int) -> Tensor:
            if layer not in widened:
                name = "widen_hidden" if layer else "widen_embeddings"
                x = mine["hidden"][layer]
                widened[layer] = self.widen[name](x) if name in self.widen else x
            return widened[layer]

        if "embeddings" in self.scales:
            found["embeddings"] = losses.squared_error(hidden(0), theirs["hidden"][0])
        if "cosine" in self.scales:
            found["cosine"] = losses.cosine_distance(hidden(len(self.layers)), theirs["hidden"][-1])
        for name, (loss, summed) in BY_LAYER.items():
            if name in self.scales:
                values = [loss(hidden(m), theirs["hidden"][g]) for m, g in mapped[1:]]
                found[name] = sum(values) / (1 if summed else len(values))
        if "scores" in self.scales or "attention" in self.scales:
            pairs = [(mine["attention"][m - 1], theirs["attention"][g - 1]) for m, g in mapped[1:]]
            if "scores" in self.scales:
                assert self.teacher is not None  # no batch brings scores
                visible = self.teacher.encoder.visible(batch)
                found["scores"] = sum(losses.score_error(*pair, visible) for pair in pairs)
            if "attention" in self.scales:
                found["attention"] = sum(losses.attention_divergence(*pair) for pair in pairs) / len(pairs)
        return {name: ops.sum(value * tokens) for name, value in found.items()}


class LabelImitation(Imitation):
    """On texts, labelled or not: a batch holds what the task's kind makes of labels (label_weight is 0 without one), `weight`
    [B], 0 where a row fills up, and `compared`, of label_weight's shape, where answers are compared (by default weight).
    """

    def answers(self, model: keras.Model, outputs: Values, batch: Values, training: bool) -> Tensor:
        return model.logits(outputs, batch, training=training)

    def targets(self, batch: Values) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        tokens = ops.cast(batch["padding_mask"], "float32") * ops.expand_dims(batch["weight"], -1)
        return batch["label"], batch["label_weight"], batch.get("compared", batch["weight"]), tokens

    def error(self, answers: Tensor, batch: Values) -> Tensor:
        return self.student.kind.losses_of(self.student, answers, batch)["label"]

    def compared(self, answers: Tensor, batch: Values) -> Tensor:
        return self.student.kind.compared(self.student.declaration, answers, batch)


class TokenImitation(Imitation):
    """On records, by masked LM: answers are the logits of the masked tokens.

    Args:
        batches: objectives.bert.BertPretraining, for its `prepare`. The others are Imitation's.
    """

    def __init__(self, *args: Any, batches: Objective, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.batches = batches

    def prepare(self, features: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return self.batches.prepare(features)

    def answers(self, model: keras.Model, outputs: Values, batch: Values, training: bool) -> Tensor:
        return model.tokens(outputs["sequence"], batch["mlm_positions"])

    def targets(self, batch: Values) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        tokens = ops.cast(batch["padding_mask"], "float32")
        return batch["mlm_labels"], batch["mlm_weights"], batch["mlm_weights"], tokens

    @property
    def whole(self) -> bool:
        return True


def check_heads(student: Spec, teacher: Spec, layers: tuple[int, ...]) -> None:
    """Refuse to compare attentions of different numbers of heads.

    Args:
        layers: the teacher's layer, from 1, for each of the student's.
    """
    for mine, theirs in enumerate(layers):
        heads = student.per_layer(student.attention.heads, mine), teacher.per_layer(teacher.attention.heads, theirs - 1)
        if heads[0] != heads[1]:
            raise InputError(
                f"layer {mine + 1} of the student has {heads[0]} heads, layer {theirs} of the teacher {heads[1]}, expected "
                "as many where attention is compared: set attention.heads, or leave out the losses scores and attention"
            )
