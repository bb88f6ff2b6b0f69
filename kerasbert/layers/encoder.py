"""The encoder that most families are: embeddings, blocks, pooler.

A forward pass, of the post-norm blocks of BERT:

    x = dropout(norm(tokens[token_ids] + positions[position_ids] + segments[segment_ids]))    # Encoder.embed
    context = Context(bias=0 where a token may look, else -60)                                # Encoder.visible, context
    for block in blocks:                                                                      # Encoder.run
        q, k, v = (split_heads(linear(x)) for linear in (query, key, value))                  # Attention.read, split
        weights = dropout(softmax(q @ k.T / sqrt(D) + context.bias))                          # Attention.scores, attend
        x = norm(x + dropout(adapted(output(weights @ v))))                                   # Block.call
        x = norm(x + dropout(adapted(outer(activation(inner(x))))))                           # FeedForward
    outputs = {"sequence": x, "hidden": (x of every layer), "pooled": tanh(linear(x[:, 0]))}

A pre-norm block norms what each sublayer reads instead, and the encoder once more at the end. A paper overrides the method
named on the right.
"""

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, cast

import keras
from keras import ops

from kerasbert import registry, text
from kerasbert import spec as specs
from kerasbert.inputs import Shape, Tensor
from kerasbert.layers import lora, visibility
from kerasbert.layers.block import stack
from kerasbert.layers.context import Context, Queries
from kerasbert.layers.embeddings import Embeddings
from kerasbert.layers.heads import LabelHead, MaskedLM, Pooler
from kerasbert.layers.norms import LayerNorm
from kerasbert.spec import Spec
from kerasbert.storage.json_view import Json

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def serializable(kind: type, module: str | None = None) -> type:
    """Register a class under its file's and its own name, so that a `.keras` file that holds it can be loaded."""
    # a plug-in's module is named by its hash
    module = module or kind.__module__.rpartition(".")[2].partition("_plugin_")[0]
    return keras.saving.register_keras_serializable("kerasbert", f"{module}.{kind.__qualname__}")(kind)


class SpecModel(keras.Model):
    """A model that its Spec describes: what `.keras` files, model directories and LoRA ask of every stack.

    Args:
        spec: Spec.
    """

    learned_vector = False  # whether it gives text_vector [B, H], a text's vector that its pretraining learned

    def __init__(self, spec: "DataclassInstance", name: str = "encoder", **kwargs: Any) -> None:
        super().__init__(name=name, **kwargs)
        self.spec = cast(Spec, spec)  # a class whose settings are no Spec says what they are
        self.tokenizer: text.Tokenizer | None = None
        self.labels: Sequence[str] | None = None
        self.model_name: str | None = None  # family/size that it was built from

    def build(self, shape: Shape | None = None) -> None:
        with lora.asked(self.spec.lora, self.path):
            self._build()
        self.built = True

    def _build(self) -> None:
        """Make and build the parts."""
        raise NotImplementedError

    def get_config(self) -> Json:
        name = self.model_name or registry.family_of(self).name
        return super().get_config() | {"model": name, "spec": specs.to_dict(self.spec)}

    @classmethod
    def from_config(cls, config: Json) -> Self:
        config = dict(config)
        name = config.pop("model")
        kind = type(registry.family(name.partition("/")[0]).spec)
        model = cls(specs.from_dict(config.pop("spec"), kind), **config)
        model.model_name = name
        return model

    def build_from_config(self, config: Json) -> None:
        if not self.built:
            self.build()

    def save_assets(self, dir_path: str) -> None:
        """Put the tokenizer beside the weights of a `.keras` file."""
        if self.tokenizer is not None:
            self.tokenizer.save(os.path.join(dir_path, "tokenizer"))

    def load_assets(self, dir_path: str) -> None:
        """Take the tokenizer of a `.keras` file, where it holds one."""
        if os.path.isdir(folder := os.path.join(dir_path, "tokenizer")):
            self.tokenizer = text.load_tokenizer(folder)


