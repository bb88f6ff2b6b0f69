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
from collections.abc import Mapping
from typing import Any

import numpy as np

from kerasbert.data import remote
from kerasbert.errors import InputError

FORMAT = 2
BLOCK = 256
MANIFEST = "manifest.json"


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
        directory: local path or gs:// address.
        verify: bool, read every shard once and compare its hash; otherwise size and first block are compared.

    Attributes:
        manifest: dict, the manifest.
        shards: list of Shard.
        examples, tokens, length: ints; tokens without padding.
        features: name -> shape of one example, in the order of a row's columns.
        reused: bool, True when `write_records` found them made already.

    Raises:
        InputError: no records there, another format, or a shard that is missing, truncated, of another corpus or (with
            `verify`) changed anywhere.
    """

    def __init__(self, directory: str | os.PathLike, verify: bool = False):
        self.directory = os.fspath(directory)
        self.manifest = read_manifest(self.directory)
        self.shards = [Shard(**shard) for shard in self.manifest["shards"]]
        self.features = {name: tuple(feature["shape"]) for name, feature in self.manifest["features"].items()}
        self.length: int = self.manifest["settings"]["length"]
        self.examples = sum(shard.examples for shard in self.shards)
        self.tokens = sum(shard.tokens for shard in self.shards)
        self.reused = False
        for shard in self.shards:
            self._check_shard(shard, verify)

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
        return hashlib.sha256(json.dumps(self.manifest, sort_keys=True).encode()).hexdigest()

    def path(self, shard: Shard) -> str:
        """Path or address of a shard."""
        return remote.join(self.directory, shard.file)

    def _check_shard(self, shard: Shard, verify: bool) -> None:
        again = "Copy it again, or make the records again with --overwrite"
        size = remote.size(self.path(shard))
        if size is None:
            raise InputError(f"record shard {self.path(shard)} is missing. {again}")
        if size != shard.bytes:
            kind = "truncated" if size < shard.bytes else "too long"
            raise InputError(
                f"record shard {self.path(shard)} is {kind}: {size} bytes, expected {shard.bytes}. {again}"
            )
        block = BLOCK * self.columns * self.dtype.itemsize
        if hashlib.sha256(remote.read(self.path(shard), block)).hexdigest() != shard.head:
            raise InputError(
                f"record shard {self.path(shard)} is of other records: its first block is not the manifest's. {again}"
            )
        if verify and _sha256(self.path(shard)) != shard.sha256:
            raise InputError(f"record shard {self.path(shard)} is damaged: its sha256 is not the manifest's. {again}")

    def check(self, tokenizer: Any, vocabulary_size: int) -> None:
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

    def dataset(self, batch: int, *, seed: int, **settings: Any) -> Any:
        """An infinite, step-indexed tf.data.Dataset of global batches; see `kerasbert.data.stream.dataset`."""
        import tensorflow as tf

        from kerasbert.data.stream import dataset

        with tf.device("/CPU:0"):  # the tables of the pipeline belong to the host, whatever trains
            return dataset(self, batch, seed=seed, **settings)

    def rows(self, shard: Shard) -> np.ndarray:
        """All rows of one shard, for statistics and tests: [examples, columns]."""
        data = np.frombuffer(remote.read(self.path(shard)), self.dtype)
        return data.reshape(-1, self.columns)[: shard.examples]


def read_manifest(directory: str | os.PathLike) -> dict[str, Any]:
    """The manifest of records of this version's format."""
    path = remote.join(directory, MANIFEST)
    if remote.size(path) is None:
        raise InputError(f"no records in {directory}: it holds no {MANIFEST}. Make them with: kerasbert data FILES...")
    try:
        manifest = json.loads(remote.read(path))
        version = manifest["format"]
        manifest["shards"], manifest["features"], manifest["settings"]["length"], manifest["tokenizer"]["digest"]
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is not a manifest of records ({error}). Make the records again") from error
    if version != FORMAT:
        raise InputError(f"{path} has format {version}, this version reads {FORMAT}. Make the records again")
    return manifest


def _sha256(path: str) -> str:
    digest = hashlib.sha256()
    for chunk in remote.chunks(path):
        digest.update(chunk)
    return digest.hexdigest()


def differences(manifest: Mapping[str, Any], plan: Mapping[str, Any]) -> list[str]:
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


def _identity(source: Mapping[str, Any]) -> tuple[str, str, str]:
    return source["format"], source["sha256"], source.get("language", "")


def _tokenizer_change(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    settings = [
        f"{name} {old['settings'].get(name)} before, now {new['settings'].get(name)}"
        for name in sorted(old["settings"].keys() | new["settings"].keys())
        if old["settings"].get(name) != new["settings"].get(name)
    ]
    if old["size"] != new["size"]:
        settings.append(f"{old['size']} entries before, now {new['size']}")
    return ", ".join(settings) or "other vocabulary"
