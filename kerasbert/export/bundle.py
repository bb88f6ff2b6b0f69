"""The bundle: what must travel with an exported model so that text goes in and answers come out. Standard library only.

It is a zip behind the .tflite's last byte: the interpreter maps the front of the file and ignores the tail, zip readers
look from the end. (MediaPipe finds the vocabulary and the labels by the same convention, uncompressed.)
"""

import dataclasses
import io
import json
import os
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kerasbert.errors import InputError

FORMATS = (1, 2)  # 2 takes any length, which readers of 1 would not do
SETTINGS = "bundle.json"
LABELS = "labels.txt"
KINDS = ("classification", "regression", "embedding")
MAX_FILES = 64
MAX_BYTES = 64 << 20  # a vocabulary of 250,000 pieces takes 5 MB


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
        settings = {"format": 2 if self.any_length else 1}
        for field in dataclasses.fields(self):
            if field.name != "tokenizer":
                settings[field.name] = getattr(self, field.name)
        if not self.any_length:
            del settings["any_length"]
        if not self.recipe:
            del settings["recipe"]
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
        InputError: no such file, no zip at its end, a damaged one, one that is too large, or a name with a folder in it.
    """
    where = "the bundle" if isinstance(source, bytes) else str(source)
    try:
        with zipfile.ZipFile(io.BytesIO(source) if isinstance(source, bytes) else Path(source)) as archive:
            entries = archive.infolist()
            total = sum(entry.file_size for entry in entries)
            if len(entries) > MAX_FILES or total > MAX_BYTES:
                raise InputError(
                    f"{where} holds a bundle of {len(entries)} files and {total} bytes, expected at most {MAX_FILES} "
                    f"and {MAX_BYTES}: not a file that kerasbert wrote"
                )
            files = {}
            for entry in entries:
                if entry.filename != os.path.basename(entry.filename) or "\\" in entry.filename or not entry.filename:
                    raise InputError(
                        f"{where} holds a bundle with the name {entry.filename!r}, expected names without folders"
                    )
                with archive.open(entry) as file:
                    files[entry.filename] = file.read(entry.file_size)
            return files
    except FileNotFoundError as error:
        raise InputError(f"no file {where}. Write one with: kerasbert-mobile compress RUN --out FILE") from error
    except (IsADirectoryError, PermissionError) as error:
        raise InputError(f"cannot read {where}: {error.strerror}. Expected a .tflite file") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError) as error:
        raise InputError(
            f"{where} carries no readable bundle ({error}). Expected a .tflite file written by kerasbert-mobile compress"
        ) from error


def read(source: str | os.PathLike | bytes) -> Bundle:
    """The bundle of an exported file.

    Raises:
        InputError: there is none, it is damaged, or a later kerasbert wrote it.
    """
    files = unpack(source)
    where = "the bundle" if isinstance(source, bytes) else str(source)
    files.pop(LABELS, None)
    if SETTINGS not in files:
        raise InputError(f"{where} carries no {SETTINGS}. Expected a .tflite file written by kerasbert-mobile compress")
    try:
        settings = json.loads(files.pop(SETTINGS))
        number = settings.pop("format")
        if number not in FORMATS:
            raise InputError(
                f"{where} has bundle format {number}, expected {FORMATS[0]} or {FORMATS[1]}: install the kerasbert that wrote it"
            )
        settings["signatures"] = {int(length): str(name) for length, name in settings["signatures"].items()}
        settings["labels"] = tuple(settings["labels"])
        bundle = Bundle(tokenizer=files, **settings)
        if bundle.kind not in KINDS or not bundle.signatures:
            raise ValueError(f"kind {bundle.kind!r}, {len(bundle.signatures)} signatures")
    except InputError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError(f"{where} carries a damaged {SETTINGS} ({error}). Write the file again") from error
    return bundle


def answer(kind: str, labels: Sequence[str], values: Sequence[float]) -> Any:
    """One row of numbers -> the answer object that `kb.predict` and the phone runtime share.

    Args:
        kind: str, one of KINDS.
        labels: names of the classes.
        values: probabilities in the order of `labels` (classification), one value (regression), or a vector.
    """
    from kerasbert.text import answers

    values = [float(value) for value in values]
    if kind == "classification":
        best = max(range(len(values)), key=values.__getitem__)
        return answers.Classification(labels[best], values[best], dict(zip(labels, values, strict=True)))
    if kind == "regression":
        return answers.Regression(values[0])
    return answers.Vector(values)
