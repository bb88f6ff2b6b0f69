"""A text as a vector, and the nearest of some texts by their vectors."""

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from kerasbert.answers.base import Answer, Kind, Outputs, Parts, truncated_json
from kerasbert.blanks import blank
from kerasbert.errors import InputError, unknown
from kerasbert.inputs import Row, texts_of
from kerasbert.options import checked
from kerasbert.poolings import readouts_of
from kerasbert.storage.json_view import Json, JsonMap
from kerasbert.value_types import check_whole

if TYPE_CHECKING:
    from kerasbert.text.base import Tokenizer


QUERY, DOCUMENT = ("query",), ("document", "passage", "corpus")
"""Names that the prompts of sentence-transformers' models have (its `encode_query` and `encode_document`)."""
RANKED = ("ranking", "triplet", "margin_mse", "kl")  # losses of rows that have negatives
NEGATIVE = re.compile(r"(hard_)?neg(ative)?s?(_?\d+)?")  # columns of them; FlagEmbedding's are called neg


CHARACTERS = 2**24  # of a block of texts


def blocks(passages: Iterable[tuple[str, ...]], most: int) -> Iterator[list[tuple[str, ...]]]:
    """Lists of at most `most` passages, each a tuple whose last is its text, and of about CHARACTERS: long texts fit into memory.

    >>> [len(block) for block in blocks([("a",)] * 5, 2)]
    [2, 2, 1]
    """
    block, size = list[tuple[str, ...]](), 0
    for passage in passages:
        block.append(passage)
        size += len(passage[-1])
        if len(block) == most or size >= CHARACTERS:
            yield block
            block, size = [], 0
    if block:
        yield block


@dataclasses.dataclass(frozen=True)
class Vector(Answer):
    """A text as a vector. `truncated` as of a Classification."""

    values: Sequence[float]
    truncated: bool = False

    def to_json(self) -> dict:
        """A plain dict."""
        return {"values": [float(value) for value in self.values], **truncated_json(self)}


