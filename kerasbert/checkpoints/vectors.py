"""Files of word vectors, in and out: word2vec, fastText, GloVe. numpy alone; gz and the like are unpacked."""

import codecs
import gzip
import os
from pathlib import Path
from typing import BinaryIO, cast

from kerasbert import progress
from kerasbert.checkpoints import vector_binary, vector_text
from kerasbert.checkpoints.json_files import read_json
from kerasbert.checkpoints.vector_binary import MAGIC, read_fasttext, read_word2vec, write_fasttext, write_word2vec
from kerasbert.checkpoints.vector_text import Skipped, is_header, read_text, write_text
from kerasbert.checkpoints.word_vectors import FastTextVectors, WordVectors
from kerasbert.data.reading import plain_name, unpacked
from kerasbert.errors import InputError, no_file, unknown
from kerasbert.storage import files
from kerasbert.storage.json_view import Json
from kerasbert.storage.remote import size

__all__ = ["FORMATS", "FastTextVectors", "WordVectors", "format_of", "read_vectors", "settings_of", "write_vectors"]

FORMATS = {  # name -> the file's name in a directory of vectors
    "vec": "vectors.vec",  # word2vec's and fastText's text, with a header
    "bin": "vectors.bin",  # word2vec's
    "glove": "vectors.txt",  # text without a header
    "fasttext": "fasttext.bin",  # with the n-grams
}
ABOUT = "vectors.json"  # of a directory of vectors
HEAD = 2**14  # bytes that tell a format


def read_vectors(path: str | os.PathLike, format: str | None = None) -> WordVectors:
    """The word vectors of a file, or of a directory that `kerasbert vectors` wrote.

    Args:
        path: the file, packed (gz, bz2, xz, zst) or not.
        format: one of FORMATS; None: told by the file's content.

    Words that are not UTF-8, occur again or are empty are skipped; lines on stderr say how many.

    Raises:
        InputError: no such file, another format, a damaged file: one line with the file and, of a text, the line.
    """
    if format is not None and format not in FORMATS:
        raise unknown("format of vectors", format, FORMATS, ", ".join(FORMATS))
    path = _file(path)
    format = format or format_of(path)
    skipped = Skipped(path, vector_text.CURE if format in ("vec", "glove") else vector_binary.CURE)
    with unpacked(path) as file:
        if format == "fasttext":
            vectors: WordVectors = read_fasttext(path, file, skipped)
        elif format == "bin":
            vectors = read_word2vec(path, file, skipped)
        else:
            vectors = read_text(path, file, format == "vec", skipped)
    left_out = sum(count for reason, count in skipped.counts.items() if "skipped" in reason)
    progress.say(*skipped.lines(len(vectors) + left_out))
    return vectors


def write_vectors(vectors: WordVectors, path: str | os.PathLike, format: str) -> None:
    """Write word vectors, whole or not at all; packed where the name ends in .gz.

    Raises:
        InputError: a word that the format cannot hold, no n-grams for "fasttext", a disk that is full.
    """
    if format not in FORMATS:
        raise unknown("format of vectors", format, FORMATS, ", ".join(FORMATS))
    with files.new_file(path) as part, open(part, "wb") as plain:
        packed = Path(path).suffix == ".gz"
        file = cast(BinaryIO, gzip.GzipFile("", "wb", fileobj=plain, mtime=0)) if packed else plain
        if format == "fasttext":
            write_fasttext(file, vectors)
        elif format == "bin":
            write_word2vec(file, vectors)
        else:
            write_text(file, vectors, header=format == "vec")
        if file is not plain:
            file.close()


def format_of(path: str | os.PathLike) -> str:
    """The format of a file, one of FORMATS, by its first bytes."""
    with unpacked(path) as file:
        head = b""
        while len(head) < HEAD and (part := file.read(HEAD - len(head))):
            head += part
    if head[:4] == MAGIC.to_bytes(4, "little"):
        return "fasttext"
    if head[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        raise InputError(f"{path} is UTF-16, expected UTF-8. Convert it: iconv -f utf-16 -t utf-8")
    line, feed, rest = head.removeprefix(codecs.BOM_UTF8).partition(b"\n")
    if not feed or not is_header(line):
        return "glove"
    controls = sum(byte < 9 or 13 < byte < 32 for byte in rest)
    return "bin" if plain_name(path).suffix == ".bin" or controls > 0.005 * len(rest) else "vec"


def settings_of(path: str | os.PathLike) -> Json:
    """What the vectors of a directory were learned with; nothing is known of a file's."""
    about = Path(path) / ABOUT
    settings = read_json(about).get("settings") if about.is_file() else None
    return settings if isinstance(settings, dict) else {}


def _file(path: str | os.PathLike) -> str | os.PathLike:
    """The file of vectors that a path names."""
    if Path(path).is_dir():
        about = Path(path) / ABOUT
        name = read_json(about).get("file") if about.is_file() else None
        if not isinstance(name, str) or Path(name).name != name:
            raise InputError(
                f"{path} is no directory of vectors (no {ABOUT}): name a file, or make one: kerasbert vectors"
            )
        path = Path(path) / name
    if size(path) is None:
        raise no_file(path, "file of vectors")
    return path
