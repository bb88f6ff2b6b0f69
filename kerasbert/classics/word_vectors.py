"""Word vectors from text: word2vec and fastText by gensim (extra `vectors`), GloVe by the step core."""

import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kerasbert import __version__
from kerasbert.checkpoints.vectors import ABOUT, FORMATS, FastTextVectors, WordVectors, read_vectors, write_vectors
from kerasbert.classics import cooccurrence
from kerasbert.data.sources import check_files, read_lines
from kerasbert.errors import InputError, unknown
from kerasbert.options import checked, checked_fields
from kerasbert.storage import files as folders
from kerasbert.storage import steady
from kerasbert.storage.json_view import JsonMap
from kerasbert.text.split import splitter

if TYPE_CHECKING:
    import tensorflow as tf

KINDS = ("word2vec", "fasttext", "glove")
LONGEST = 10_000  # words of a sentence; gensim leaves out what is longer, in silence


@checked_fields
@dataclasses.dataclass(frozen=True)
class VectorSettings:
    """What word vectors are learned with.

    Args:
        kind: word2vec, fasttext or glove.
        size: int, numbers of a vector.
        window: int, words to either side.
        epochs: int; None: 5, of glove 25.
        min_count: int, rarer words are left out.
        vocabulary: int, words at most, the commonest; None: all.
        skipgram: bool, predict the words around from a word; else the word from those around. Not of glove.
        negative: int, drawn words for each one. Not of glove.
        learning_rate: float; None: .025, of glove .05.
        ngrams: int pair, characters of fastText's n-grams. buckets: int, rows that they share.
        batch: int, pairs of an update of glove.
        words: what splits lines into words: bert, regex or blanks (`text.split`). lowercase: bool.
        seed: int. One thread computes: the same seed gives the same vectors.
    """

    kind: str = "word2vec"
    size: int = 100
    window: int = 5
    epochs: int | None = None
    min_count: int = 5
    vocabulary: int | None = None
    skipgram: bool = True
    negative: int = 5
    learning_rate: float | None = None
    ngrams: tuple[int, int] = (3, 6)
    buckets: int = 200_000
    batch: int = 8192
    words: str = "bert"
    lowercase: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise unknown("kind of vectors", self.kind, KINDS, ", ".join(KINDS))
        for name in ("size", "window", "epochs", "min_count", "vocabulary", "negative", "buckets", "batch"):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or not 1 <= value < 2**31):
                raise InputError(f"{name} must be a whole number of at least 1. Received: {value!r}")
        least, most = self.ngrams
        if not 1 <= least <= most <= 100:
            raise InputError(f"ngrams must be two numbers such as 3-6, the lower one first. Received: {least}-{most}")
        if self.learning_rate is not None and not 0 < self.learning_rate < 10:
            raise InputError(f"learning_rate must be above 0 and below 10. Received: {self.learning_rate}")
        if type(self.seed) is not int or not 0 <= self.seed < 2**31:
            raise InputError(f"seed must be a whole number from 0 to 2^31. Received: {self.seed!r}")


NOT_OF = {  # setting -> kinds that do not read it
    **dict.fromkeys(("ngrams", "buckets"), ("word2vec", "glove")),
    **dict.fromkeys(("skipgram", "negative"), ("glove",)),
    "batch": ("word2vec", "fasttext"),
}


class Sentences:
    """The lines of files as lists of words, as often as they are asked for."""

    def __init__(
        self,
        files: Sequence[str | os.PathLike],
        split: Callable[[str], list[str]],
        text_field: str = "text",
        encoding: str | None = None,
    ) -> None:
        self.files, self.split, self.text_field, self.encoding = files, split, text_field, encoding

    def __iter__(self) -> Iterator[list[str]]:
        for line in read_lines(self.files, text_field=self.text_field, encoding=self.encoding):
            words = self.split(line)
            for first in range(0, len(words), LONGEST):
                yield words[first : first + LONGEST]


