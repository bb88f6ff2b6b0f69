"""The bundle: what must travel with an exported model so that text goes in and answers come out. Standard library only.

It is a zip behind the .tflite's last byte: the interpreter maps the front of the file and ignores the tail, zip readers
look from the end. (MediaPipe finds the vocabulary and the labels by the same convention, uncompressed.)
"""

import contextlib
import dataclasses
import hashlib
import io
import json
import os
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kerasbert.errors import InputError

FORMATS = (1, 2, 3)  # 2 takes any length, 3 names the interpreter that it needs: readers of less would do neither
# The first ai-edge-litert that computes a file rightly: 2.0.2 to 2.1.2 get int8 activations wrong, by up to .7 of probability.
LITERT = {"static_int8": "2.1.3", "full_int8": "2.1.3"}
SETTINGS = "bundle.json"
LABELS = "labels.txt"
KINDS = ("classification", "regression", "embedding")
INPUTS = ("token_ids", "padding_mask", "segment_ids")
MAX_FILES = 64
MAX_BYTES = 64 << 20  # a vocabulary of 250,000 pieces takes 5 MB
MAX_LENGTH = 1 << 16  # of a text in tokens; of an output in values
CHUNK = 1 << 16


@dataclasses.dataclass(frozen=True)
class Bundle:
    """Settings, labels and tokenizer files of an exported model.

    Args:
        kind: str, one of KINDS: what the numbers of the output are.
        labels: tuple of str, the names of a classification's outputs, in their order.
        pair: bool, whether an input is two texts.
        model: str, such as "bert/base".
        target: str, the reader that the file is for: "kerasbert" (our runtime) or "mediapipe" (one length).
        quantization: str, such as "float32" or "dynamic_int8".
        signatures: dict of length -> signature name, the length buckets.
        any_length: bool, whether there is one signature, which takes every length up to its own.
        inputs: dict of our input name -> the signature's. output: str, the signature's output.
        litert: str, the least version of ai-edge-litert that computes the file rightly; empty: any does. What files of
            formats 1 and 2 need is in LITERT.
        digest: str, hex sha256 of the .tflite without the bundle.
        versions: dict of package -> version that wrote the file.
        recipe: dict, the plan that made it, without paths; empty where it was compressed alone.
        tokenizer: dict of file name -> bytes, as the tokenizer's `save` writes them.
    """

    kind: str
    tokenizer: dict[str, bytes]
    signatures: dict[int, str]
    inputs: dict[str, str]
    output: str
    any_length: bool = False
    labels: tuple[str, ...] = ()
    pair: bool = False
    model: str = ""
    target: str = "kerasbert"
    quantization: str = "float32"
    litert: str = ""
    digest: str = ""
    versions: dict[str, str] = dataclasses.field(default_factory=dict)
    recipe: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def lengths(self) -> tuple[int, ...]:
        """The buckets' lengths in tokens, ascending; the last is the longest text's."""
        return tuple(sorted(self.signatures))

    def signature(self, length: int) -> str:
        """The name of the signature that runs a length."""
        return self.signatures[self.lengths[-1] if self.any_length else length]

    def to_zip(self) -> bytes:
        """The same bundle gives the same bytes: fixed dates, fixed order, nothing compressed."""
        settings: dict[str, Any] = {"format": 3 if self.litert else 2 if self.any_length else 1}
        for field in dataclasses.fields(self):
            if field.name != "tokenizer":
                settings[field.name] = getattr(self, field.name)
        if not self.any_length:
            del settings["any_length"]
        if not self.recipe:
            del settings["recipe"]
        if not self.litert:
            del settings["litert"]
        settings["signatures"] = {str(length): self.signatures[length] for length in self.lengths}
        files = dict(sorted(self.tokenizer.items()))
        if self.labels:
            files[LABELS] = "".join(f"{label}\n" for label in self.labels).encode()
        files[SETTINGS] = json.dumps(settings, indent=1, sort_keys=True, ensure_ascii=False).encode()
        return pack(files)


