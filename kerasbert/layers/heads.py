"""What sits on an encoder: predictions of tokens, of sentences, of labels."""

from collections.abc import Callable
from typing import Any, TypeVar

import keras
from keras import ops

from kerasbert.inputs import Shape, Tensor
from kerasbert.layers.backend import fused, project
from kerasbert.layers.backend_fused import ByHand, column_sums
from kerasbert.layers.backend_graph import in_own_type
from kerasbert.layers.feedforward import GATED, Linear
from kerasbert.layers.norms import LayerNorm
from kerasbert.layers.random import Dropout
from kerasbert.layers.readout import first
from kerasbert.spec import Spec, head_deviation
from kerasbert.storage.json_view import Json


def tied_logits(x: Tensor, table: Tensor) -> Tensor:
    """Products with the rows of a table of tokens: x [B, P, H], table [V, H] -> float32 [B, P, V]."""
    return ops.cast(_products(x, table), "float32")


def _products(x: Tensor, table: Tensor) -> Tensor:
    # the table's gradient is made when memory is fullest: all activations and the logits are there
    return project(x, ops.transpose(in_own_type(ops.cast(table, x.dtype))))


def _with_bias_forward(products: Tensor, bias: Tensor) -> tuple:
    return ops.cast(products, "float32") + ops.cast(bias, "float32"), ()


def _with_bias_backward(upstream: Tensor) -> tuple[Tensor, Tensor]:
    return upstream, column_sums(upstream)


@fused(by_hand=ByHand(_with_bias_forward, _with_bias_backward))
def with_bias(products: Tensor, bias: Tensor) -> Tensor:
    """[..., V], [V] -> float32 [..., V]."""
    return ops.cast(products, "float32") + ops.cast(bias, "float32")