@checked
def train_vectors(
    files: str | os.PathLike | Sequence[str | os.PathLike],
    *,
    text_field: str = "text",
    encoding: str | None = None,
    out: str | os.PathLike | None = None,
    format: str | None = None,
    overwrite: bool = False,
    strategy: "tf.distribute.Strategy | None" = None,
    **settings: Any,
) -> WordVectors:
    """Learn word vectors from files of text, as `kerasbert vectors` does.

    Args:
        files: one file, or several, as of `read_documents`; a line is a sentence.
        text_field: str, column or field of the text in tables.
        encoding: str, of the files, where they are not UTF-8.
        out: a directory for the vectors, or None to leave them in memory.
        format: one of `checkpoints.vectors.FORMATS`; None: fasttext of fastText, else vec.
        overwrite: bool, replace what `out` holds.
        strategy: tf.distribute.Strategy of glove; None: one device.
        settings: fields of `VectorSettings`.

    Raises:
        InputError: a file that is missing or does not decode, a setting that is none, a text with too few words.
    """
    chosen = VectorSettings(**settings)
    if wrong := [name for name in settings if chosen.kind in NOT_OF.get(name, ())]:
        raise InputError(f"{', '.join(wrong)} would not be used by {chosen.kind}: leave it out")
    format = format or ("fasttext" if chosen.kind == "fasttext" else "vec")
    _check_format(format, chosen.kind)
    if out is not None:
        folders.check_free(out, overwrite, [files] if isinstance(files, str | os.PathLike) else files)
    paths = check_files([files] if isinstance(files, str | os.PathLike) else list(files))
    split = splitter(chosen.words, chosen.lowercase)
    sentences = Sentences(paths, split, text_field=text_field, encoding=encoding)
    train = _glove if chosen.kind == "glove" else _gensim
    with steady.unchanged(*paths):
        counts = cooccurrence.count(sentences, chosen.min_count, chosen.vocabulary)
        vectors = train(sentences, counts, chosen, strategy)
    if out is not None:
        about = dataclasses.asdict(chosen) | {"ntokens": counts.tokens}
        save_vectors(vectors, out, format, about, overwrite)
    return vectors


@checked
def convert_vectors(
    path: str | os.PathLike, out: str | os.PathLike, format: str | None = None, overwrite: bool = False
) -> WordVectors:
    """Write the vectors of a file or directory as a directory in another format."""
    folders.check_free(out, overwrite, [path])
    vectors = read_vectors(path)
    format = format or ("fasttext" if isinstance(vectors, FastTextVectors) else "vec")
    _check_format(format, "fasttext" if isinstance(vectors, FastTextVectors) else "these")
    save_vectors(vectors, out, format, {"kind": None, "source": Path(path).name}, overwrite)
    return vectors


def _check_format(format: str, kind: str) -> None:
    if format not in FORMATS:
        raise unknown("format of vectors", format, FORMATS, ", ".join(FORMATS))
    if format == "fasttext" and kind != "fasttext":
        raise InputError(f"--format fasttext holds n-grams, which {kind} vectors have not. Take vec, bin or glove")


def save_vectors(
    vectors: WordVectors, out: str | os.PathLike, format: str, about: JsonMap, overwrite: bool = False
) -> None:
    """Write a directory of vectors: the file, and vectors.json, which says what it is."""
    with folders.new_directory(out, overwrite) as folder:
        write_vectors(vectors, folder / FORMATS[format], format)
        described = {"file": FORMATS[format], "format": format, "count": len(vectors), "width": vectors.width}
        folders.write_json(folder / ABOUT, described | {"settings": about, "kerasbert": __version__})


