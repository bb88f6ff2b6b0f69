"""Records: packed examples on disk, in blocks that tf.data reads without touching single examples.

A directory holds `manifest.json`, the tokenizer and shards. A shard is a sequence of blocks of 256 rows, all of one size;
a row is a fixed number of little-endian uint16 (int32 where the vocabulary is above 65,536): the columns of each feature
side by side. The last block of a shard is filled up with zero rows, which are never read.

A document's shard is hash(document) mod N, its order inside the shard is by hash and the random next sentence comes
from the same shard: whoever writes, on one machine or many, in whatever order the files come, writes the same bytes.
"""

import dataclasses
import hashlib
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kerasbert.errors import InputError
from kerasbert.storage import remote, steady
from kerasbert.storage.json_view import Json, JsonMap
from kerasbert.text.base import Tokenizer

if TYPE_CHECKING:
    import tensorflow as tf

FORMAT = 2
BLOCK = 256
READERS = 16  # shards of a bucket that are read at once
MANIFEST = "manifest.json"
AGAIN = "Copy it again, or make the records again with --overwrite"


def row_dtype(vocabulary_size: int) -> str:
    """The numbers of a row: "uint16", or "int32" where ids do not fit."""
    return "uint16" if vocabulary_size <= 65536 else "int32"


@dataclasses.dataclass(frozen=True)
class Shard:
    """One file of records: its name, number of examples, of tokens (padding not counted) and of bytes, and its hash.

    `head` is the hash of the first block alone: a shard of another corpus is found out without reading all of it.
    """

    file: str
    examples: int
    tokens: int
    bytes: int
    sha256: str
    head: str

    @property
    def blocks(self) -> int:
        """Number of blocks, the last one perhaps not full."""
        return -(-self.examples // BLOCK)


class Records:
    """Records made by `write_records`, opened for reading.

    Args:
        directory: local path or gs:// address. Sizes and first blocks are compared with the manifest; `verify` reads all.

    Attributes:
        manifest: dict, the manifest.
        shards: list of Shard.
        examples, tokens, length: ints; tokens without padding.
        block: int, rows of a block.
        features: name -> shape of one example, in the order of a row's columns.
        first: int, row of the first shard at which these records begin: 0, but where rows of one shard are held out.
        reused: bool, True when `write_records` found them made already.
        processes: int, how many made them, where `write_records` just did on this machine; else None.

    Raises:
        InputError: no records there, another format, a damaged manifest, or a shard that is missing, truncated or of
            another corpus.
    """

    block = BLOCK

    def __init__(self, directory: str | os.PathLike) -> None:
        self.directory = os.fspath(directory)
        self.manifest = read_manifest(self.directory)
        self.shards = [Shard(**shard) for shard in self.manifest["shards"]]
        self.features = {name: tuple(feature["shape"]) for name, feature in self.manifest["features"].items()}
        self.length: int = self.manifest["settings"]["length"]
        self.examples = sum(shard.examples for shard in self.shards)
        self.tokens = sum(shard.tokens for shard in self.shards)
        self.first = 0
        self.reused = False
        self.processes: int | None = None
        self._verified: steady.Files | None = None
        for shard in self.shards:
            self._check_shard(shard)

    @property
    def dtype(self) -> np.dtype:
        """The dtype of a row."""
        return np.dtype(self.manifest["dtype"]).newbyteorder("<")

    @property
    def columns(self) -> int:
        """Numbers in a row."""
        return sum(int(np.prod(shape)) for shape in self.features.values())

    @property
    def digest(self) -> str:
        """sha256 of everything the records hold and were made from: a run's data hash."""
        return digest(self.manifest)

    @property
    def languages(self) -> list[str]:
        """The languages whose numbers rows hold, by number; empty where they hold none."""
        return self.manifest["settings"].get("language_ids", [])

    def path(self, shard: Shard) -> str:
        """Path or address of a shard."""
        return remote.join(self.directory, shard.file)

    def _check_shard(self, shard: Shard) -> None:
        size = remote.size(self.path(shard))
        if size is None:
            raise InputError(f"record shard {self.path(shard)} is missing. {AGAIN}")
        if size != shard.bytes:
            kind = "truncated" if size < shard.bytes else "too long"
            raise InputError(
                f"record shard {self.path(shard)} is {kind}: {size} bytes, expected {shard.bytes}. {AGAIN}"
            )
        block = BLOCK * self.columns * self.dtype.itemsize
        if hashlib.sha256(remote.read(self.path(shard), block)).hexdigest() != shard.head:
            raise InputError(
                f"record shard {self.path(shard)} is of other records: its first block is not the manifest's. {AGAIN}"
            )

    @property
    def bytes(self) -> int:
        """Size of all shards."""
        return sum(shard.bytes for shard in self.shards)

    def verify(self) -> "Records":
        """Read every shard once and compare its hash with the manifest's: 0.6 s per GB and core from memory.

        Returns:
            these records.

        Raises:
            InputError: naming the first shard that is not what was written.
        """
        self._verified = steady.Files([self.directory])  # of an address nothing is known
        workers = READERS if remote.is_remote(self.directory) else os.cpu_count() or 1  # a bucket has latency
        with ThreadPoolExecutor(workers) as pool:  # hashlib lets go of the interpreter's lock
            for shard, found in zip(self.shards, pool.map(_sha256, map(self.path, self.shards))):
                if found != shard.sha256:
                    pool.shutdown(cancel_futures=True)
                    raise InputError(
                        f"record shard {self.path(shard)} is damaged: its sha256 is not the manifest's. {AGAIN}"
                    )
        return self

    def check_read(self) -> None:
        """Refuse what was read since `verify` where other records lie there now; where nothing does, nothing else was read.

        Raises:
            InputError: so it is.
        """
        if self._verified is None or not os.path.exists(os.path.join(self.directory, MANIFEST)):
            return
        try:
            self._verified.check()
        except InputError as error:
            try:  # copied perhaps, or touched
                same = read_manifest(self.directory) == self.manifest and self.verify()
            except InputError:
                same = False
            if not same:
                raise InputError(
                    f"{self.directory} changed while it was trained on: what was learnt since the last checkpoint is not "
                    "kept. With the records as they were the same command goes on"
                ) from error

    def check(self, tokenizer: Tokenizer, vocabulary_size: int) -> None:
        """Refuse records that do not go with a tokenizer and a model.

        Args:
            tokenizer: a tokenizer of `kerasbert.text`.
            vocabulary_size: rows of the model's table of token embeddings.
        """
        made, given = self.manifest["tokenizer"]["digest"], tokenizer.digest()
        if made != given:
            raise InputError(
                f"records {self.directory} were made with another tokenizer ({made[:12]}, this one is {given[:12]}). "
                "Make them again with this tokenizer, or train with theirs"
            )
        if tokenizer.size > vocabulary_size:
            raise InputError(
                f"records {self.directory} hold ids below {tokenizer.size}, the model has {vocabulary_size} token "
                "embeddings. Set embeddings.vocabulary to the tokenizer's size or more"
            )

    def dataset(self, batch: int, *, seed: int, **settings: Any) -> "tf.data.Dataset":
        """An infinite, step-indexed tf.data.Dataset of global batches; see `kerasbert.data.stream.dataset`."""
        import tensorflow as tf

        from kerasbert.data.stream import dataset

        with tf.device("/CPU:0"):  # the tables of the pipeline belong to the host, whatever trains
            return dataset(self, batch, seed=seed, **settings)

    def rows(self, shard: Shard, first: int = 0, count: int | None = None) -> np.ndarray:
        """Rows of one shard, `count` from `first` on or all: [count, columns]."""
        count = shard.examples - first if count is None else count
        size = self.columns * self.dtype.itemsize
        with remote.opened(self.path(shard)) as file:
            file.seek(first * size)
            data = np.frombuffer(file.read(count * size), self.dtype)
        return data.reshape(-1, self.columns)


def _where_else(directory: str) -> str:
    """What to do where a folder holds no records: one within it may."""
    within = [] if remote.is_remote(directory) else [path.parent for path in Path(directory).glob(f"*/{MANIFEST}")]
    if within:
        return f"Did you mean {' or '.join(map(str, sorted(within)))}?"
    return "Make them with: kerasbert data FILES... --tokenizer DIR --out DIR"


def read_manifest(directory: str | os.PathLike) -> Json:
    """The manifest of records of this version's format.

    Raises:
        InputError: no records there, another format, or a manifest that is not as it was written.
    """
    path = remote.join(directory, MANIFEST)
    if remote.size(path) is None:
        raise InputError(f"no records in {directory}: it holds no {MANIFEST}. {_where_else(os.fspath(directory))}")
    try:
        manifest = json.loads(remote.read(path))
        version = manifest["format"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"{path} is not a manifest of records ({error}). Make the records again") from error
    if version != FORMAT:
        raise InputError(f"{path} has format {version}, this version reads {FORMAT}. Make the records again")
    if manifest.get("sha256") != digest(manifest):
        raise InputError(f"{path} is damaged: its sha256 is not that of its content. {AGAIN}")
    problem = _problem(manifest)
    if problem:
        raise InputError(f"{path} is damaged: {problem}. {AGAIN}")
    return manifest


def digest(manifest: JsonMap) -> str:
    """sha256 of a manifest's content; the manifest itself keeps it as "sha256"."""
    content = {name: value for name, value in manifest.items() if name != "sha256"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _problem(manifest: JsonMap) -> str | None:
    """What reading the records would stumble over; None where nothing."""
    kinds = {"shards": list, "features": dict, "settings": dict, "tokenizer": dict, "sources": list}
    kinds |= {"unigram": dict, "written_unigram": dict, "counts": dict}
    wrong = [name for name, kind in kinds.items() if not isinstance(manifest.get(name), kind)]
    if wrong:
        return f"{', '.join(wrong)} {'is' if len(wrong) == 1 else 'are'} missing or of another kind"
    if manifest.get("dtype") not in ("uint16", "int32"):
        return f"dtype is {manifest.get('dtype')!r}"
    if type(manifest["settings"].get("length")) is not int or manifest["settings"]["length"] < 1:
        return f"settings.length is {manifest['settings'].get('length')!r}"
    if not isinstance(manifest["tokenizer"].get("digest"), str):
        return f"tokenizer.digest is {manifest['tokenizer'].get('digest')!r}"
    for name, feature in manifest["features"].items():
        shape = feature.get("shape") if isinstance(feature, dict) else None
        if not isinstance(shape, list) or any(type(size) is not int or size < 1 for size in shape):
            return f"the shape of {name} is {shape!r}"
    if manifest["features"].get("token_ids", {}).get("shape") != [manifest["settings"]["length"]]:
        return "token_ids are not of settings.length"
    kinds = {field.name: field.type for field in dataclasses.fields(Shard)}
    for shard in manifest["shards"]:
        if not isinstance(shard, dict) or set(shard) != set(kinds):
            return f"a shard has other fields than {', '.join(kinds)}"
        wrong = [
            name for name, kind in kinds.items() if type(shard[name]) is not kind or (kind is int and shard[name] < 0)
        ]
        if wrong or "/" in shard["file"]:
            return f"{(wrong or ['file'])[0]} of a shard is {shard[(wrong or ['file'])[0]]!r}"
    for unigram in ("unigram", "written_unigram"):
        if any(not isinstance(manifest[unigram].get(name), int | float) for name in ("entropy", "accuracy")):
            return f"{unigram} has no entropy and accuracy"
    return None


def _sha256(path: str) -> str:
    digest = hashlib.sha256()
    for chunk in remote.chunks(path):
        digest.update(chunk)
    return digest.hexdigest()


def differences(manifest: JsonMap, plan: JsonMap) -> list[str]:
    """What `plan` (the inputs of a new run) changes against the records' manifest, in words."""
    found = []
    old = {_identity(source): source["name"] for source in manifest["sources"]}
    new = {_identity(source): source["name"] for source in plan["sources"]}
    if sorted(map(_identity, manifest["sources"])) != sorted(map(_identity, plan["sources"])):
        gone = sorted(old[k] for k in old.keys() - new.keys())
        added = sorted(new[k] for k in new.keys() - old.keys())
        changed = sorted(set(gone) & set(added))
        parts = [f"{name} changed" for name in changed]
        parts += [f"{name} added" for name in added if name not in changed]
        parts += [f"{name} removed" for name in gone if name not in changed]
        found.append("sources (" + (", ".join(parts) or "a file given more or less often") + ")")
    if manifest["tokenizer"]["digest"] != plan["tokenizer"]["digest"]:
        found.append(f"tokenizer ({_tokenizer_change(manifest['tokenizer'], plan['tokenizer'])})")
    for name in sorted(manifest["settings"].keys() | plan["settings"].keys()):
        before, after = manifest["settings"].get(name), plan["settings"].get(name)
        if before != after:
            found.append(f"{name} ({before} before, now {after})")
    return found


def _identity(source: JsonMap) -> tuple[str, str, str]:
    return source["format"], source["sha256"], source.get("language", "")


def _tokenizer_change(old: JsonMap, new: JsonMap) -> str:
    settings = [
        f"{name} {old['settings'].get(name)} before, now {new['settings'].get(name)}"
        for name in sorted(old["settings"].keys() | new["settings"].keys())
        if old["settings"].get(name) != new["settings"].get(name)
    ]
    if old["size"] != new["size"]:
        settings.append(f"{old['size']} entries before, now {new['size']}")
    return ", ".join(settings) or "other vocabulary"