class VectorKind(Kind):
    """A vector [H] of a text: its tokens' mean, or what else `pooling` says.

    Options: `pooling`, one of `poolings` or some with + between them; `dense`, the layers behind it, each {"width",
    "activation" ("" for none), "bias"}; `normalize`, to length 1; `dimensions`, how many of the first numbers a vector has, 0 for
    all (sentence-transformers' truncate_dim); `prompts`, texts by name, and `prompt_name`, of the one that is put before each
    text, or "" for none; `include_prompt`, whether its tokens are pooled; `prompt_tokens`, of prompts that are not, how many
    tokens of a row they are, by name; `loss`, what it is fine-tuned by on rows of two or more texts (see
    tasks.vector_losses), with `scale`, `margin`, `dims`, `depths` and `highest` of these losses. Where it has a loss each text
    is a row; without one the two of a pair are one row, as an encoder reads them.
    """

    name = "vector"
    output = "vector"
    agrees_by = "cosine"
    noise = 5.0  # of hundreds of numbers, which a cosine takes together
    columns = ("values",)
    named = False
    learned = ("loss", "scale", "margin", "dims", "depths", "highest")
    defaults = MappingProxyType(
        {
            "pooling": "mean",
            "dense": (),
            "normalize": False,
            "dimensions": 0,
            "prompts": {},
            "prompt_name": "",
            "include_prompt": True,
            "prompt_tokens": {},
            "loss": "",
            "scale": 0.0,
            "margin": 0.0,
            "dims": (),
            "depths": (),
            "highest": 1.0,
        }
    )

    def configured(self, options: JsonMap | None) -> Self:
        kind = super().configured(options)
        name, prompts = kind.options["prompt_name"], kind.options["prompts"]
        if not all(isinstance(text, str) for text in prompts.values()):
            raise InputError(
                f"prompts must be texts by name, such as {{'query': 'query: '}}. Received: {prompts!r:.60}"
            )
        if name and name not in prompts:
            known = ", ".join(prompts) or "none"
            raise unknown(
                "prompt", name, list(prompts), f"{known}; without one (prompt_name empty) texts are read as they are"
            )
        if name and not kind.options["include_prompt"] and name not in kind.options["prompt_tokens"]:
            raise InputError(
                f"the prompt {name!r} is to be left out of the pooling (include_prompt false), and prompt_tokens does not say "
                "how many tokens it is: leave prompt_name out"
            )
        readouts_of(kind.options["pooling"])
        for layer in kind.options["dense"]:
            check_dense(layer)
        if kind.options["dimensions"] < 0:
            raise InputError(f"dimensions must be at least 0. Received: {kind.options['dimensions']}")
        for name in ("scale", "margin"):
            if not kind.options[name] >= 0:
                raise InputError(f"{name} must be more than 0. Received: {kind.options[name]}")
        for name, such in (("dims", "384,128,64"), ("depths", "4,2")):
            given = list(kind.options[name])
            if not all(type(each) is int and each > 0 for each in given) or len(set(given)) < len(given):
                raise InputError(f"{name} must be different whole numbers above 0, such as {such}. Received: {given}")
        return kind

    @property
    def prompt(self) -> str:
        """The text that is put before each text."""
        name = self.options["prompt_name"]
        return self.options["prompts"][name] if name else ""

    @property
    def begin(self) -> int:
        """Where pooling begins: how many tokens of a row, the first ones, are left out."""
        options = self.options
        return 0 if options["include_prompt"] else options["prompt_tokens"].get(options["prompt_name"], 0)

    @property
    def carried(self) -> Json:
        name, prompts = self.options["prompt_name"], self.options["prompts"]
        if not self.options["include_prompt"]:  # where pooling begins stands in the network
            prompts = {name: self.prompt} if self.prompt else {}
        return {"prompts": dict(prompts), "prompt_name": name} if prompts else {}

    def with_prompt(self, name: str | None) -> Self:
        return self if name is None else self.configured({"prompt_name": name})

    def prompt_among(self, names: Sequence[str]) -> str | None:
        """The first of some names that is one of its prompts; None without one."""
        return next((name for name in names if name in self.options["prompts"]), None)

    @property
    def lists(self) -> tuple[int, ...]:
        return (1,) if self.options["loss"] else ()

    @property
    def asked(self) -> int | None:
        return 1 if self.options["loss"] else None

    def spread(self, names: Sequence[str], row: Json) -> list[Json]:
        """A row for each positive; what is to be ranked below them stands in columns of its own."""
        texts = row.get(names[-1])
        if (
            self.options["loss"] not in RANKED
            or len(names) < 2
            or not isinstance(texts, list | tuple)
            or len(texts) < 2
        ):
            return [row]
        return [{**row, names[1]: text} for text in texts]

    def joined(self, names: Sequence[str], row: Json, label: str = "") -> Json:
        """A row whose second part is the positive and what the columns `negative`, `negatives`, `negative_1`, ... hold."""
        if self.options["loss"] not in RANKED:
            return row
        columns = sorted((name for name in row if NEGATIVE.fullmatch(name)), key=lambda name: (len(name), name))
        texts = [text for name in columns for text in _texts(row[name])]
        return {**row, names[1]: [*_texts(row[names[1]]), *texts]} if texts else row

    def rows(self, tokenizer: "Tokenizer", parts: Parts, length: int) -> list[Row]:
        if not self.options["loss"] or len(parts) == 1:
            return super().rows(tokenizer, (self._prompted(parts[0]), *parts[1:]), length)
        texts = [text for part in parts for text in (part if isinstance(part, tuple) else (part,))]
        rows = [super(VectorKind, self).rows(tokenizer, (self._prompted(text),), length)[0] for text in texts]
        return [dataclasses.replace(row, about=number) for number, row in enumerate(rows)]

    def _prompted(self, text: Any) -> Any:
        prompt = self.prompt
        return text if not prompt else prompt.encode() + text if isinstance(text, bytes) else prompt + text

    def decode(self, parts: Parts, rows: Sequence[Row], outputs: Outputs, labels: Sequence[str]) -> Vector:
        return Vector([float(value) for value in outputs[0]], rows[0].truncated)

    def compare(self, queries: Outputs, texts: Outputs) -> np.ndarray:
        """How near outputs of texts are to those of queries, the larger the nearer: float64 [queries, texts], here cosines."""
        vectors = [np.asarray(each, "float64") for each in (queries, texts)]
        units = [each / np.maximum(np.linalg.norm(each, axis=-1, keepdims=True), 1e-12) for each in vectors]
        return units[0] @ units[1].T

    def agreement(
        self,
        expected: Outputs,
        received: Outputs,
        owners: np.ndarray | None = None,
        rows: Sequence[Row] = (),
        ties: bool = False,
    ) -> float:
        one, other = np.stack(list(expected)), np.stack(list(received))
        if not np.isfinite(other).all():
            return 0.0
        return float(cosines(one, other).mean())

    def line(self, answer: Json, text: str) -> str:
        return "\t".join(f"{value:.6g}" for value in answer["values"])