@functools.partial(serializable, module="bert")  # where it stood when the first `.keras` files were written
class Encoder(SpecModel):
    """Transformer encoder: embeddings, blocks, pooler (Devlin et al., 2019, section 3).

    Args:
        spec: Spec.
    Call: dict of token_ids [B, S] int, padding_mask [B, S] (bool or 0/1, True = a real token; all real by default),
        segment_ids [B, S], position_ids [B, S], packed_ids [B, S] (pieces of one number see each other alone; instead of
        padding_mask, padding is 0), visible_matrix [B, S, S] (bool or 0/1, True = row's token may look at column's),
        embedded [B, S, H] (what the blocks read in the place of what `embed` makes of the ids)
        -> dict of sequence [B, S, H], pooled [B, H] (with a pooler), hidden (tuple of L+1 [B, S, H]) and, with
        `attention=True`, attention (tuple of L [B, N, S, S]).
        `queries` computes the last layer for these tokens alone, so that sequence is [B, P, H] and pooled is of their
        first: "first", int positions [B, P], or [B] for one a row.

    A Keras model that holds it can be saved as `.keras`, with its tokenizer, and cloned.
    """

    embeddings_class: type = Embeddings
    block_class: Callable | None = None  # a family's own block
    norm_class: type = LayerNorm  # of the last norm, where blocks are pre-norm
    pooler_class: type = Pooler
    token_head: type = MaskedLM  # predicts tokens
    for_tasks: tuple[
        str, ...
    ] = ()  # patterns of weights that only a task trains: what the first token alone is made by
    # whether its layers compute the same where S is unknown as they are traced: training takes one graph for all lengths then.
    # A subclass says so itself
    open_lengths: bool = True
    padding_counts: bool = False  # whether numbers depend on how far a row is padded
    label_bias: bool = True  # whether the head of a classification adds one
    keeps_hidden: bool = False  # whether what is trained reads `hidden`, which a reversible stack drops in training
    label_head: Callable = LabelHead  # of a task
    span_head: Callable | None = None  # of the ends of an answer; None: as label_head
    pooled_kinds: tuple[str, ...] | None = (
        None  # kinds of tasks that read the pooler; None: all that read a text's vector
    )
    label_activation: str | None = None  # of a hidden layer in the head of a task, where it reads no pooler
    token_label_activation: str | None = None  # the same of tokens' labels, and of the ends of an answer

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.open_lengths = vars(cls).get("open_lengths", False)
        serializable(cls)

    def _build(self) -> None:
        spec, kwargs = self.spec, {"dtype": self.dtype_policy}
        self.embeddings = self.embeddings_class(spec, name="embeddings", **kwargs)
        self.embeddings.build()
        self.blocks = stack(spec, self.block_class, **kwargs)
        self.norm = None
        if spec.blocks.norm == "pre":
            self.norm = self.norm_class(spec.epsilon, name="norm", **kwargs)
            self.norm.build((None, None, spec.hidden))
        self.pooler = None
        if spec.pooler:
            self.pooler = self.pooler_class(spec.hidden, specs.head_deviation(spec), name="pooler", **kwargs)
            self.pooler.build((None, spec.hidden))

    def visible(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """bool [B or 1, Q or 1, K], True = may look, or None where everybody sees everything.

        Every row has something to see, unless `visible_matrix` says otherwise; such a row attends to all alike.
        """
        if "packed_ids" in inputs:
            real = visibility.packed(inputs["packed_ids"])
        else:
            real = visibility.padding(inputs["padding_mask"]) if "padding_mask" in inputs else None
        earlier = visibility.causal(ops.shape(inputs["token_ids"])[1]) if self.spec.attention.causal else None
        return visibility.both(real, earlier, inputs.get("visible_matrix"))

    def embed(self, inputs: Mapping[str, Tensor], training: bool = False) -> Tensor:
        """What the tokens start as: [B, S, H]."""
        tables = inputs.get("segment_ids"), inputs.get("position_ids")
        return self.embeddings(inputs["token_ids"], *tables, training=training)

    def context(self, inputs: Mapping[str, Tensor]) -> Context:
        """What every block is told; a paper adds what its blocks read."""
        visible = self.visible(inputs)
        return Context(None if visible is None else visibility.bias(visible))

    def call(
        self, inputs: Tensor, training: bool = False, queries: Queries = None, attention: bool = False
    ) -> dict[str, Tensor]:
        self.check(inputs)
        return self.run(inputs, self.context(inputs), training, queries, attention)

    def run(
        self, inputs: Tensor, context: Context, training: bool = False, queries: Queries = None, attention: bool = False
    ) -> dict[str, Tensor]:
        """As `call`, with what the blocks are told."""
        x = inputs["embedded"] if "embedded" in inputs else self.embed(inputs, training)
        hidden, weights = [x], []
        for i, block in enumerate(self.blocks):
            at = context if i + 1 < len(self.blocks) else context.of(queries)
            x, probabilities = block(x, context=at.of_layer(i), training=training)
            hidden.append(x)
            weights.append(probabilities)
        if self.norm is not None:
            hidden[-1] = x = self.norm(x)
        outputs = {"sequence": x, "hidden": tuple(hidden)}
        if self.pooler is not None:
            outputs["pooled"] = self.pooler(x)
        if attention:
            outputs["attention"] = tuple(weights)
        return outputs

    def at_layer(self, outputs: Mapping[str, Tensor], layer: int) -> Tensor:
        """The `sequence` of the first layers alone, 1 to L of them, of outputs of all: [B, S, H]."""
        x = outputs["hidden"][layer]
        return x if self.norm is None or layer + 1 == len(outputs["hidden"]) else self.norm(x)

    @property
    def longest(self) -> int | None:
        """Tokens of the longest sequence, None where there is no such: a family's `longest` says the same."""
        return self.spec.longest

    def check(self, inputs: Mapping[str, Tensor]) -> None:
        """Refuse what would fail later with a message about matrices."""
        size, matrix = inputs["token_ids"].shape[1], inputs.get("visible_matrix")
        if matrix is not None and (len(matrix.shape) != 3 or len({size, *matrix.shape[1:]} - {None}) > 1):
            raise ValueError(
                f"visible_matrix has shape {tuple(matrix.shape)}, expected (batch, {size}, {size}): one row and column per "
                "token of token_ids"
            )
        longest = self.longest
        if size and longest and size > longest and "position_ids" not in inputs:
            raise ValueError(
                f"token_ids has length {size}, expected at most {longest} (embeddings.positions): truncate"
            )
