"""Vocabulary trimming: the pieces that a corpus uses stay, ids, tables and tokenizer are renumbered together.

Half of a small model is its token table. (Abdaoui et al., 2020, "Load What You Need", do it for languages.) The file is not
called trim.py: importing it would put the module in the place of `mobile.trim`.
"""

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kerasbert import spec as specs
from kerasbert.errors import InputError
from kerasbert.inputs import listed
from kerasbert.options import checked
from kerasbert.storage import files
from kerasbert.storage.json_view import Json
from kerasbert.text.base import Tokenizer
from kerasbert.text.bpe import ALPHABET, MergeTokenizer
from kerasbert.text.sentencepiece import NORMAL
from kerasbert.text.tree import with_knowledge
from kerasbert.text.unigram import SPACE, Unigram

if TYPE_CHECKING:
    from kerasbert.checkpoints.directory import ModelInfo
    from kerasbert.tasks.tables import Data
    from ..samples import Sample


TABLE = "embeddings/tokens/table"
# rows of token heads (heads/mlm/bias, heads/generator/mlm/extra) and of an output, where they are as many as the vocabulary
ROWS = re.compile(
    r"^output/bias$|^heads/(?!classifier/)(?:[^/]+/)+(?<!/inner/)(?<!/transform/)(?<!/norm/)(?<!/projection/)(?:bias|extra)$"
)
MATRIX = re.compile(r"^block_|/block_")


@checked
def trim(
    run: str | os.PathLike,
    texts: "Sequence[Sample] | None" = None,
    *,
    out: str | os.PathLike,
    data: "Data | None" = None,
    size: int | None = None,
    overwrite: bool = False,
) -> Json:
    """Write a model directory with a smaller vocabulary. A text whose pieces all stay gets the same vectors to the bit.

    Kept are special and added tokens, every piece that stands for a single character (of WordPiece with and without ##, so that
    text stays readable; of byte-level BPE the 256 bytes) and the pieces that the corpus uses.

    Args:
        run: a model directory.
        texts: the corpus: str, or pairs.
        out: the model directory to write.
        data: in the place of `texts` a file or folder in the format of the model's task.
        size: int, the largest vocabulary: the most frequent pieces stay; None for all that the corpus uses.

    Returns:
        {"out", "texts", "words"} and pairs (before, after): "vocabulary", "parameters", "unknown" and "split" (shares of
        the corpus' words that are unknown, and that go up in several pieces), "tokens" (mean per text).

    Raises:
        InputError: an empty corpus, a size below what must stay, a model without a tokenizer or a token table.
    """
    from ..prune import rewrite

    files.check_free(out, overwrite, [run, *([data] if isinstance(data, str | os.PathLike) else [])])
    info, tensors = rewrite.read(run)
    tokenizer = rewrite.tokenizer(run)
    if tokenizer is None:
        raise InputError(f"{run} has no tokenizer, and its pieces are what is trimmed: import the model with one")
    rows = specs.maybe(info.spec, "embeddings.vocabulary", 0)
    if TABLE not in tensors or len(tensors[TABLE]) != rows or rows < tokenizer.size:
        raise InputError(f"{run} has no table of one row per piece ({TABLE}): this family cannot be trimmed")
    corpus = _corpus(info, texts, data)
    counts = Counter(i for text in corpus for i in tokenizer.encode(text))
    if tokenizer.knowledge is not None:  # its branches may stand in any text
        counts.update(tokenizer.knowledge.ids())
    if not counts:
        raise InputError(f"{len(corpus)} texts without a piece, expected a corpus like what the model will read")
    ids = keep(tokenizer, counts, size)
    smaller = smaller_tokenizer(tokenizer, ids)
    left = {
        name: value[ids]
        if name == TABLE or (ROWS.match(name) and not MATRIX.search(name) and len(value) == rows)
        else value
        for name, value in tensors.items()
    }
    spec = specs.derive(info.spec, {"embeddings.vocabulary": len(ids)})
    rewrite.write(run, out, info, spec, left, smaller, overwrite)
    before, after = (rates(one, corpus) for one in (tokenizer, smaller))
    parameters = tuple(sum(value.size for value in found.values()) for found in (tensors, left))
    report = {"out": str(out), "texts": len(corpus), "words": before["words"]}
    report |= {"vocabulary": (tokenizer.size, smaller.size), "parameters": parameters}
    return report | {name: (before[name], after[name]) for name in ("unknown", "split", "tokens")}


def texts_of(run: str | os.PathLike, paths: Sequence[str | os.PathLike]) -> "list[Sample]":
    """The texts of files, as the model of a directory reads them."""
    from kerasbert import checkpoints
    from kerasbert.checkpoints.adapters import merged_directory
    from kerasbert.tasks.task import task_of
    from .. import samples

    task = task_of(checkpoints.read_model_json(merged_directory(run)))
    return [text for path in listed(paths) for text in samples.corpus(path, task)]