def prompt_tokens(tokenizer: "Tokenizer", prompts: Mapping[str, str]) -> dict[str, int]:
    """How many tokens of a row the prompts are, by name, with what a row begins with: the option `prompt_tokens`."""
    found = {}
    for name, text in prompts.items():
        ids, specials = tokenizer.pack(text)[0], tokenizer.specials.values()
        found[name] = len(ids) - (ids[-1] in {tokenizer._ids.get(piece) for piece in specials})
    return found


def dense_names(options: JsonMap) -> list[str]:
    """Names of the heads that the layers of `dense` are: their weights are `heads/dense_1/...`."""
    return [f"dense_{number}" for number in range(1, len(options.get("dense", ())) + 1)]


def width_of(options: JsonMap, hidden: int) -> int:
    """Numbers of a vector of these options, of an encoder of H = `hidden`, before `dimensions` are taken.

    >>> width_of({"pooling": "mean+max", "dense": []}, 4), width_of({"pooling": "mean", "dense": [{"width": 3}]}, 4)
    (8, 3)
    """
    dense = options["dense"]
    return dense[-1]["width"] if dense else hidden * len(readouts_of(options["pooling"]))


def check_width(options: JsonMap, width: int) -> None:
    """Refuse `dims` and `dimensions` that are more than the numbers of a vector."""
    check_size("dims", options["dims"], width)
    check_size("dimensions", [options["dimensions"]], width)


def check_size(name: str, sizes: Sequence[int], width: int) -> None:
    """Refuse sizes, of the option `name`, that are more than the numbers of a vector."""
    if max(sizes, default=0) > width:
        told = ", ".join(map(str, sizes))
        raise InputError(f"{name} is {told}, and a vector of this model has {width} numbers: lower {name}")


def check_depths(options: JsonMap, layers: int) -> None:
    """Refuse `depths` that are no layers below the last one of a model of so many."""
    if max(options["depths"], default=0) >= layers:
        raise InputError(
            f"depths are {', '.join(map(str, options['depths']))}, expected layers below the last of {layers}, which is trained "
            "anyway: lower --depths"
        )


def check_dense(layer: object) -> None:
    """Refuse what is no layer of `dense`; which activations there are is known where Keras is.

    Raises:
        InputError: of one line.
    """
    wanted = {"width": int, "activation": str, "bias": bool}
    fits = isinstance(layer, Mapping) and {key: type(value) for key, value in layer.items()} == wanted
    if not (isinstance(layer, Mapping) and fits and layer["width"] >= 1):
        raise InputError(
            f"dense has {layer!r:.80}, expected such as {{'width': 512, 'activation': 'tanh', 'bias': True}}"
        )


def _texts(value: object) -> list[object]:
    """A text or several as a list, without empty ones."""
    return [each for each in (value if isinstance(value, list | tuple) else [value]) if each]


