"""Formats: how others write down a model, by name.

A format finds out whether a path is of its kind (`looks_like`), says what an import of it would do (`plan`) and writes a model
directory in its form (`write`). One whose tensors are renamed one by one is a `checkpoints.fit.NamedFormat`: it opens a path
(configuration, tensors, tokenizer, task), and a `Dialect` says what the weights and settings of a family are called there.
"""

import dataclasses
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kerasbert import progress
from kerasbert.checkpoints.pieces import tokenizer_in
from kerasbert.checkpoints.plans import Plan
from kerasbert.checkpoints.readers import Reader
from kerasbert.errors import InputError, check_known
from kerasbert.family import Family
from kerasbert.inputs import listed
from kerasbert.options import option
from kerasbert.registry import FORMATS
from kerasbert.spec import Spec
from kerasbert.storage.json_view import Json, JsonView
from kerasbert.text.added import finding_specials

if TYPE_CHECKING:
    import numpy as np

    from kerasbert.text.base import Tokenizer


NO_TOKENIZER = "none"  # what a user says for a model without one


@dataclasses.dataclass(frozen=True)
class ImportOptions:
    """What a user asks of an import beside the checkpoint; `import_checkpoint` takes the fields as keyword arguments."""

    model: str | None = option(
        None,
        "`family` or `family/size`",
        python="By default the family is the configuration's `model_type`. A size must agree with the configuration and stands "
        "in for one that is absent. Of a directory of ours, or word vectors, a model of another family is made: `taglm/ner` of "
        "an ELMo's",
    )
    tokenizer: str | os.PathLike | None = option(
        None, 'path of a tokenizer where the checkpoint\'s folder has none; "none" for a model without one'
    )
    ignore: Sequence[str] = option((), "shell patterns of tensors to drop")
    allow_pickle: bool = option(False, "whether a torch pickle may be read")
    pair: bool | None = option(
        None,
        "whether the checkpoint's classifier reads two texts (entailment, paraphrases, cross-encoders)",
        python="Nothing in a checkpoint of others tells; one that kerasbert exported does, and None takes its word",
    )
    revision: str | None = option(
        None,
        "branch, tag or commit of a name on the hub",
        python="The hash of its commit is recorded in model.json (`source`)",
    )
    graph: Any = option(
        None,
        "a .spo file, or a `text.knowledge.KnowledgeGraph`: a checkpoint of BERT's is read as K-BERT, which keeps it",
    )
    special_tokens_in_texts: bool = option(
        False,
        "whether special tokens such as [SEP] are found within texts too, as by transformers, and not read as other text",
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "ignore", tuple(listed(self.ignore)))

    def given(self) -> list[str]:
        """Names of the options that a user gave, without the model's."""
        usual = type(self)()
        return [
            field.name
            for field in dataclasses.fields(self)
            if field.name != "model" and getattr(self, field.name) not in (getattr(usual, field.name), False)
        ]

    @property
    def without_tokenizer(self) -> bool:
        """Whether a model without a tokenizer is asked for."""
        return self.tokenizer is not None and os.fspath(self.tokenizer) == NO_TOKENIZER

    def tokenizer_for(self, spec: Spec, folder: Path) -> "Tokenizer | None":
        """The tokenizer that was asked for, else the folder's; None where there is none."""
        if self.without_tokenizer:
            return None
        found = tokenizer_in(Path(self.tokenizer) if self.tokenizer else folder, spec, required=bool(self.tokenizer))
        return finding_specials(found) if found is not None and self.special_tokens_in_texts else found


