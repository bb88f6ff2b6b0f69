"""The phone side: text in, answers out, with numpy and an interpreter and nothing else.

>>> from kerasbert.mobile.runtime import load
>>> load("sst2.tflite")(["a gripping film"])[0].label  # doctest: +SKIP
'positive'
"""

import bisect
import contextlib
import functools
import importlib
import os
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Self

import numpy as np

from kerasbert import answers, inputs, truncation
from kerasbert.answers.base import Kind, Parts, with_triples
from kerasbert.errors import InputError, TextError, of_text
from kerasbert.export import bundle as bundles
from kerasbert.inputs import Row
from kerasbert.options import checked
from kerasbert.progress import counted
from kerasbert.storage import overwritten
from kerasbert.text import load_tokenizer
from kerasbert.text.base import KNOWLEDGE
from . import asked
from .interpreters import Compiled, Plain, interpreter, one_line
from .native import quicken
from .opening import opened, tokenizing
from .system import cache as caches
from .system import delegates, forks
from .system.sources import located
from .writing import Writer

if TYPE_CHECKING:
    from kerasbert.answers.generation import Generation
    from kerasbert.answers.vector import Index
    from .stored_index import StoredIndex
    from .writing.stream import Score, Stream

__all__ = ["Index", "Runner", "StoredIndex", "load"]


def __getattr__(name: str) -> Any:
    """`Index` and `StoredIndex`, which few files need."""
    homes = {"Index": "kerasbert.answers.vector", "StoredIndex": f"{__name__}.stored_index"}
    if name not in homes:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(homes[name]), name)


WINDOWS = 1024  # of one document, by default
BLOCK = 1024  # texts of a call whose rows are held at once


class Trace(NamedTuple):
    """What becomes of one text: the ids of each of its rows, the outputs of each, the answer."""

    ids: list[list[int]]
    outputs: list[np.ndarray]
    answer: Any


@checked
def load(
    path: str | os.PathLike | bytes | bytearray | memoryview | int,
    cache: str | os.PathLike | bool | None = None,
    threads: int = 1,
    *,
    plugin: str | os.PathLike | Sequence[str | os.PathLike] = (),
    windows: int = WINDOWS,
    delegate: str = delegates.XNNPACK,
) -> "Runner":
    """Open a .tflite file that `kerasbert-mobile compress` wrote.

    Args:
        path: the file; or its bytes, or the descriptor of an open file, as an app gets its assets.
        cache: folder for packed weights (11 MB for MiniLM), which make the next launch faster and smaller; the eight
            used last are kept in it. None: $XDG_CACHE_HOME/kerasbert or ~/.cache/kerasbert. False: nothing is written.
            Where there is no home, no room or no Linux, the weights are packed at every launch.
        threads: int, of the interpreter; at most `asked.THREADS`.
        plugin: a plug-in's file, or several, which are run: what brings the file's kind of answer or a maker of its inputs. It
            must be the one that the file was made with, by its sha256.
        windows: int, rows that one document may take, of spans and tags; a longer one is refused before anything runs.
        delegate: str, what computes: "xnnpack", "gpu", "npu", or a TFLite delegate's file (`system.delegates`).
    Raises:
        InputError: no such file, not ours, damaged, of a plug-in that is not given or is another, or no interpreter is
            installed that computes it rightly.
    """
    asked.check(threads, windows, cache, plugin, delegate)
    path, give_back = located(path)
    try:
        bundle = opened(path, [plugin] if isinstance(plugin, str | os.PathLike) else list(plugin))
        folder = None if cache is False else caches.default_directory() if cache in (None, True) else Path(cache)
        model = interpreter(path, bundle, threads, folder, bundle.digest, delegate)
        runner = Runner(bundle, model, path, windows)
    except BaseException:
        give_back()
        raise
    runner.finalizer = weakref.finalize(runner, give_back)
    return runner


