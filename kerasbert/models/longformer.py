"""Longformer: The Long-Document Transformer (Beltagy et al., 2020).

Differences from RoBERTa:

- Section 3.1, "Sliding Window": a token sees w/2 tokens to each side and itself. One w for all layers, or one a layer.
- 3.1, "Global Attention": a few tokens see all and are seen by all: [CLS] of a text that is classified, a question. What they
  ask has projections of its own, "Linear Projections for Global Attention".
- 3.1, "Dilated Sliding Window": of the paper's character models alone, in no released one; here in the mask form.
- Section 5: positions 2 to 513 of RoBERTa copied over and over into 4,098 rows, the projections into the global ones: `extended`.

Which tokens are global the Spec and the inputs say together. `window.global_tokens` G of a row's first tokens are; a call may
give `global_mask` [B, S], and then those of them are that it marks (any token where G is 0: full scores, S^2). `for_kind` sets G
for a task, as transformers does: [CLS] of a text with one answer, the question of a span, else as before. A question and the
choices of a choice are marked by inputs that are made of the row, `question_mask` and `choice_mask`.

Differs: masked-LM pretraining has a global [CLS], so that the global projections are trained; the released models were
pretrained with none, and their projections copied afterwards: `window.global_tokens=0`, then `with_copied_projections`. Those of
the last layer only a task trains, for no masked token is predicted of [CLS]. A checkpoint of transformers is read with none:
their LongformerModel and LongformerForMaskedLM have none unless a call says so.
Differs: padding gives zeros in the attention of others' rows and of its own; transformers' padding has another position.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
from keras import ops

from kerasbert import registry
from kerasbert.checkpoints.directory import built, named_weights
from kerasbert.checkpoints.names import LIST, Dialect, of_family
from kerasbert.errors import InputError
from kerasbert.inputs import CHOICE_MASK, QUESTION_MASK, TEXT, Input, Tensor
from kerasbert.layers import window
from kerasbert.layers.block import Block, PreNormBlock
from kerasbert.layers.context import Context, Queries
from kerasbert.models.roberta import HF as ROBERTA_HF
from kerasbert.models.roberta import ROBERTA, Roberta
from kerasbert.registry import register
from kerasbert.spec import Spec
from kerasbert.storage.json_view import Json

if TYPE_CHECKING:
    from kerasbert.answers import Kind

MASKS = ("global_mask", "question_mask", "choice_mask")
GLOBAL_MASK = Input("global_mask", optional=True, filled_by="objective")
"""Given by whoever calls the model: 1 = a global token."""


@dataclasses.dataclass(frozen=True)
class Window:
    """What a token sees of a row.

    Args:
        size: int w, even: w/2 tokens to each side and itself; or one value per layer.
        dilation: int d, every d-th token within w/2*d to each side, by the mask form (full scores); or one value per layer.
        global_tokens: int G, how many tokens at the beginning of a row are global; where a call marks them, how many may be.
    """

    size: int | tuple[int, ...] = 512
    dilation: int | tuple[int, ...] = 1
    global_tokens: int = 1


@dataclasses.dataclass(frozen=True)
class LongformerSpec(Spec):
    """An encoder with windows.

    Args:
        window: Window.
    """

    window: Window = Window()

    def validate(self) -> "LongformerSpec":
        """As its parent's; values per layer that are all equal become one."""
        super().validate()
        alike = {}
        for name, least in (("size", 2), ("dilation", 1)):
            value, path = getattr(self.window, name), f"window.{name}"
            values = value if isinstance(value, tuple) else (value,)
            if isinstance(value, tuple) and len(value) != self.blocks.layers:
                raise InputError(f"{path} has {len(value)} values, expected one per layer: {self.blocks.layers}")
            if min(values) < least:
                raise InputError(f"{path} must be at least {least}. Received: {min(values)}")
            if len(set(values)) > 1 and self.blocks.share != "none":
                raise InputError(f"{path} must be one number where layers share weights. Received: {value}")
            if name == "size" and any(size % 2 for size in values):
                raise InputError(f"{path} must be even, half of it to each side. Received: {value}")
            if isinstance(value, tuple) and len(set(values)) == 1:
                alike[name] = values[0]
        for name, most in (("size", self.window.size), ("global_tokens", self.window.global_tokens)):
            most = max(most) if isinstance(most, tuple) else most
            if not 0 <= most <= self.longest:
                raise InputError(
                    f"window.{name} is {most}, expected at most {self.longest}, the longest sequence "
                    "(embeddings.positions): lower it"
                )
        return dataclasses.replace(self, window=dataclasses.replace(self.window, **alike)) if alike else self

    def seen(self, layer: int, length: float) -> float:
        """The chunk of half a window, both neighbours and the global tokens; and the share of what global ones see."""
        width, count = self.per_layer(self.window.size, layer), self.window.global_tokens
        if self.per_layer(self.window.dilation, layer) > 1:
            return length + count
        return min(length, width * 3 / 2 + count) + count

    def attention_maps(self, layer: int) -> float:
        """Keys and values once more where there are global tokens, whose few queries are not counted."""
        return 6 if self.window.global_tokens else 4


