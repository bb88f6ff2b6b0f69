"""An objective: a model, and the pair `counts`, `losses` that the step core differentiates.

The step core sums and all-reduces the counts of the whole global batch first, then differentiates
sum(scale * loss sum / count): a mean per replica would be wrong wherever the counts are uneven.
"""

import copy
import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

import keras
import tensorflow as tf
from keras import ops

from kerasbert import spec as specs
from kerasbert.errors import InputError, near
from kerasbert.inputs import Tensor
from kerasbert.layers.backend import fused, on_tpu
from kerasbert.layers.backend_fused import ByHand, row_max, row_sums
from kerasbert.layers.heads import HeadedModel
from kerasbert.spec import Spec
from kerasbert.text.base import Tokenizer

if TYPE_CHECKING:
    from kerasbert.data.records import Records


@dataclasses.dataclass(frozen=True)
class NoSettings:
    """The settings of an objective that has none."""


class Objective:
    """What is trained, and towards what.

    Fine-tuning and distillation need `model`, `scales`, `counts` and `losses`. What is registered as a pretraining
    objective also has `heads` and `prepare`; it is made as `objective(encoder, tokenizer, settings=...)`.

    Attributes:
        model: keras.Model with names of weights as `layers.naming` gives them.
        scales: loss name -> factor. Other keys that `losses` returns are metrics, `<loss>/<metric>`, divided by
            the count of their loss.
        settings: an instance of `settings_class`.
        tokenizer, seed: what `prepare` needs too.
        packing: name of the packing that its paper uses.
        records: further settings of `write_records` that it needs.
        settings_class: a frozen dataclass, nested where paths are to have dots; it checks its own values.
        defaults: settings that differ from those of the class, by dotted path.
        token_losses: names of losses whose mean is the cross-entropy of a token: evaluation tells their perplexity.
        targets: what the baseline guesses, in words.
        unigram: which of the records' are predicted: "unigram", the ordinary tokens, or "written_unigram", unknown ones and
            separators too.
        model_class: the class of `model`, made with encoder, heads and shapes.
    """

    model: keras.Model
    scales: Mapping[str, float]
    settings: Any = NoSettings()
    packing: str = "full"
    records: Mapping[str, object] = {}
    settings_class: ClassVar[type] = NoSettings
    defaults: Mapping[str, object] = {}
    token_losses: Collection[str] = ()
    targets: str = "tokens"
    unigram: ClassVar[str] = "unigram"
    model_class: type[HeadedModel] = HeadedModel

    def __init__(
        self,
        encoder: keras.Model,
        tokenizer: Tokenizer,
        *,
        features: Collection[str] = (),
        settings: Any = None,
        seed: int = 0,
    ) -> None:
        """
        Args:
            encoder: Encoder.
            tokenizer: of the records.
            features: names of what a batch of the records holds.
            settings: instance of `settings_class`, or a mapping over the objective's own for the encoder's Spec.
            seed: int, of what `prepare` draws.
        """
        self.tokenizer, self.features, self.seed = tokenizer, tuple(features), seed
        made = isinstance(settings, self.settings_class)
        self.settings = settings if made else self.settings_for(encoder.spec, settings or {})
        heads, shapes = self.heads(encoder)
        self.model = self.model_class(encoder, heads, shapes, name="pretraining", dtype=encoder.dtype_policy)
        self.model.build()

    @classmethod
    def defaults_of(cls, spec: Spec) -> Mapping[str, object]:
        """The settings that differ from those of `settings_class` in pretraining a model of that Spec."""
        return cls.defaults

    @classmethod
    def settings_for(cls, spec: Spec, *changes: Mapping[str, object]) -> Any:
        """The settings for a model of that Spec, each mapping over the ones before it."""
        settings = changed(cls.settings_class(), cls.defaults_of(spec))
        for mapping in changes:
            settings = changed(settings, mapping)
        return settings

    @classmethod
    def without_model(cls, tokenizer: Tokenizer, settings: object, seed: int = 0) -> Self:
        """What prepares batches, and nothing else: for models that learn from them in another way (distillation)."""
        made = cls.__new__(cls)
        made.tokenizer, made.features, made.settings, made.seed = tokenizer, (), settings, seed
        return made

    def with_settings(self, settings: object) -> Self:
        """The same objective, on the same model, preparing its batches by other settings."""
        other = copy.copy(self)
        other.settings = settings
        return other

    @classmethod
    def check(cls, settings: object, records: "Records") -> None:
        """Refuse records that lack what the settings ask for.

        Args:
            settings: instance of `settings_class`.
            records: data.records.Records.
        """

    def heads(self, encoder: keras.Model) -> tuple[dict[str, keras.layers.Layer], dict[str, tuple]]:
        """The heads by name, and the shapes they are built with."""
        raise NotImplementedError

    def prepare(self, features: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Records' features -> the batch that `losses` takes, with `row` among it; runs in the input pipeline.

        It gets the rows of several global batches at once: what becomes of a row may depend on that row alone.
        """
        raise NotImplementedError

    def counts(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Loss name -> number of targets in the batch (float32 scalar), from the targets alone."""
        raise NotImplementedError

    def losses(self, batch: Mapping[str, Tensor], training: bool = True) -> dict[str, Tensor]:
        """Loss or metric name -> sum over the batch (float32 scalar). Random numbers come from the open scope."""
        raise NotImplementedError

    def begin(self, optimizer: keras.optimizers.Optimizer, steps: int) -> None:
        """Before the first of so many updates, under the strategy's scope.

        What is kept beside the weights becomes a variable of the optimizer, which checkpoints hold.
        """

    def perturbed(self, batch: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """A micro-batch with what a way of training adds to it, which no gradient goes through."""
        return batch

    def passes(
        self,
        batch: Mapping[str, Tensor],
        differentiate: Callable[..., tuple[list[Tensor], list[Tensor], dict[str, Tensor]]],
    ) -> tuple[list[Tensor], dict[str, Tensor]]:
        """The gradients of a micro-batch and its sums: of one pass, where a way of training makes no more of it.

        Args:
            batch: as `perturbed` gives it.
            differentiate: (batch, watched tensors of it) -> gradients of the trained weights, gradients of what is watched,
                and what `losses` gives. Each call draws the same random numbers.
        """
        gradients, _, sums = differentiate(batch)
        return gradients, sums

    def updated(self, strategy: tf.distribute.Strategy, step: Tensor) -> None:
        """After update number `step`, from 1 on: in its graph, in the cross-replica context."""

    def gathered(self, batch: Mapping[str, Tensor]) -> tuple[str, ...]:
        """The names of a batch's targets that a loss compares over the whole global batch; empty where losses are sums over rows.

        Where it names any, `losses` is `losses_of(vectors(batch, training), batch)`, and the step core gathers the vectors of
        every replica and micro-batch before it asks `losses_of` (`training.whole_batch`).
        """
        return ()

    def vectors(self, batch: Mapping[str, Tensor], training: bool = True) -> Tensor:
        """What such a loss compares, of each row of a part of the batch: [rows, H]."""
        raise NotImplementedError

    def losses_of(self, vectors: Tensor, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """`losses` of what `vectors` gives of all rows; `batch` has the targets of `gathered`."""
        raise NotImplementedError

    def empty_state(self, rows: int) -> dict[str, Tensor]:
        """What rows carry to the rows that follow them in a text, where nothing stands before them: name -> [rows, ...].

        Empty for an objective without state. An update always begins with it, so that it depends on nothing but its own
        batch; evaluation carries it over the whole text by `losses_from`.
        """
        return {}

    def losses_from(
        self, batch: Mapping[str, Tensor], state: Mapping[str, Tensor]
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """`losses` of rows before which others were read, without dropout; and the state after the rows."""
        return self.losses(batch, training=False), dict(state)

    @classmethod
    def lengths(cls, settings: object, length: int) -> tuple[int, ...]:
        """Tokens of a row that the network reads of records of that length: (S,), of an encoder-decoder (S, T).

        Args:
            settings: instance of `settings_class`.
            length: int, of the records.
        """
        return (length,)

    @classmethod
    def sequences(cls, settings: object) -> int:
        """How many sequences of `lengths` tokens the network reads of a row, one after the other: for estimates."""
        return 1

    @classmethod
    def tokens_read(cls, settings: object, length: int, tokens: float) -> float:
        """Useful tokens that the network reads of a row of records of that length which holds `tokens`, on average."""
        return cls.sequences(settings) * tokens * cls.lengths(settings, length)[0] / length

    @classmethod
    def record_length(cls, settings: object, length: int) -> int:
        """The length of the longest records of which each stack reads at most so many tokens: for `kerasbert data --length`."""
        records = length
        while max(cls.lengths(settings, records)) > length:
            records -= 1
        while max(cls.lengths(settings, records + 1)) <= length:
            records += 1
        return records

    @classmethod
    def predictions(cls, settings: object, length: int, tokens: float | None = None) -> float:
        """Tokens predicted in a row, for estimates of memory and arithmetic.

        Args:
            settings: instance of `settings_class`.
            length: S.
            tokens: how many of them are no padding, on average; None for the places that a row has logits for.
        """
        return length if tokens is None else tokens

    @classmethod
    def networks(cls, spec: Spec, predictions: float) -> list[tuple[Spec, float]]:
        """What an update runs, for the estimate of its arithmetic: (Spec, tokens predicted) of each network."""
        return [(spec, predictions)]

    def remarks(self, length: int) -> list[str]:
        """What a run says of records of that length before it begins: a line each."""
        return []

    @classmethod
    def baseline(cls, records: "Records") -> dict[str, float] | None:
        """What guessing without looking reaches on the targets of data.records.Records; None where it says nothing.

        Returns:
            {"entropy": nats (the loss of the best constant guess), "accuracy": share of the commonest token}.
        """
        return dict(records.manifest[cls.unigram])


def changed(settings: specs.Settings, changes: Mapping[str, object], name: str = "the objective") -> specs.Settings:
    """A copy of a frozen dataclass with the fields at dotted paths replaced.

    Raises:
        InputError: an unknown path (the nearest is named), a value of another type, or one that the class refuses.
    """
    known, tree = specs.paths(type(settings)), specs.to_dict(settings)
    for path, value in changes.items():
        if path not in known:
            raise InputError(f"{name} has no setting {path!r}. {near(path, known)}")
        *parents, field = path.split(".")
        node = tree
        for parent in parents:
            node = node[parent]
        node[field] = specs.check(path, value, known[path])
    return specs.from_dict(tree, type(settings))


def log_sums(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """float32 [..., C] logits, int [...] labels -> [..., 1] each: log of the sum of exp, the label's logit, right or not.

    For a `fused` function; where two logits are the largest, both are right, as in `correct` on TPU.
    """
    largest = row_max(logits)
    total = ops.log(row_sums(ops.exp(logits - largest))) + largest
    of_label = ops.take_along_axis(logits, ops.expand_dims(labels, -1), axis=-1)
    return total, of_label, ops.cast(of_label >= largest, "float32")


def log_gradient(logits: Tensor, labels: Tensor, total: Tensor, smoothing: float = 0.0) -> Tensor:
    """The gradient of total - the label's logit by the logits: softmax - (smoothed) one-hot, [..., C] float32."""
    columns = ops.arange(logits.shape[-1], dtype=keras.backend.standardize_dtype(labels.dtype))
    chosen = ops.cast(ops.equal(columns, ops.expand_dims(labels, -1)), "float32")
    wanted = (1 - smoothing) * chosen + smoothing / logits.shape[-1] if smoothing else chosen
    return ops.exp(logits - total) - wanted


def _label_sums_forward(logits: Tensor, labels: Tensor, weights: Tensor) -> tuple:
    total, of_label, right = log_sums(ops.cast(logits, "float32"), labels)
    nats, right = ops.squeeze(total - of_label, -1), ops.squeeze(right, -1)
    return (ops.sum(nats * weights), ops.sum(right * weights)), (logits, labels, weights, total, nats, right)


def _label_sums_backward(
    upstream: Sequence[Tensor],
    logits: Tensor,
    labels: Tensor,
    weights: Tensor,
    total: Tensor,
    nats: Tensor,
    right: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    of_logits = log_gradient(ops.cast(logits, "float32"), labels, total) * ops.expand_dims(weights * upstream[0], -1)
    return of_logits, None, nats * upstream[0] + right * upstream[1]


@fused(constant=(2,), by_hand=ByHand(_label_sums_forward, _label_sums_backward))
def label_sums(logits: Tensor, labels: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """[..., C] logits, int [...] labels, float32 [...] weights -> sums of nats and of right answers, both weighted."""
    return ops.sum(cross_entropy(logits, labels) * weights), ops.sum(correct(logits, labels) * weights)


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """[..., C] logits, int32 [...] labels -> [...] nats, in float32.

    Not `ops.sparse_categorical_crossentropy`: it makes the labels int64, which a TPU has not.
    """
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, ops.cast(logits, "float32"))


def correct(logits: Tensor, labels: Tensor) -> Tensor:
    """1.0 where the largest logit is the label: [..., C], [...] -> [...] float32."""
    if on_tpu():
        # argmax is a pass of its own over the logits, the maximum is part of the loss; where two are the largest, both count
        chosen = ops.equal(ops.arange(logits.shape[-1], dtype="int32"), ops.expand_dims(labels, -1))
        of_label = ops.sum(ops.where(chosen, logits, ops.zeros_like(logits)), axis=-1)
        return ops.cast(of_label >= ops.max(logits, axis=-1), "float32")
    return ops.cast(ops.equal(ops.cast(ops.argmax(logits, axis=-1), labels.dtype), labels), "float32")
