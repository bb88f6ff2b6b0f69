"""What a model family says of itself. Standard library only."""

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from kerasbert.errors import InputError, check_known, unknown
from kerasbert.inputs import TEXT, Input
from kerasbert.poolings import READOUTS

if TYPE_CHECKING:  # a phone, which comes here by way of the registry, needs no Spec
    import numpy as np

    from kerasbert.answers.base import Kind
    from kerasbert.checkpoints.names import Dialect
    from kerasbert.checkpoints.word_vectors import WordVectors
    from kerasbert.spec import Spec
    from kerasbert.storage.json_view import JsonMap
    from kerasbert.text.base import Tokenizer


KINDS = {
    "encoder": "an encoder",
    "decoder": "a decoder",
    "seq2seq": "an encoder and a decoder",
}  # of a family, and how it is called
# what a head reads (`layers.mix`) -> the layers: the embeddings are layer 0
LAYERS = {
    "last": slice(-1, None),
    "embeddings": slice(0, 1),
    "sum4": slice(-4, None),
    "concat4": slice(-4, None),
    "mix": slice(0, None),
}


def check_layers(kind: str, layers: float | None) -> None:
    """Refuse what is none of LAYERS, or needs more layers.

    Args:
        layers: int L of the model; None where it has no blocks.
    """
    if kind not in LAYERS:
        raise InputError(f"layers must be one of {', '.join(LAYERS)}. Received: {kind!r}")
    if kind != "last" and layers is None:
        raise InputError(f"layers {kind!r} needs a model of blocks, this one gives its last vectors alone: take 'last'")
    if kind in ("sum4", "concat4") and layers is not None and layers < 4:
        raise InputError(f"layers {kind!r} needs 4 layers, the model has {layers}: take 'mix' or 'last'")


PARTS = ("blocks",)  # of `Family.has`


def _longest(spec: object) -> int | None:
    """What a Spec says of it."""
    return getattr(spec, "longest", None)


def _derived(spec: "Spec", changes: Mapping[str, object]) -> "Spec":
    from kerasbert.spec import derive  # a phone, which looks up a tokenizer here, needs no Spec

    return derive(spec, changes)


def check_function(name: str, function: object) -> None:
    """The rule of tables of functions.

    Raises:
        InputError: what is not callable.
    """
    if not callable(function):
        raise InputError(f"{name!r} is registered with {function!r:.80}, expected a function")