class WindowBlock(Block):
    """A layer whose attention has a window.

    Args:
        window, dilation: int, of WindowAttention.
        others: of Block.
    """

    def __init__(self, *, window: int = 512, dilation: int = 1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.settings |= {"window": window, "dilation": dilation}

    @property
    def attention_class(self) -> Callable:  # pyright: ignore[reportIncompatibleVariableOverride]  # of this block's window
        """Attention within the window."""
        return functools.partial(
            window.WindowAttention, window=self.settings["window"], dilation=self.settings["dilation"]
        )


class PreNormWindowBlock(WindowBlock, PreNormBlock):
    """The same with the norms in front of the sublayers."""


class Longformer(Roberta):
    """RoBERTa's encoder with windows and global tokens.

    Call: as its parent's, with `global_mask` [B, S] (bool or 0/1, True = global), or `question_mask`, `choice_mask` alike.
        With `attention=True` or a `visible_matrix` all layers take the mask form, full scores.
    """

    @property
    def block_class(self) -> Callable:
        """Blocks of each layer's window."""
        kind = PreNormWindowBlock if self.spec.blocks.norm == "pre" else WindowBlock

        def block(**kwargs: Any) -> Block:
            widths = self.spec.window.size, self.spec.window.dilation
            size, dilation = (self.spec.per_layer(each, kwargs["layer"]) for each in widths)
            return kind(window=size, dilation=dilation, **kwargs)

        return block

    @property
    def for_tasks(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]  # of this Spec's layers
        """What a global [CLS] of the last layer asks: no masked token is predicted of it."""
        return (f"block_{self.spec.blocks.layers - 1}/attention/*_global/*",)

    def context(self, inputs: Mapping[str, Tensor]) -> Context:
        return self.pattern(inputs)

    def pattern(self, inputs: Mapping[str, Tensor], dense: bool = False) -> Context:
        """What every block is told: who may look at whom as a `window.Pattern`.

        Args:
            dense: whether the layers take the mask form.
        """
        length, most = ops.shape(inputs["token_ids"])[1], self.spec.window.global_tokens
        pieces, real = inputs.get("packed_ids"), inputs.get("padding_mask")
        marked = next((inputs[name] for name in MASKS if name in inputs), None)
        matrix = inputs.get("visible_matrix")
        if marked is not None and not most:
            most, dense = length if isinstance(length, int) else ANY, True
        pattern = window.Pattern(
            length,
            real=ops.cast(real if pieces is None else ops.greater(pieces, 0), "bool")
            if real is not None or pieces is not None
            else None,
            pieces=pieces,
            marked=None if marked is None else ops.cast(marked, "bool"),
            most=min(most, length) if isinstance(length, int) else most,
            causal=self.spec.attention.causal,
            matrix=None if matrix is None else ops.cast(matrix, "bool"),
            dense=dense,
        )
        # a projected attention layer beside a block (Stickland and Murray, 2019) has no window
        bias = super().context(inputs).bias if self.spec.pals.width else None
        return Context(bias, scoring=pattern)

    def call(
        self, inputs: Tensor, training: bool = False, queries: Queries = None, attention: bool = False
    ) -> dict[str, Tensor]:
        self.check(inputs)
        context = self.pattern(inputs, dense=bool(attention))
        return self.run(inputs, context, training, queries, attention)

    def check(self, inputs: Mapping[str, Tensor]) -> None:
        super().check(inputs)
        most, expected = self.spec.window.global_tokens, tuple(inputs["token_ids"].shape)
        for name in MASKS:
            mask = inputs.get(name)
            if mask is None:
                continue
            if len(mask.shape) != 2 or any(
                None not in pair and len(set(pair)) > 1 for pair in zip(mask.shape, expected)
            ):
                raise InputError(f"{name} has shape {tuple(mask.shape)}, expected that of token_ids, {expected}")
            late = np.asarray(mask)[:, most:].any(axis=0) if most and hasattr(mask, "numpy") else ()  # not in a graph
            if np.any(late):
                place = int(np.argmax(late)) + most
                raise InputError(
                    f"{name} marks token {place}, expected the first {most} of a row alone (window.global_tokens): build "
                    f"the model with window.global_tokens={place + 1} or more, or 0 for any token at the cost of full scores"
                )


ANY = 1 << 30  # more than any row has: of a length that is not known yet


def for_kind(spec: LongformerSpec, kind: "Kind") -> Json:
    """The global tokens of a task, as transformers' classes have them.

    [CLS] of a text with one answer; of a span [CLS] and the question; of a choice the choice, wherever it stands. Tags, vectors
    and masked tokens: as the model has them.
    """
    known = {"text": 1, "first_text": min(spec.longest, 1 + kind.options.get("question", 0)), "second_text": 0}
    return {"window.global_tokens": known[kind.focus]} if kind.focus in known else {}


def with_copied_projections(model: keras.Model) -> keras.Model:
    """The model itself, its query, key and value copied into the projections of global tokens (section 3.1, section 5).

    Args:
        model: a Longformer.
    """
    for block in model.blocks:
        for ours, theirs in zip(window.LOCAL, window.GLOBAL):
            for one, other in zip(getattr(block.attention, theirs).weights, getattr(block.attention, ours).weights):
                one.assign(other)
    return model


def extended(model: keras.Model, length: int = 4096, size: int = 512) -> keras.Model:
    """A RoBERTa made longer (section 5): positions copied over and over, projections copied into those of global tokens.

    On texts of at most w/2 tokens it computes what the RoBERTa computes, which of the first are global or not.

    Args:
        model: a RoBERTa or XLM-R, as `kerasbert.load` and `kerasbert.import_checkpoint` give it.
        length: int, tokens of the longest sequence (the released models' 4,096).
        size: int w, window of all layers.

    Returns:
        a Longformer with the tokenizer of the model, its labels, task and the heads of an import.

    Raises:
        InputError: a model of another kind, or a length that is less than the model has.
    """
    family, spec = registry.family_of(model), model.spec
    if not isinstance(model, Roberta) or type(spec) is not Spec:
        raise InputError(f"the model is a {family.name}, expected a RoBERTa or XLM-R, of which a Longformer is made")
    if length < spec.longest:
        raise InputError(f"length {length} is less than the {spec.longest} that the model has: give more")
    fields = {field.name: getattr(spec, field.name) for field in dataclasses.fields(spec)}
    fields["embeddings"] = dataclasses.replace(spec.embeddings, positions=length + spec.embeddings.offset)
    made = built(LONGFORMER, LongformerSpec(**fields, window=Window(size)).validate())
    had, first = named_weights(model), spec.embeddings.offset
    for name, weight in named_weights(made).items():
        if name == "embeddings/positions/table":
            table = had[name].value.numpy()
            rows = first + np.arange(length) % (len(table) - first)
            weight.assign(np.concatenate([table[:first], table[rows]]))
        elif name in had:
            weight.assign(had[name].value)
    for name in ("tokenizer", "labels", "task", "heads", "source"):
        if getattr(model, name, None) is not None:
            setattr(made, name, getattr(model, name))
    return with_copied_projections(made)


def _of_a_size(model: keras.Model, named: LongformerSpec | None) -> keras.Model:
    """`extended` to the length and the window of a size; all sizes have one window for all layers."""
    spec = named or SPEC
    return extended(model, spec.longest, spec.per_layer(spec.window.size, 0))


_SELF = "longformer.encoder.layer.{i}.attention.self"


class LongformerDialect(Dialect):
    """Which tokens see all others is told at each call of theirs."""

    by_call = ("window.global_tokens",)


HF = LongformerDialect.of_names(ROBERTA_HF).derive(
    ("roberta.", "longformer."),
    rows=tuple((f"block_{{i}}/attention/{name}", f"{_SELF}.{name}") for name in window.GLOBAL),
    config=(*ROBERTA_HF.config, ("window.size", "attention_window", LIST)),
    silent={"attention_window": 512},
    classes=of_family(ROBERTA_HF.classes, "Roberta", "Longformer"),
    model_types=(),
    renames=ROBERTA_HF.renames[:2],
    special={"bos_token_id": "cls", "eos_token_id": "sep", "sep_token_id": "sep"},
    spec={"window.global_tokens": 0},
    unread={
        "onnx_export": "how it is exported there",
        "attention_mode": ("longformer", "sliding_chunks"),
        "ignore_attention_mask": (False,),
        "autoregressive": (False,),
    },
)

SPEC = LongformerSpec(
    epsilon=ROBERTA.spec.epsilon, embeddings=dataclasses.replace(ROBERTA.spec.embeddings, positions=4098)
)
LONGFORMER = register(
    dataclasses.replace(ROBERTA, spec=SPEC).derive(
        "longformer",
        spec={},
        encoder=Longformer,
        inputs=(*TEXT, QUESTION_MASK, CHOICE_MASK, GLOBAL_MASK),
        for_kind=for_kind,
        made_of={"roberta": _of_a_size, "xlm-roberta": _of_a_size},
        names={"hf": HF},
        paper="Beltagy et al., 2020, Longformer: The Long-Document Transformer",
    )
)