def pack(files: dict[str, bytes]) -> bytes:
    """A zip of uncompressed files dated 1980-01-01, in the given order."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, data in files.items():
            info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            info.create_system, info.external_attr = 3, 0o644 << 16  # else they name the machine's system
            archive.writestr(info, data)
    return buffer.getvalue()


def unpack(source: str | os.PathLike | bytes) -> dict[str, bytes]:
    """The files of the zip at the end of a file, sizes bounded.

    Raises:
        InputError: no such file, no zip at its end, a damaged one, one that is too large, a name with a folder in it or
            a name that stands there twice.
    """
    where = "the bundle" if isinstance(source, bytes) else str(source)
    with _opened(source) as archive:
        entries = archive.infolist()
        total = sum(entry.file_size for entry in entries)
        if len(entries) > MAX_FILES or total > MAX_BYTES:
            raise InputError(
                f"{where} holds a bundle of {len(entries)} files and {total} bytes, expected at most {MAX_FILES} "
                f"and {MAX_BYTES}: not a file that kerasbert wrote"
            )
        files: dict[str, bytes] = {}
        for entry in entries:
            name = entry.filename
            if name != os.path.basename(name) or "\\" in name or name in ("", ".", ".."):
                raise InputError(f"{where} holds a bundle with the name {name!r}, expected names without folders")
            if name in files:
                raise InputError(f"{where} holds a bundle with two files {name!r}, expected one of each name")
            with archive.open(entry) as file:
                files[name] = file.read(entry.file_size)
        return files


@contextlib.contextmanager
def _opened(source: str | os.PathLike | bytes) -> Iterator[zipfile.ZipFile]:
    """The zip at the end of a file; what is wrong with it, or with reading it, is an InputError."""
    where = "the bundle" if isinstance(source, bytes) else str(source)
    try:
        with zipfile.ZipFile(io.BytesIO(source) if isinstance(source, bytes) else Path(source)) as archive:
            yield archive
    except InputError:
        raise
    except FileNotFoundError as error:
        raise InputError(f"no file {where}. Write one with: kerasbert-mobile compress RUN --out FILE") from error
    except (IsADirectoryError, PermissionError) as error:
        raise InputError(f"cannot read {where}: {error.strerror}. Expected a .tflite file") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, OSError, ValueError, struct.error) as error:
        raise InputError(
            f"{where} carries no readable bundle ({error}). Expected a .tflite file written by kerasbert-mobile compress"
        ) from error


def digest(path: str | os.PathLike) -> str:
    """Hex sha256 of the bytes in front of the bundle, which `Bundle.digest` must equal.

    24 MB take 16 ms; crc32 takes 7 (AMD EPYC), but what names a file of packed weights must not be forged.

    Raises:
        InputError: as `unpack`.
    """
    found = hashlib.sha256()
    with _opened(path) as archive, open(path, "rb") as file:
        left = min((entry.header_offset for entry in archive.infolist()), default=0)
        while left > 0 and (chunk := file.read(min(CHUNK, left))):
            found.update(chunk)
            left -= len(chunk)
    return found.hexdigest()


def read(source: str | os.PathLike | bytes) -> Bundle:
    """The bundle of an exported file. Its `digest` is not compared with the file: see `digest`.

    Raises:
        InputError: there is none, it is damaged, or a later kerasbert wrote it.
    """
    files = unpack(source)
    where = "the bundle" if isinstance(source, bytes) else str(source)
    files.pop(LABELS, None)
    if SETTINGS not in files:
        raise InputError(f"{where} carries no {SETTINGS}. Expected a .tflite file written by kerasbert-mobile compress")
    try:
        settings = json.loads(files.pop(SETTINGS), parse_constant=_no_constant)
        number = settings.pop("format")
        if number not in FORMATS:
            raise InputError(
                f"{where} has bundle format {number!r:.40}, expected {', '.join(map(str, FORMATS))}: "
                "install the kerasbert that wrote it"
            )
        _check_types(settings)
        settings["signatures"] = {int(length): name for length, name in settings["signatures"].items()}
        settings["labels"] = tuple(settings["labels"])
        settings.setdefault("litert", LITERT.get(settings.get("quantization"), ""))
        bundle = Bundle(tokenizer=files, **settings)
        _check_values(bundle)
    except InputError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"{where} carries a damaged {SETTINGS} ({reason}). Write the file again") from error
    return bundle


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of json")


def _check_types(settings: dict[str, Any]) -> None:
    """Every field that is there has the type that `to_zip` gives it."""
    kinds: dict[str, type] = dict.fromkeys(
        ("kind", "output", "model", "target", "quantization", "litert", "digest"), str
    )
    kinds |= {"pair": bool, "any_length": bool, "labels": list}
    kinds |= dict.fromkeys(("signatures", "inputs", "versions", "recipe"), dict)
    for name, kind in kinds.items():
        if name in settings and not isinstance(settings[name], kind):
            raise TypeError(f"{name} is {settings[name]!r:.40}, expected json for {kind.__name__}")
    texts = [*settings["labels"], *(each for name in ("signatures", "inputs") for each in settings[name].values())]
    for text in texts:
        if not isinstance(text, str):
            raise TypeError(f"{text!r:.40} stands where a name belongs")


def _check_values(bundle: Bundle) -> None:
    """What the fields say fits together; whether the model agrees, its interpreter tells."""
    if bundle.kind not in KINDS:
        raise ValueError(f"kind {bundle.kind!r:.40}, expected one of {', '.join(KINDS)}")
    if not bundle.signatures or not all(1 <= length <= MAX_LENGTH for length in bundle.signatures):
        raise ValueError(f"lengths {bundle.lengths!s:.40}, expected some of 1 to {MAX_LENGTH}")
    if bundle.any_length and len(bundle.signatures) > 1:
        raise ValueError(f"{len(bundle.signatures)} signatures of any length, expected one")
    if len(set(bundle.labels)) < len(bundle.labels) or len(bundle.labels) > MAX_LENGTH:
        raise ValueError(f"{len(bundle.labels)} labels, of which {len(set(bundle.labels))} differ")
    if bundle.litert and not re.fullmatch(r"[0-9]{1,4}(\.[0-9]{1,4}){1,3}", bundle.litert):
        raise ValueError(f"litert {bundle.litert!r:.40}, expected a version such as 2.1.3")
    if (bundle.kind == "classification") != bool(bundle.labels):
        raise ValueError(f"{len(bundle.labels)} labels of a {bundle.kind}")