@dataclasses.dataclass(frozen=True)
class Family:
    """One paper: its Spec, its sizes and what goes with them.

    Args:
        name: str, as in `bert/base`.
        spec: of the base size: a Spec, or any frozen dataclass (of frozen dataclasses) with `hidden`, the width of the
            encoder's `sequence`. What it has of `embeddings.vocabulary`, `dropout`, `initializer` and `pooler` is read too.
        sizes: size name -> difference from `spec` (dotted paths).
        encoder: the class of the encoder, called as `encoder(spec)`.
        paper: str, authors, year, title.
        tokenizer: str, kind of tokenizer.
        layout: str, special tokens and their places in a vocabulary that is learned for it (`text.train`); "" for the kind's.
        objective: str, name of the pretraining objective; "" where none is here yet.
        names: checkpoint format -> a `checkpoints.names.Dialect`: what its weights and settings are called there.
        aliases: other size name -> size name.
        inputs: what the network reads (`kerasbert.inputs`).
        kind: "encoder", "decoder" (a token sees itself and those before it) or "seq2seq" (an encoder, and a decoder that
            reads what it gives).
        of_text: of a "seq2seq" what it reads of a text alone, to give its tokens' vectors; None where it gives none.
        readout: what of its outputs stands for a text: the "first" token (or the pooler's vector), the "last" real one,
            or the "mean" over them.
        longest: settings -> tokens of the longest sequence, or None where there is no such.
        has: what cutting and imitating layers needs, of "blocks" (`Spec.blocks`, weights `block_0/...`). None: a Spec of
            one stack has them, other settings do not.
        flops: (settings, tokens, sequences, predictions) of an update -> FLOPs, as `training.flops.update_flops`, which
            counts those of blocks. None elsewhere: not known.
        for_kind: (settings, `answers.Kind`) -> what of them a task of that kind changes, at dotted paths; no weight may
            change its shape by it.
        made_of: name of another family -> what makes a model of this one of its models (with `named` settings, those of
            the size that was asked for, or None). `import_checkpoint` does so where a size of this family is asked for, of
            others' checkpoints and of model directories.
        memory: (settings, rows, length, predictions per token) -> numbers that the backward pass keeps, as
            `training.preflight.kept_numbers`, which counts those of blocks. None elsewhere: not known.
        of_vectors: (word vectors, what they were learned with) -> (settings, weights by name, tokenizer) of a model that
            begins with them, weights that are not among them begin as new; None: it does not.
    """

    name: str
    spec: "Spec"
    sizes: Mapping[str, "JsonMap"]
    encoder: Callable
    paper: str
    tokenizer: str = "wordpiece"
    layout: str = ""
    objective: str = "bert"
    names: Mapping[str, "Dialect"] = dataclasses.field(default_factory=dict)
    aliases: Mapping[str, str] = dataclasses.field(default_factory=dict)
    inputs: tuple[Input, ...] = TEXT
    kind: str = "encoder"
    of_text: tuple[Input, ...] | None = None
    readout: str = "first"
    longest: Callable[[Any], int | None] = _longest
    has: tuple[str, ...] | None = None
    flops: Callable[[Any, float, float, float], float] | None = None
    memory: Callable[[Any, int, int, float], float] | None = None
    for_kind: "Callable[[Any, Kind], JsonMap] | None" = None
    made_of: Mapping[str, Callable] = dataclasses.field(default_factory=dict)
    of_vectors: "Callable[[WordVectors, JsonMap], tuple[Any, Mapping[str, np.ndarray], Tokenizer]] | None" = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InputError(f"kind of the family {self.name} is {self.kind!r}, expected one of {', '.join(KINDS)}")

    def check(self) -> None:
        """Refuse sizes that do not derive, aliases of none, parts and a readout that nothing knows, an encoder that is
        not made of the settings.

        Raises:
            InputError: with the nearest name.
        """
        for size in self.sizes:
            try:
                self.size(size)
            except InputError as error:
                raise InputError(f"the size {self.name}/{size}: {error}") from error
        for kind, given, known in (
            ("size", self.aliases.values(), self.sizes),
            ("part", self.has or (), PARTS),
            ("readout", (self.readout,), READOUTS),
        ):
            for name in given:
                check_known("family", self.name, kind, name, known)
        if not callable(self.encoder):
            raise InputError(f"the encoder of the family {self.name} is {self.encoder!r:.80}, expected its class")
        try:
            inspect.signature(self.encoder).bind(self.spec, dtype="float32")
        except TypeError as error:
            made = getattr(self.encoder, "__name__", self.encoder)
            raise InputError(
                f"the encoder of the family {self.name} is not called as {made}(spec, dtype=...): {error}"
            ) from error

    def derive(self, name: str, *, spec: Mapping[str, object], **changes: Any) -> "Family":
        """Another paper as a difference from this one."""
        return dataclasses.replace(self, name=name, spec=_derived(self.spec, spec), **changes)

    @property
    def settings(self) -> type:
        """The class of its settings."""
        return type(self.spec)

    def settings_for(self, settings: "Spec", kind: "Kind") -> "Spec":
        """The settings of a model that answers a kind of task (`answers.Kind`)."""
        changes = {} if self.for_kind is None else self.for_kind(settings, kind)
        return _derived(settings, changes) if changes else settings

    @property
    def reads_tree(self) -> bool:
        """Whether it reads sentence trees, of a tokenizer with a knowledge graph."""
        return any(each.filled_by == "tree" for each in self.inputs)

    @property
    def has_blocks(self) -> bool:
        """Whether its encoders are blocks of attention and feed-forward."""
        if self.has is None:
            return hasattr(self.spec, "blocks") and self.one_stack
        return "blocks" in self.has

    @property
    def one_stack(self) -> bool:
        """Whether it has one stack, which gives vectors of the text that it reads."""
        return self.kind != "seq2seq"

    def needs_one_stack(self, purpose: str) -> None:
        """Refuse an encoder-decoder.

        Args:
            purpose: str, what is not here for it yet.

        Raises:
            InputError: it has two stacks.
        """
        if not self.one_stack:
            raise InputError(f"{self.name} is an encoder-decoder (seq2seq): {purpose}")

    def text_inputs(self, purpose: str) -> tuple[Input, ...]:
        """What the network reads of a text, to give its tokens' vectors.

        Args:
            purpose: str, what is not here for a family that gives none.

        Raises:
            InputError: an encoder-decoder that gives none.
        """
        if self.of_text is None:
            self.needs_one_stack(purpose)
        return self.of_text or self.inputs

    def objective_or(self, name: str | None) -> str:
        """The pretraining objective of that name, or its own.

        Raises:
            InputError: it has none.
        """
        if not (name or self.objective):
            raise InputError(f"{self.name} has no pretraining objective of its own: name one (--objective)")
        return name or self.objective

    def needs_blocks(self, purpose: str) -> None:
        """Refuse a family that is no stack of blocks.

        Args:
            purpose: str, what cannot be done then.

        Raises:
            InputError: it has none.
        """
        if not self.has_blocks:
            raise InputError(f"{self.name} has no blocks: {purpose}")

    def size(self, name: str) -> "Spec":
        """The Spec of one size, or an error that names the nearest."""
        known = self.aliases.get(name, name)
        if known not in self.sizes:
            every = [f"{self.name}/{size}" for size in (*self.sizes, *self.aliases)]
            raise unknown("model", f"{self.name}/{name}", every, "kerasbert list models")
        return _derived(self.spec, self.sizes[known])
