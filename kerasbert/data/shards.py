"""One shard: its documents -> its file. Every runner writes shards with this, so every runner writes the same bytes."""

import base64
import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from kerasbert.data import joins
from kerasbert.data.examples import Examples, Spans
from kerasbert.data.packing import Documents, Fit, Packing, packing
from kerasbert.data.records import BLOCK, FORMAT, Shard, digest, row_dtype
from kerasbert.data.spool import gather
from kerasbert.storage import remote
from kerasbert.storage.json_view import Json, JsonMap

ROWS = 64 * BLOCK  # rows that are rendered at once
SENTENCES = Fit(line=1, most=2**31, piece=2**31)  # every line is split, and no sentence is cut


def _none() -> np.ndarray:
    return np.zeros((), np.int64)


@dataclasses.dataclass(frozen=True)
class Report:
    """What was written: nothing, one shard, or several added up.

    Args:
        shards: their files.
        documents: number of different ones.
        duplicates: number of exact repetitions left out.
        random_next: number of pairs with a random next sentence.
        unigrams: int64 [V], how often each token occurs.
        source_tokens: of a packing that may lose some, tokens that it was given.
        kept_tokens: how many of them stand in an example.
        labels: int64 [C], how often each answer about a pair occurs.
    """

    shards: tuple[Shard, ...] = ()
    documents: int = 0
    duplicates: int = 0
    random_next: int = 0
    unigrams: np.ndarray = dataclasses.field(default_factory=_none)
    source_tokens: int = 0
    kept_tokens: int = 0
    labels: np.ndarray = dataclasses.field(default_factory=_none)

    def __add__(self, other: "Report") -> "Report":
        values = (getattr(self, field.name) + getattr(other, field.name) for field in dataclasses.fields(self))
        return Report(*values)

    def to_json(self) -> str:
        """For the file that brings it from the machines of a pipeline to the one that started it."""
        unigrams = base64.b64encode(self.unigrams.astype("<i8").tobytes()).decode()
        labels = np.asarray(self.labels).tolist()
        return json.dumps({**dataclasses.asdict(self), "unigrams": unigrams, "labels": labels})

    @classmethod
    def from_json(cls, text: str | bytes) -> "Report":
        """What `to_json` wrote."""
        value = json.loads(text)
        unigrams = np.frombuffer(base64.b64decode(value["unigrams"]), "<i8").astype(np.int64)
        shards = tuple(Shard(**shard) for shard in value["shards"])
        labels = np.asarray(value["labels"], np.int64)
        return cls(**{**value, "shards": shards, "unigrams": unigrams, "labels": labels})


