"""Universal Language Model Fine-tuning for Text Classification (Howard and Ruder, 2018), ULMFiT, on an AWD-LSTM.

The network is Merity et al.'s (2017, Regularizing and Optimizing LSTM Language Models):

- section 2: dropout of the recurrent matrices' weights (DropConnect), one mask for a pass over all places and rows;
- section 4.2: variational dropout of what the layers read and of what the last one gives, one mask for all places of a row;
- section 4.3: embedding dropout, whole words for a pass, the others divided by 1 - rate;
- section 4.4 and 4.5: the softmax is tied to the table of words, so the last layer is as wide as the vectors;
- section 4.6: activation regularisation and temporal activation regularisation (`objective.activation`, `objective.change`);
- three layers, 400 -> 1,150 -> 1,150 -> 400.

ULMFiT (numbers of section 4.1) makes a classifier of it in three steps: pretrained on general text, trained on the task's texts
with another rate for each layer and a slanted triangle (3.2), and with a head on the last state, the maximum and the mean
(3.3, concat pooling), a hidden layer of 50 and gradual unfreezing: `tpu_scripts/recipes/ulmfit.yaml`.

Differs: tokens are pieces; no batch normalisation in the head, whose statistics would depend on how a batch is split; texts that
are classified are read with the gradient of all their places (the paper: of the last ones); no averaged SGD, as in ULMFiT, but
Adam; lengths of segments do not vary; one direction.
"""

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType

from keras import ops

from kerasbert.classics.layers.recurrent_encoder import (
    Recurrence,
    RecurrentEncoder,
    RecurrentSpec,
    Words,
    flops,
    kept,
    with_bias,
    with_one,
)
from kerasbert.classics.objectives.recurrent import RecurrentLM
from kerasbert.errors import InputError
from kerasbert.inputs import Tensor
from kerasbert.layers.backend import gather
from kerasbert.layers.random import Dropout, LockedDropout
from kerasbert.registry import Family, register, register_objective


@dataclasses.dataclass(frozen=True)
class Rates:
    """Shares that are dropped in training.

    Args:
        words: float, of the table's rows.
        input: float, of what the first layer reads.
        between: float, of what a layer reads of the one below it.
        output: float, of what the softmax reads.
        weights: float, of the recurrent matrices.
    """

    words: float = 0.05
    input: float = 0.4
    between: float = 0.3
    output: float = 0.4
    weights: float = 0.5


@dataclasses.dataclass(frozen=True)
class AWDLSTMSpec(RecurrentSpec):
    """The settings of an AWD-LSTM: those of a recurrent encoder, and what is dropped."""

    rates: Rates = Rates()

    def validate(self) -> "AWDLSTMSpec":
        """Check what no single field can tell; returns self."""
        super().validate()
        if self.width != self.hidden:
            raise InputError(
                f"embeddings.width must be hidden, {self.hidden}: the softmax is tied to the table. Received: {self.width}"
            )
        for name, rate in dataclasses.asdict(self.rates).items():
            if not 0 <= rate < 1:
                raise InputError(f"rates.{name} must be at least 0 and below 1. Received: {rate}")
        return self


class AWDLSTM(RecurrentEncoder):
    """LSTMs with weight drop, variational and embedding dropout, and a tied softmax.

    Args: spec: AWDLSTMSpec.
    Call: as RecurrentEncoder. Trainable weights: VH + V of the softmax' bias, and 4U(E + U + 1) of each layer.
    """

    spec: AWDLSTMSpec
    label_activation = "relu"
    label_width = 50

    @property
    def weight_drop(self) -> float:
        """Of the recurrent matrices."""
        return self.spec.rates.weights

    def build_parts(self) -> None:
        rates, policy = self.spec.rates, {"dtype": self.dtype_policy}
        self.words_dropout = Dropout(rates.words, shared=True, name="words_dropout", **policy)
        self.input_dropout = LockedDropout(rates.input, name="input_dropout", **policy)
        self.between_dropouts = [
            LockedDropout(rates.between, name=f"between_dropout_{i}", **policy) for i in range(len(self.recurrent) - 1)
        ]
        self.last_dropout = LockedDropout(rates.output, name="last_dropout", **policy)
        for layer in (self.words_dropout, self.input_dropout, *self.between_dropouts, self.last_dropout):
            layer.build()
        self.output_bias = self.add_weight(
            shape=(self.spec.embeddings.vocabulary,), initializer="zeros", name="output_bias", autocast=False
        )

    def embed(self, inputs: Mapping[str, Tensor], training: bool = False) -> Tensor:
        x = self.table(inputs["token_ids"])
        if training and self.spec.rates.words:
            kept = self.words_dropout(ops.ones((1, self.spec.embeddings.vocabulary), x.dtype), training=True)[0]
            x = x * ops.expand_dims(gather(kept, inputs["token_ids"]), -1)
        return self.input_dropout(x, training=training)

    def between(self, x: Tensor, layer: int, training: bool = False) -> Tensor:
        return self.between_dropouts[layer](x, training=training)

    def scaled(self, x: Tensor) -> Tensor:
        """What the rows of `output_rows` are multiplied with."""
        return with_one(x)

    @property
    def output_rows(self) -> Tensor:
        """The table of words with the softmax' bias as one column more: [V, H + 1]."""
        return with_bias(self.table.table, self.output_bias)


class ULMFiTPretraining(RecurrentLM):
    """The language model, with Merity et al.'s two regularisers at their 2 and 1."""

    defaults = MappingProxyType({"activation": 2.0, "change": 1.0})


register_objective("ulmfit", ULMFiTPretraining)

ULMFIT = register(
    Family(
        name="ulmfit",
        spec=AWDLSTMSpec(  # pyright: ignore[reportArgumentType]  # no Spec
            hidden=400,
            dropout=0.1,
            initializer=0.05,  # as wide as the released code's uniform in 0.1
            embeddings=Words(vocabulary=30000),
            recurrence=Recurrence(layers=3, units=1150),
        ),
        sizes={"base": {}},
        encoder=AWDLSTM,
        readout="concat",
        objective="ulmfit",
        longest=lambda spec: None,
        flops=flops,  # pyright: ignore[reportArgumentType]  # of its own settings
        memory=kept,  # pyright: ignore[reportArgumentType]
        paper="Howard and Ruder, 2018, Universal Language Model Fine-tuning for Text Classification",
    )
)