def _gensim(
    sentences: Iterable[list[str]],
    counts: cooccurrence.Counts,
    settings: VectorSettings,
    strategy: "tf.distribute.Strategy | None",
) -> WordVectors:
    """word2vec (Mikolov et al., 2013) or fastText (Bojanowski et al., 2017)."""
    from gensim.models import FastText, Word2Vec

    least, most = settings.ngrams
    shared: dict[str, Any] = {
        "vector_size": settings.size,
        "window": settings.window,
        "epochs": settings.epochs or 5,
        "min_count": 1,
        "sg": int(settings.skipgram),
        "negative": settings.negative,
        "alpha": settings.learning_rate or 0.025,
        "seed": settings.seed,
        "workers": 1,
    }
    fast = settings.kind == "fasttext"
    model = FastText(min_n=least, max_n=most, bucket=settings.buckets, **shared) if fast else Word2Vec(**shared)
    frequencies = dict(zip(counts.words, counts.counts))
    # keep_raw_vocab no: the words are counted once, by the rule of all three kinds
    model.build_vocab_from_freq(frequencies, corpus_count=sum(1 for _ in sentences))
    kept = counts.counts
    model.train(sentences, total_examples=model.corpus_count, total_words=counts.tokens, epochs=model.epochs)
    wv = model.wv
    if not fast:
        return WordVectors(wv.index_to_key, np.array(wv.vectors, np.float32))
    header = {"ws": settings.window, "epoch": model.epochs, "minCount": settings.min_count, "neg": settings.negative}
    return FastTextVectors(
        wv.index_to_key,
        np.array(wv.vectors_vocab, np.float32),
        np.array(wv.vectors_ngrams, np.float32),
        least,
        most,
        output=np.array(model.syn1neg, np.float32),
        settings=header | {"model": 2 if settings.skipgram else 1, "t": model.sample, "ntokens": sum(kept)},
        counts=[frequencies[word] for word in wv.index_to_key],
    )


def _glove(
    sentences: Sentences,
    counts: cooccurrence.Counts,
    settings: VectorSettings,
    strategy: "tf.distribute.Strategy | None",
) -> WordVectors:
    """GloVe (Pennington et al., 2014)."""
    import keras
    import tensorflow as tf

    from kerasbert.classics.objectives import glove
    from kerasbert.training.step import StepCore, distribute

    pairs, values = cooccurrence.cooccurrences(lambda: sentences, counts.words, settings.window)
    distribution = strategy or tf.distribute.get_strategy()
    replicas = distribution.num_replicas_in_sync
    batch = min(settings.batch, max(1, len(pairs)))
    batch = -(-batch // replicas) * replicas
    with distribution.scope():
        model = glove.GloVe(len(counts.words), settings.size, settings.seed)
        model.build()
        rate = settings.learning_rate or glove.RATE
        optimizer = keras.optimizers.Adagrad(rate, initial_accumulator_value=glove.START)
        program = glove.WeightedLeastSquares(model, batch)
    core = StepCore(program, optimizer, distribution, clip=0.0, seed=settings.seed)
    weights = np.minimum(1.0, (values / glove.MOST) ** glove.POWER).astype(np.float32)
    logs = np.log(values).astype(np.float32)
    row = np.arange(batch, dtype=np.int32)
    for epoch in range(settings.epochs or 25):
        order = np.random.default_rng([settings.seed, epoch]).permutation(len(pairs))
        for first in range(0, len(pairs), batch):
            chosen = order[first : first + batch]
            missing = batch - len(chosen)  # padded with pairs that weigh nothing
            chosen = np.concatenate([chosen, order[:1].repeat(missing)])
            weight = weights[chosen]
            weight[batch - missing :] = 0
            rows = {
                "token_ids": pairs[chosen].astype(np.int32),
                "log_counts": logs[chosen],
                "weights": weight,
                "row": row,
            }
            found = core.step(distribute(rows, distribution))
            if core.nonfinite(found):
                raise InputError(f"the loss of epoch {epoch + 1} is not finite: lower --learning-rate (it is {rate})")
    return WordVectors(counts.words, model.vectors())