class MaskedLM(keras.layers.Layer):
    """Predict tokens with the transposed token table (Devlin et al., 2019, section 3.1; bias and transform as released).

    Args:
        width: int E, of the token table.
        activation: str.
        epsilon, initializer: float.
    Call: x [B, P, H], table [V, E] -> logits [B, P, V] float32. Trainable weights: H*E + 3*E + V.
    """

    own_activation: str | None = None  # of a family whose head does not follow its blocks
    norm_class: type = LayerNorm
    transform_bias: bool = True

    def __init__(
        self,
        vocabulary: int,
        width: int,
        activation: str = "gelu",
        epsilon: float = 1e-12,
        initializer: float = 0.02,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.vocabulary, self.width, self.activation = vocabulary, width, self.own_activation or activation
        self.epsilon, self.initializer = epsilon, initializer

    def build(self, shape: Shape) -> None:
        kwargs = {"dtype": self.dtype_policy}
        self.transform = Linear(self.width, self.initializer, self.transform_bias, name="transform", **kwargs)
        self.transform.build(shape)
        self.norm = self.norm_class(self.epsilon, name="norm", **kwargs)
        self.norm.build((*shape[:-1], self.width))
        self.bias = self.add_weight(shape=(self.vocabulary,), initializer="zeros", name="bias")

    def states(self, x: Tensor) -> Tensor:
        """What is compared with the rows of the table: [B, P, H] -> [B, P, E]."""
        return self.norm(self.transform(x, activation=self.activation))

    def call(self, x: Tensor, table: Tensor) -> Tensor:
        return with_bias(_products(self.states(x), table), self.bias)


class GeluMaskedLM(MaskedLM):
    """A masked-LM head with the exact GELU whatever the blocks have (RobertaLMHead, ElectraGeneratorPredictions)."""

    own_activation = "gelu"


Head = TypeVar("Head", bound=keras.layers.Layer)


def token_head(kind: Callable[..., Head], spec: Spec, name: str = "mlm", **kwargs: Any) -> Head:
    """A head of that class which predicts the tokens of a Spec's vocabulary: MaskedLM, or one with its arguments."""
    width = spec.embeddings.width or spec.hidden
    activation = spec.feedforward.activation.removeprefix(GATED)
    return kind(spec.embeddings.vocabulary, width, activation, spec.epsilon, head_deviation(spec), name=name, **kwargs)


class Pooler(Linear):
    """tanh(first @ kernel + bias) over the first token (BERT's released code): x [B, S, H] -> [B, H]."""

    def call(self, x: Tensor) -> Tensor:
        return ops.tanh(super().call(first(x)))


class HeadedModel(keras.Model):
    """An encoder, or whatever network, with heads on it; a call gives what it gives, unless a subclass says what else.

    Args:
        encoder: the network, then known as `body`.
        heads: name -> layer.
        shapes: name -> the input shape that the head is built with.
    """

    def __init__(
        self, encoder: keras.Model, heads: dict[str, keras.layers.Layer], shapes: dict[str, tuple], **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.encoder = encoder
        self.heads = heads
        self.shapes = shapes

    def build(self, shape: Shape | None = None) -> None:
        if not self.body.built:
            self.body.build()  # pyright: ignore[reportCallIssue]  # an Encoder builds without a shape
        with keras.name_scope("heads"):
            for name, head in self.heads.items():
                if not head.built:
                    head.build(self.shapes[name])
        self.built = True

    def build_from_config(self, config: Json) -> None:
        if not self.built:
            self.build()

    def call(self, inputs: Tensor, training: bool = False) -> Tensor:
        return self.body(inputs, training=training)

    @property
    def body(self) -> keras.Model:
        """What the heads sit on: the encoder, by another name than that of its weights in `.keras` files."""
        return self.encoder

    def __dir__(self) -> list[str]:
        # Keras looks for weights under every name in here, and the first in the alphabet is the one in the file
        return [name for name in super().__dir__() if name != "body"]

    @property
    def spec(self) -> Spec:
        """The body's Spec."""
        return self.body.spec

    def get_config(self) -> Json:
        raise NotImplementedError(
            "a model of pretraining cannot be saved as .keras: save its encoder, or all of it by kerasbert.checkpoints"
        )


class LabelHead(Linear):
    """Dropout and a linear map to labels or a number (Devlin et al., 2019, section 4.1): x [B, H] -> float32 [B, L].

    Args:
        width: int L.
        initializer: float.
        dropout: float, before the map.
        activation: of a hidden layer before it (for encoders without a pooler), or None for no such layer.
        inner_width: int, units of that layer; None for H.
    A paper whose hidden layer has no bias, or a norm behind its activation, says so in a subclass.
    """

    inner_bias: bool = True
    inner_norm_class: Callable | None = None

    def __init__(
        self,
        width: int,
        initializer: float = 0.02,
        dropout: float = 0.0,
        activation: str | None = None,
        inner_width: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(width, initializer, **kwargs)
        self.activation, self.inner_width = activation, inner_width
        self.dropout = Dropout(dropout, name="dropout", dtype=self.dtype_policy)

    def build(self, shape: Shape) -> None:
        hidden = (*shape[:-1], (self.activation and self.inner_width) or shape[-1])
        super().build(hidden)
        self.inner = self.inner_norm = None
        if self.activation:
            self.inner = Linear(hidden[-1], self.initializer, self.inner_bias, name="inner", dtype=self.dtype_policy)
            self.inner.build(shape)
            if self.inner_norm_class is not None:
                self.inner_norm = self.inner_norm_class(name="inner_norm", dtype=self.dtype_policy)
                self.inner_norm.build(hidden)
        self.dropout.build()

    def call(self, x: Tensor, training: bool = False) -> Tensor:
        if self.inner is not None:
            x = self.inner(self.dropout(x, training=training), activation=self.activation)
            x = x if self.inner_norm is None else self.inner_norm(x)
        return ops.cast(super().call(self.dropout(x, training=training)), "float32")