def _corpus(info: "ModelInfo", texts: "Iterable[Sample] | None", data: "Data | None") -> list[str]:
    """The texts one by one, those of a pair too."""
    if (texts is None) == (data is None):
        raise InputError("give texts or data, one of them: the corpus whose pieces are kept")
    if data is not None:
        from kerasbert.tasks.load import task_of
        from kerasbert.tasks.task import read_rows, split_files

        task = task_of(info)
        if task is None:
            raise InputError(f"the model has no task to read {data} with: give texts")
        texts = [
            text
            for path in split_files(data, task=task).values()
            for text in read_rows(task, path, targets=False).texts
        ]
    assert texts is not None  # one of them is given
    if isinstance(texts, str | bytes | os.PathLike):  # a text alone is no corpus, and its words would be all that stays
        raise InputError(f"texts is {str(texts)!r:.60}, expected a list of texts; of a file `data.texts.read(FILE)`")
    for number, text in enumerate(texts := list(texts)):
        if not isinstance(text, str | list | tuple):
            raise InputError(f"text {number} is a {type(text).__name__}, expected str, or a pair of them")
    parts = [part for text in texts for part in ((text,) if isinstance(text, str) else text)]
    found = [text for part in parts for text in ((part,) if isinstance(part, str) else part)]
    if not found:
        raise InputError("the corpus is empty, expected texts like those that the model will read")
    return found


def keep(tokenizer: Tokenizer, counts: Counter[int], size: int | None = None) -> np.ndarray:
    """Ids that stay, ascending.

    Args:
        counts: id -> occurrences in the corpus.
        size: int, at most so many, the most frequent; of equally frequent ones the first of the vocabulary.
    """
    if tokenizer.kind not in KINDS:
        raise InputError(
            f"a tokenizer of kind {tokenizer.kind!r} cannot be trimmed, expected one of {', '.join(KINDS)}"
        )
    needed, family = KINDS[tokenizer.kind]
    with_parts = family(tokenizer)
    kept = set(tokenizer.special_ids) | tokenizer.added_ids | set(needed(tokenizer))
    if size is not None and (type(size) is not int or not len(kept) <= size):
        raise InputError(
            f"size must be at least {len(kept)}: special tokens and single characters must stay. Received: {size!r}"
        )
    for i, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        wanted = with_parts(i) - kept
        if size is not None and len(kept) + len(wanted) > size:
            break
        kept |= wanted
    return np.array(sorted(kept))


def smaller_tokenizer(tokenizer: Tokenizer, ids: Iterable[int]) -> Tokenizer:
    """The tokenizer with these pieces alone, numbered in the same order."""
    smaller = tokenizer.renumbered(int(i) for i in ids)
    return smaller if tokenizer.knowledge is None else with_knowledge(smaller, tokenizer.knowledge.graph)


def rates(tokenizer: Tokenizer, texts: Sequence[str]) -> dict[str, float]:
    """How well a vocabulary fits texts.

    Returns:
        {"words": how many, "unknown" and "split": shares of them that have an unknown piece, or several, "tokens": per text}.
    """
    words = unknown = split = tokens = 0
    for text in texts:
        ids = tokenizer.encode(text)
        tokens += len(ids)
        starts = [n for n, i in enumerate(ids) if n == 0 or not tokenizer.continues(i)]
        for begin, end in zip(starts, [*starts[1:], len(ids)]):
            words += 1
            unknown += tokenizer.unk_id in ids[begin:end]
            split += end - begin > 1
    return {
        "words": words,
        "unknown": unknown / max(1, words),
        "split": split / max(1, words),
        "tokens": tokens / len(texts),
    }


def _wordpiece_characters(tokenizer: Tokenizer) -> list[int]:
    return [i for i, piece in enumerate(tokenizer.vocabulary) if len(piece.removeprefix("##")) == 1]


def _alone(tokenizer: Tokenizer) -> Callable[[int], set[int]]:
    return lambda i: {i}


def _bytes(tokenizer: Tokenizer) -> list[int]:
    known = set(ALPHABET)
    return [i for i, piece in enumerate(tokenizer.vocabulary) if piece in known]


def _merged(tokenizer: MergeTokenizer) -> Callable[[int], set[int]]:
    """A piece, and every piece that may be merged on the way to it: then it is still reached, in the same order."""
    ids = {piece: n for n, piece in enumerate(tokenizer.vocabulary)}
    origins: dict[str, list[tuple[str, str]]] = {}
    for left, right in tokenizer.merges:
        origins.setdefault(left + right, []).append((left, right))

    def family(i: int) -> set[int]:
        found, waiting = set(), [tokenizer.vocabulary[i]]
        while waiting:
            piece = waiting.pop()
            if ids[piece] not in found:
                found.add(ids[piece])
                waiting += [part for pair in origins.get(piece, ()) for part in pair]
        return found

    return family


def _unigram_characters(tokenizer: Unigram) -> list[int]:
    """Single characters, what is no ordinary piece, and the ends of the scores, which unknown characters depend on."""
    model = tokenizer.model
    normal = [i for i, kind in enumerate(model.types) if kind == NORMAL]
    ends = [find(normal, key=model.scores.__getitem__) for find in (min, max)] if normal else []
    others = [i for i, kind in enumerate(model.types) if kind != NORMAL]
    return [*others, *ends, *(i for i in normal if len(model.pieces[i].removeprefix(SPACE)) <= 1)]


# kind -> (ids that must stay, id -> it and what it is made of)
KINDS: dict[str, tuple[Callable[[Any], list[int]], Callable]] = {
    "wordpiece": (_wordpiece_characters, _alone),
    "bpe": (_bytes, _merged),
    "word_bpe": (lambda tokenizer: tokenizer.singles(), _merged),
    "metaspace_bpe": (lambda tokenizer: tokenizer.singles(), _merged),
    "unigram": (_unigram_characters, _alone),
}