@dataclasses.dataclass
class Answers:
    """What the heads of a checkpoint answer.

    Args:
        task: json of the task of its classifier; None for an encoder and for heads of pretraining.
        vector: json of the task of its vectors; None where it says none.
        told: lines that a user should read.
        heads: weights of heads that lie in files of their own: head -> {weight: float32 array}.
    """

    task: Json | None
    vector: Json | None = None
    told: list[str] = dataclasses.field(default_factory=list)
    heads: "dict[str, dict[str, np.ndarray]]" = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Opened:
    """A checkpoint of others, opened.

    Args:
        path: what was opened, for errors.
        folder: where its configuration and its tokenizer lie.
        tensors: its Reader.
        config: its configuration; None where it has none.
        origin: {"hub", "revision"} of a name on the hub, or None.
    """

    path: Path
    folder: Path
    tensors: Reader
    config: JsonView | None
    origin: dict[str, str] | None = None

    @property
    def model_type(self) -> str:
        """What the configuration calls the family."""
        return str((self.config or {}).get("model_type", "bert"))

    def tokenizer(self, spec: Spec, asked: ImportOptions) -> "Tokenizer | None":
        """The tokenizer of a model of these settings; None where there is none."""
        return asked.tokenizer_for(spec, self.folder)

    def answers(self, task: Json | None, classes: int, spec: Spec, asked: ImportOptions) -> Answers:
        """What the heads answer.

        Args:
            task: json of the task as the configuration alone says it; None without a head of one.
            classes: int, outputs of the classifier.
        """
        return Answers(task)

    def generation(self, pieces: "Tokenizer | None", family: Family) -> tuple[Json, list[str]]:
        """How it writes (`generation_config.read`), and lines that a user should read."""
        return {}, []

    def leave(self) -> None:
        """Note what nobody read of files beside the configuration (`storage.unused`)."""


class Format(ABC):
    """How others write down a model. A subclass is registered by `registry.register_format(NAME, SUBCLASS())`.

    Attributes:
        reads: the options of an import that it reads; others are refused.
        title: what it is called in errors.
    """

    reads: tuple[str, ...] = ("tokenizer", "ignore", "allow_pickle", "pair", "graph", "special_tokens_in_texts")
    title = "a checkpoint"

    def check(self, asked: ImportOptions, path: Path) -> None:
        """Refuse options that it does not read.

        Raises:
            InputError: their names.
        """
        extra = [name for name in asked.given() if name not in self.reads]
        if extra:
            raise InputError(f"{path} is {self.title}, of which no {' and no '.join(extra)} is read: leave that out")

    @abstractmethod
    def looks_like(self, path: Path) -> bool:
        """Whether a path is of this format, by the names of its files; nothing large is read."""
        ...

    @abstractmethod
    def plan(self, path: Path, asked: ImportOptions) -> Plan:
        """What an import would do; everything is checked, nothing allocated.

        Raises:
            InputError: of one line.
        """
        ...

    def write(self, run: Path, path: str | os.PathLike, overwrite: bool) -> None:
        """Write a model directory in this format; the folder appears whole or not at all.

        Raises:
            InputError: it cannot be written, or has no place for something of the model.
        """
        raise InputError(f"{self.title} is read here and not written: {', '.join(written())} are")

    @property
    def writes(self) -> bool:
        """Whether it is written too."""
        return type(self).write is not Format.write


def check_format(name: str, format: Format) -> None:
    """The rules of FORMATS: a Format, and the options that it reads exist.

    Raises:
        InputError: of one line.
    """
    if not isinstance(format, Format):
        raise InputError(
            f"the checkpoint format {name!r} is {format!r:.80}, expected an instance of a subclass of Format"
        )
    known = [field.name for field in dataclasses.fields(ImportOptions)]
    for each in format.reads:
        check_known(FORMATS.kind, name, "option of an import", each, known)


def written() -> list[str]:
    """Names of the formats that are written."""
    return [name for name, each in FORMATS.items() if each.writes]


def find(path: Path, source: str | None) -> Format:
    """The format of a path.

    Args:
        path: of a checkpoint.
        source: the name of a format, of which a more special one that the path looks like is taken (sentence_transformers of
            hf); None for the first that it looks like, which is told where it looks like others too.

    Raises:
        InputError: no format of that name.
    """
    if source is None:
        like = {name: each for name, each in FORMATS.items() if each.looks_like(path)}
        taken = next(iter(like.values()), FORMATS["hf"])
        if others := [name for name, each in like.items() if not isinstance(taken, type(each))]:
            progress.say(f"{path} is read as {next(iter(like))}; it looks like {', '.join(others)} too (--from)")
        return taken
    named = FORMATS.find(source)
    special = [each for each in FORMATS.values() if isinstance(each, type(named)) and each is not named]
    return next((each for each in special if each.looks_like(path)), named)