@dataclasses.dataclass(frozen=True)
class ShardWriter:
    """Packs and writes one shard after the other; small, so that it travels to other machines.

    Args:
        directory: where the shards go, a local path or an address.
        shards, length, packing, seed, dupe_factor: see `write_records`.
        vocabulary: int V.
        cls_id, sep_id, pad_id: int.
        separators: int, between the two parts of a pair.
        joined: bool, whether the ids are marked (`data.joins`).
        borders: bool, whether rows are to say where sentences begin; then lines are split into sentences.
        columns: of translations, by the number of the pair of languages the two numbers of its columns' languages.
        language_ids: the number in rows of each language, by the number of the documents' language; none without.
    """

    directory: str
    shards: int
    length: int
    packing: str
    seed: int
    dupe_factor: int
    vocabulary: int
    cls_id: int | None
    sep_id: int
    pad_id: int
    separators: int = 1
    joined: bool = False
    borders: bool = False
    columns: tuple[tuple[int, int], ...] = ()
    language_ids: tuple[int, ...] = ()

    @property
    def fit(self) -> Fit | None:
        """What a segment may hold; see `encode.entries`."""
        found = packing(self.packing, self.length, separators=self.separators).fit(self.length, self.separators)
        return SENTENCES if self.borders and not found else found

    def write(self, number: int, data: bytes, repeats: Mapping[int, float] | None = None) -> Report:
        """Write shard `number` from its documents' entries, in any order; see `spool.gather`."""
        documents, different, duplicates = gather(data, repeats)
        pack = packing(self.packing, self.length, separators=self.separators)
        examples = self._packed(documents, pack)
        source = kept = 0
        labels = np.zeros(pack.labels, np.int64)
        if isinstance(examples, Spans) and pack.pairs:
            source, kept = len(documents.ids), examples.kept()
            if pack.labels and examples.label is not None:
                labels = np.bincount(examples.label, minlength=pack.labels)
        name = f"shard-{number:05d}-of-{self.shards:05d}.bin"
        dtype = np.dtype(row_dtype(self.vocabulary)).newbyteorder("<")
        unigrams = np.zeros(self.vocabulary, np.int64)
        digest = hashlib.sha256()
        count = tokens = size = random_next = 0
        head = hashlib.sha256().hexdigest()
        with remote.opened(remote.join(self.directory, name), "wb") as file:
            for rows, random in self._rendered(examples, pack):
                unigrams += np.bincount(rows[:, : self.length].ravel(), minlength=len(unigrams))
                tokens += int(rows[:, self.length : self.length + 2].sum())
                random_next += random
                count += len(rows)
                block = np.zeros((-(-len(rows) // BLOCK) * BLOCK, rows.shape[1]), dtype)
                block[: len(rows)] = rows
                written = block.tobytes()
                if not size:
                    head = hashlib.sha256(block[:BLOCK].tobytes()).hexdigest()
                digest.update(written)
                size += len(written)
                file.write(written)
        shard = Shard(name, count, tokens, size, digest.hexdigest(), head)
        return Report((shard,), different, duplicates, random_next, unigrams, source, kept, labels)

    def _packed(self, documents: Documents, pack: Packing) -> Examples | None:
        """The examples of documents; None where there are no documents."""
        if not documents.digests:
            return None
        if self.borders:
            documents = dataclasses.replace(documents, ids=joins.mark_borders(documents.ids, documents.bounds))
        # further separators take their places from the room that the packing knows
        length = self.length - (self.separators - 1 if pack.pairs else 0)
        settings = {"seed": self.seed, "dupe_factor": self.dupe_factor, "sep_id": self.sep_id}
        return self._with_languages(pack.pack(documents, length=length, **settings), documents)

    def _rendered(self, examples: Examples | None, pack: Packing) -> Iterator[tuple[np.ndarray, int]]:
        """The rows of examples, ROWS at once, and the number of pairs with a random next sentence among them."""
        special = {"cls_id": self.cls_id, "sep_id": self.sep_id, "pad_id": self.pad_id}
        special |= {"separators": self.separators} if pack.pairs else {}
        if examples is None:
            return
        for begin in range(0, len(examples), ROWS):
            part = examples.slice(begin, begin + ROWS)
            rows = part.render(length=self.length, **special)
            if self.joined or self.borders:
                rows = joins.take_off(rows, self.length, self.joined, self.borders)
            yield rows, part.random_next

    def _with_languages(self, examples: Examples, documents: Documents) -> Examples:
        """Examples with the numbers of the languages of their parts, where rows hold them."""
        if not self.columns and not self.language_ids:
            return examples
        assert isinstance(examples, Spans)  # `number_corpus` refuses other packings
        assert documents.languages is not None
        borders = documents.bounds[documents.firsts]
        single = examples.b[:, 1] == examples.b[:, 0]
        starts = np.stack([examples.a[:, 0], np.where(single, examples.a[:, 0], examples.b[:, 0])], axis=1)
        of_parts = documents.languages[np.searchsorted(borders, starts, side="right") - 1]
        if self.columns:
            languages = np.array(self.columns)[of_parts[:, 0]]
        else:
            languages = np.array(self.language_ids)[of_parts]
        return dataclasses.replace(examples, languages=languages)


def features(
    length: int, name: str, joined: bool = False, languages: bool = False, borders: bool = False
) -> dict[str, Json]:
    """What a row of that packing holds, in the order of its columns."""
    shapes = {"token_ids": [length], "segment_lengths": [2]}
    if extra := packing(name, length).feature:
        shapes[extra] = []
    if languages:
        shapes["languages"] = [2]
    shapes |= joins.columns(length, joined, borders)
    return {feature: {"dtype": "int32", "shape": shape} for feature, shape in shapes.items()}


def manifest(plan: JsonMap, report: Report, special_ids: Sequence[int], around: Sequence[int]) -> str:
    """The text of manifest.json: what the records were made from and what they hold.

    Args:
        special_ids: of the tokenizer. around: those that nothing predicts, in front of a text and behind its row.
    """
    settings = plan["settings"]
    joined, languages = any(level in settings for level in joins.LEVELS), "language_ids" in settings
    columns = features(settings["length"], settings["packing"], joined, languages, joins.BORDERS in settings)
    more = {"random_next": report.random_next} if "next_label" in columns else {}
    if packing(settings["packing"], settings["length"]).pairs:
        more |= {"source_tokens": report.source_tokens, "kept_tokens": report.kept_tokens}
    if np.size(report.labels) > 1:
        more["labels"] = report.labels.tolist()
    value = {
        "format": FORMAT,
        **plan,
        "dtype": row_dtype(plan["tokenizer"]["size"]),
        "block": BLOCK,
        "features": columns,
        "counts": {
            "documents": report.documents,
            "duplicates": report.duplicates,
            "examples": sum(shard.examples for shard in report.shards),
            "tokens": sum(shard.tokens for shard in report.shards),
            **more,
        },
        "unigram": _unigram(report.unigrams, special_ids),
        "written_unigram": _unigram(report.unigrams, around),
        "shards": [dataclasses.asdict(shard) for shard in sorted(report.shards, key=lambda shard: shard.file)],
    }
    value = json.loads(json.dumps(value))  # keys as they will be read
    return json.dumps(value | {"sha256": digest(value)}, indent=1, ensure_ascii=False) + "\n"


def _unigram(counts: np.ndarray, left_out: Sequence[int]) -> dict[str, float]:
    """What a model learns without looking: entropy (nats) and share of the commonest token, some left out."""
    counts = counts.astype(np.float64)
    counts[list(left_out)] = 0
    share = counts[counts > 0] / max(counts.sum(), 1)
    return {
        "entropy": round(float(-(share * np.log(share)).sum()), 6),
        "accuracy": round(float(share.max(initial=0)), 6),
    }