def cosines(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Cosines of the angles between vectors: [..., H], [..., H] -> [...]; 0 of a vector of length 0."""
    norms = np.linalg.norm(one, axis=-1) * np.linalg.norm(other, axis=-1)
    return (one * other).sum(-1) / np.maximum(norms, 1e-12)


def quantized(vectors: np.ndarray) -> np.ndarray:
    """float32 [..., H] -> int8 [..., H]: over the largest number of each, half to even; zeros stay."""
    largest = np.abs(vectors).max(axis=-1, keepdims=True, initial=0.0)
    return np.rint(vectors / np.where(largest > 0, largest, 1) * np.float32(127)).astype(np.int8)


KIND = VectorKind()


def query_vector(runner: Any, text: object, k: int, prompt_name: str | None) -> np.ndarray:
    """The vector [H] of a query for `k` hits, after the prompt for queries where another is not named.

    Raises:
        InputError: k is no whole number of at least 1, a text that holds nothing to read, or no such prompt.
    """
    check_whole("k", k)
    if isinstance(text, str | bytes) and blank(text):
        raise InputError(f"the query holds nothing to read. Received: {text!r:.60}")
    name = runner.kind.prompt_among(QUERY) if prompt_name is None else prompt_name
    return runner.outputs([text], prompt_name=name)[0]


class Hit(NamedTuple):
    """A text that was found: its number among the texts, itself, its cosine with the query, and its own name if it has one."""

    index: int
    text: Any
    score: float
    id: str = ""


class Index:
    """Texts with their vectors, made once: 4 H bytes a text (1.5 kB of MiniLM).

    Where the file has prompts called "document" or "passage" and "query", texts get the one and queries the other.

    Args:
        runner: Runner of a file that answers with vectors.
        texts: list of what the runner takes.
        vectors: float32 [texts, H], where they are known already, such as `index.vectors` of an earlier launch.

    Attributes:
        texts: tuple. vectors: float32 [texts, H].

    Raises:
        InputError: the file gives no vectors, no texts, vectors of another shape.
    """

    @checked
    def __init__(self, runner: Any, texts: Sequence[object], vectors: np.ndarray | None = None) -> None:
        if getattr(runner, "kind", None) is None:
            raise InputError(f"runner is a {type(runner).__name__}, expected what load(FILE) gives")
        if runner.kind.name != "vector":
            raise InputError(f"{runner.path} answers with a {runner.kind.name}, expected vectors: nearest needs them")
        self.runner, self.texts = runner, tuple(texts_of(texts))
        if not self.texts:
            raise InputError("texts is empty, expected at least one text")
        if vectors is None:
            vectors = runner.outputs(self.texts, prompt_name=runner.kind.prompt_among(DOCUMENT))
        try:
            given = np.asarray(vectors, np.float32)
        except (TypeError, ValueError) as error:
            raise InputError(f"vectors are no numbers, expected [{len(self.texts)}, H]: {error}") from error
        if not np.isfinite(given).all():
            raise InputError("vectors have a number that is not finite: encode the texts again")
        if given.ndim != 2 or len(given) != len(self.texts):
            raise InputError(
                f"vectors have the shape {given.shape}, expected ({len(self.texts)}, H): one for each of the texts"
            )
        self.vectors = given

    def __len__(self) -> int:
        return len(self.texts)

    @checked
    def nearest(self, text: object, k: int = 5, prompt_name: str | None = None) -> list[Hit]:
        """The k texts whose vectors have the largest cosine with that of a text, largest first; equals in their order.

        Args:
            prompt_name: str, of another prompt before the text than "query"; "" for none.

        Raises:
            InputError: k is no whole number of at least 1, no such prompt, or the vectors are of another model.
        """
        query = query_vector(self.runner, text, k, prompt_name)
        if len(query) != self.vectors.shape[1]:
            raise InputError(
                f"vectors have {self.vectors.shape[1]} numbers, the file's {len(query)}: make them by this file"
            )
        scores = cosines(self.vectors.astype("float64"), query.astype("float64"))
        best = np.argsort(-scores, kind="stable")[:k]
        return [Hit(int(i), self.texts[int(i)], float(scores[i])) for i in best]