class Runner:
    """Call it on a list of texts (or of pairs of texts): one answer each, the objects of `kb.predict`.

    Each text runs alone, at its own length where the file takes any length, else in the shortest bucket that holds it;
    memory is taken when a length is first used. A text longer than the longest bucket loses its end, and its answer is
    `.truncated`; spans and tags read it in windows instead.
    Threads may share a Runner; they take turns. `with load(FILE) as runner:` gives the memory back at its end, as `close` does.

    Attributes:
        bundle: Bundle; kind: answers.Kind; labels: tuple of str; lengths: tuple of int, the buckets in tokens, or the
            longest; tokenizer; native: bool, whether the portable core tokenizes (`runtime.native`).
    """

    def __init__(self, bundle: bundles.Bundle, model: Compiled | Plain, path: Path, windows: int = WINDOWS) -> None:
        self.bundle, self.windows = bundle, windows
        self.finalizer: Callable[[], object] | None = None
        self.model: Compiled | Plain | None = model
        self.path, self.mapped = path, overwritten.Mapped(path, lambda: bundles.digest(path) == bundle.digest)
        self.kind = answers.find(bundle.kind).configured(bundle.options)
        with tokenizing(path):
            self.tokenizer = load_tokenizer(bundle.tokenizer)
        self.native = quicken(self.tokenizer, bundle.tokenizer)
        if self.tokenizer.knowledge is None and any(each.filled_by == "tree" for each in bundle.inputs):
            raise InputError(f"{path} reads sentence trees and carries no graph ({KNOWLEDGE}). Write the file again")
        self.labels, self.lengths = bundle.labels, bundle.lengths
        self._reads = tuple(each.declared() for each in bundle.inputs)
        self._names = {each.name: each.signature for each in bundle.inputs if each.name != each.signature}
        self._width = self.kind.width(bundle.labels)
        self._usual = self._numbers({})
        self._turn = forks.lock()
        self.writer = None if bundle.answering else Writer(bundle, model.programs, self.kind, self.tokenizer)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise InputError(f"a Runner is neither pickled nor copied: load {self.path} in each process")

    def close(self) -> None:
        """Give the model's memory back; a call after it is refused."""
        with self._turn:
            self.writer = None  # which holds the network too
            if self.model is not None:
                self.model.close()
            self.model = None
        if self.finalizer is not None:
            self.finalizer()

    @checked
    def __call__(
        self,
        texts: Sequence[object],
        *,
        language: str | None = None,
        top: int | None = None,
        threshold: float | None = None,
        options: Mapping[str, object] | None = None,
        prompt_name: str | None = None,
    ) -> list[Any]:
        """Texts -> answers: the objects of `kb.predict`, one per text.

        Args:
            texts: str, pairs, or tuples or dicts of the parts that the kind reads, such as (question, context).
            language: str, of the texts, for a model that reads it (XLM); that of the task's training by default.
            top: int, how many labels, spans or tokens an answer tells, best first. threshold: float, probability that each
                has at least. See `answers.Kind.limited`; a kind that ranks nothing refuses both.
            options: of texts that are generated, over those of the file: beams, temperature, top_k, top_p, seed, max_tokens
                and the others of `answers.generation.GenerationKind`, but target_length and those of training alone.
            prompt_name: str, of the prompt before each text, of those of a file of vectors; "" for none.
        """
        kind, settings, parts = (
            self._asked(options),
            self._settings(language),
            asked.parts(self.bundle, self.kind, texts),
        )
        kind = kind.with_prompt(prompt_name)
        limits, found = top is not None or threshold is not None, []
        kind = kind.ranking(top, threshold) if limits else kind
        for begin in range(0, len(parts), BLOCK):  # a block of rows at a time, however many texts there are
            found += self._answers(kind, parts[begin : begin + BLOCK], settings, begin)
        return [kind.limited(answer, top, threshold) for answer in found] if limits else found

    @checked
    def generate(self, text: object, *, language: str | None = None, **options: object) -> "Generation":
        """The answer of one text of a file that generates: `runner.generate("the cat", beams=4)`. `options`: as of a call."""
        self._asked(options, True)
        return self([text], language=language, options=options)[0]

    @checked
    def stream(self, text: object, *, language: str | None = None, **options: object) -> "Stream":
        """The same, its text in pieces as its tokens come: `for piece in runner.stream("the cat")`.

        Whoever leaves the loop ends the text. Threads, and several streams, take turns token by token.

        Raises:
            InputError: as a call; beams, or several texts, of which none is known before the last token.
        """
        from .writing.stream import Stream  # here: few files generate

        kind = self._asked(options, True)
        ((row,),) = self._pack(kind, asked.parts(self.bundle, self.kind, [text]))
        length, arrays = self._arrays(row, self._settings(language))
        return Stream(self._writer().grow(row, arrays, length, kind), row, self._running)

    @checked
    def score(self, text: str | bytes) -> "Score":
        """How probable a text is: `.log_probabilities` of its tokens, `.score`, `.perplexity`; a step a token.

        Raises:
            InputError: the file is not of a decoder alone (GPT, GPT-2), or the text has fewer than two tokens.
        """
        from .writing.stream import scored

        if not self.bundle.of("prefill") or getattr(self.kind, "masked", False):
            raise InputError(f"{self.path} scores no texts, expected a file of a decoder alone, such as GPT-2")
        if not isinstance(text, str | bytes):
            raise InputError(f"text is a {type(text).__name__}, expected one text")
        whole, most = self.tokenizer.encode(text), self.bundle.longest
        if len(whole) < 2:
            raise InputError(f"a text has {len(whole)} tokens, expected at least two. Received: {text!r:.60}")
        first = inputs.row(whole[:1], [0])
        length, arrays = self._arrays(first, self._usual)
        with self._running():
            logits = self._writer().follow(first, arrays, length, whole[1:most])
            return scored(self.tokenizer, whole[:most], logits, len(whole) > most)

    def _asked(self, options: Mapping[str, object] | None, generates: bool = False) -> Kind:
        """The kind with the options of a call, which a file that generates alone has."""
        if self.bundle.answering and (options or generates):
            said = f"{next(iter(options))} is given, and " if options else ""
            raise InputError(f"{said}{self.path} answers with a {self.kind.name}: it generates no texts")
        return self._writer().asked(options) if options else self.kind

    def _answers(self, kind: Kind, parts: Sequence[Parts], settings: dict[str, int], begin: int) -> list[Any]:
        """The answers of a call's texts from `begin` on."""
        if type(kind).answer is not answers.Kind.answer:  # it runs the model more than once
            run, longest = functools.partial(self._row, settings=settings), self.bundle.longest
            self._pack(kind, parts, begin)  # a mistake in a text is told before anything runs
            return [kind.answer(run, self.tokenizer, each, longest, self.labels) for each in parts]
        packed = self._pack(kind, parts, begin)
        outputs = iter(self._rows([row for rows in packed for row in rows], settings, begin, kind))
        found = [
            kind.decode(each, rows, [next(outputs) for _ in rows], self.labels) for each, rows in zip(parts, packed)
        ]
        return [with_triples(each, rows, self.tokenizer) for each, rows in zip(found, packed)]

    @checked
    def trace(self, text: object, *, language: str | None = None) -> Trace:
        """One text and all that becomes of it, for a comparison of devices (`mobile.golden`)."""
        settings, rows = self._settings(language), self.rows(text)
        outputs = [] if type(self.kind).answer is not answers.Kind.answer else self._rows(rows, settings)
        return Trace([list(map(int, row.token_ids)) for row in rows], outputs, self([text], language=language)[0])

    @checked
    def rows(self, text: object) -> list[Row]:
        """What the network reads of one text."""
        return self._pack(self.kind, asked.parts(self.bundle, self.kind, [text]))[0]

    @checked
    def timed(self, text: object) -> list[tuple[int, float]]:
        """The bucket of each row of a text, and the ms that the network took for it."""
        times = []
        for row in self.rows(text):
            begin = time.perf_counter()
            self._row(row)
            times.append((self._bucket(row.length), (time.perf_counter() - begin) * 1e3))
        return times

    @checked
    def index(self, texts: Sequence[object], vectors: np.ndarray | None = None) -> "Index":
        """Texts among which `Index.nearest` finds those that are nearest to another; see `Index`."""
        from kerasbert.answers.vector import Index

        return Index(self, texts, vectors)

    @checked
    def outputs(
        self, texts: Sequence[object], *, language: str | None = None, prompt_name: str | None = None
    ) -> np.ndarray | list[np.ndarray]:
        """Texts -> float32 [rows, C]: probabilities, values or vectors; a list of [S, C] where tokens are answered."""
        packed = self._pack(self.kind.with_prompt(prompt_name), asked.parts(self.bundle, self.kind, texts))
        rows = [row for rows in packed for row in rows]
        truncation.count_truncated(sum(row.truncated for row in rows), len(packed), self.bundle.longest)
        found = self._rows(rows, self._settings(language))
        if self.kind.per_token:
            return found
        return np.stack(found) if found else np.zeros((0, self.kind.width(self.labels) or 1), np.float32)

    @checked
    def triples(self, text: object) -> list[tuple[str, str, str]]:
        """What the file's knowledge graph adds to a text (or a pair), each triple once; none without a graph."""
        return inputs.triples_of(self.rows(text))

    def run(self, token_ids: Sequence[int], segment_ids: Sequence[int]) -> np.ndarray:
        """Ids of one packed text, at most `lengths[-1]` -> float32 [C], or [S, C] of its tokens."""
        asked.check_ids(token_ids, segment_ids, self.bundle.longest)
        return self._row(inputs.row(token_ids, segment_ids))

    def follow(self, row: Row, ids: Sequence[int]) -> np.ndarray:
        """Of a file that writes the logits in front of each of some ids, written for a row one after the other: [T, V]."""
        length, arrays = self._arrays(row, self._usual)
        with self._running():
            return np.stack(list(self._writer().follow(row, arrays, length, ids)))

    @contextlib.contextmanager
    def _running(self) -> Iterator[Compiled | Plain]:
        """What runs the network: one thread at a time."""
        with one_line(self.path, "run"), self._turn:
            if self.model is None:
                raise InputError(f"{self.path} is closed: load it again")
            self.mapped.check()
            yield self.model

    def _writer(self) -> Writer:
        if self.writer is None:
            raise InputError(f"{self.path} is closed: load it again")
        return self.writer

    def _settings(self, language: str | None) -> dict[str, int]:
        return self._usual if language is None else self._numbers({"language": language})

    def _numbers(self, settings: dict[str, str]) -> dict[str, int]:
        """Input name -> number of the settings of a call, where not given those of the training."""
        return inputs.numbers(self._reads, self.tokenizer, self.bundle.trained | settings)

    def _pack(self, kind: Kind, parts: Sequence[Parts], begin: int = 0) -> list[list[Row]]:
        """The rows of each text.

        Raises:
            TextError: a text that the kind cannot read, or a document of more windows than are allowed.
        """
        packed = []
        with tokenizing(self.path):
            for number, each in enumerate(parts, begin):
                with of_text(number):
                    packed.append(kind.rows(self.tokenizer, each, self.bundle.longest))
        for number, rows in enumerate(packed, begin):
            if len(rows) > self.windows:
                many = f"text {number} takes {len(rows)} rows of {self.bundle.longest} tokens, expected at most {self.windows}"
                raise TextError(number, f"{many}: split it, or allow more (load(..., windows=N), --windows N)")
        return packed

    def _rows(
        self, rows: Sequence[Row], settings: dict[str, int], begin: int = 0, kind: Kind | None = None
    ) -> list[np.ndarray]:
        """The outputs of rows, in their order; `begin`: number of the first in its call."""
        outputs = [np.empty(0)] * len(rows)
        # by length: a change of length costs 0.2-0.6 ms
        order = sorted(range(len(rows)), key=lambda place: rows[place].length)
        for place in counted(order, len(rows), "rows") if len(rows) > 1 else order:
            outputs[place] = self._row(rows[place], settings, begin + place, kind)
        return outputs

    def _bucket(self, used: int) -> int:
        """The length that a row of so many tokens is run at."""
        return used if self.bundle.any_length else self.lengths[bisect.bisect_left(self.lengths, used)]

    def _arrays(self, row: Row, settings: dict[str, int]) -> tuple[int, dict[str, np.ndarray]]:
        """The bucket of a row, and its arrays by the signature's names."""
        length = self._bucket(row.length)
        arrays = inputs.arrays(self._reads, [row], length, settings=settings)
        return length, {self._names.get(name, name): array for name, array in arrays.items()}

    def _row(
        self, row: Row, settings: dict[str, int] | None = None, number: int = 0, kind: Kind | None = None
    ) -> np.ndarray:
        """One row, at most `lengths[-1]` tokens -> float32 [C], or [S, C] of its tokens.

        Args:
            number: int, of the row in its call, which drawn tokens depend on. kind: of the call.
        """
        used = row.length
        with one_line(self.path, "run"):
            length, arrays = self._arrays(row, self._usual if settings is None else settings)
        with self._running() as model:
            if self.writer is not None:
                return self.writer.write(row, arrays, length, number, kind)
            outputs = model.run(length, arrays)
        tokens = length if self.kind.per_token else 1
        whole = len(outputs) == (self._width or max(1, len(outputs) // tokens)) * tokens
        if not whole or not np.isfinite(outputs).all():
            said = "numbers that are not finite" if whole else f"{len(outputs)} numbers"
            raise InputError(f"{self.path} answers with {said}: it is damaged. Write the file again")
        return outputs.reshape(length, -1)[:used] if self.kind.per_token else outputs
