"""Bytes of a file -> text: read wherever the file is, unpacked, decoded, and refused where they are no text.

Text is UTF-8 unless a byte order mark or the caller says otherwise. Bytes that do not decode are an error that names the
likeliest encoding: a replacement character would train a model on damaged words. gz, bz2 and xz are unpacked by the
standard library, zst by `zstandard` (extra `formats`); they are told by their first bytes, not by the name. Neither a
file nor what it unpacks to is ever in memory, only a chunk and a line.
"""

import codecs
import contextlib
import contextvars
import itertools
import os
import re
import zlib
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath
from typing import Any, BinaryIO, Protocol

from kerasbert.data.encodings import by_zeros, guess
from kerasbert.errors import InputError, is_pipe, near, no_file
from kerasbert.storage.remote import is_remote, opened
from kerasbert.within import within

HEAD = 2**16  # bytes that tell what a file is
CHUNK = 2**17  # bytes read at once: half of the cache, and twice as fast as a megabyte
LONGEST = 2**28  # characters in a line, or in an object of a json array: more is no text, or unpacks without end
# a packed file may unpack to so many bytes, beyond that to so many times its own size; text unpacks to 10 times
BOMB, SWELLS = 2**25, 100
MARKS = (  # the longer ones first: UTF-32's begins with UTF-16's
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
PACKED = {b"\x1f\x8b": "gz", b"BZh": "bz2", b"\xfd7zXZ\x00": "xz", b"\x28\xb5\x2f\xfd": "zst"}
ENDINGS = (".gz", ".bz2", ".xz", ".zst")
PARQUET = b"PAR1"
OTHERS = (  # first bytes of what is no text, and what to do
    (b"version https://git-lfs.github.com/spec/", "a git-lfs pointer, not the file itself: git lfs pull"),
    (b"%PDF-", "a PDF: extract its text first (pdftotext)"),
    (b"PK\x03\x04", "a zip archive (as docx, xlsx, odt and epub are): unpack it, or save it as text or csv"),
    (b"\xd0\xcf\x11\xe0", "an old Office document: save it as text or csv"),
    (b"\x7fELF", "a program"),
    (b"{\\rtf", "a document in RTF: save it as plain text"),
    (b"%!PS", "PostScript: extract its text first (ps2txt)"),
)
WORKBOOKS = (".xlsx", ".xlsm", ".xls", ".ods", ".numbers")
MARKUP = re.compile(r"\s*<(!doctype|html|\?xml|mediawiki|head|body)\b", re.IGNORECASE)
MARKUP_NAMES = (".html", ".htm", ".xhtml", ".xml")
_DEFAULT: contextvars.ContextVar[str | None] = contextvars.ContextVar("encoding", default=None)
CONTROLS = dict.fromkeys([*range(9), *range(14, 27), *range(28, 32), 127])


def plain_name(path: str | os.PathLike) -> PurePosixPath:
    """A file's name without the ending of a packed one: a.jsonl.gz -> a.jsonl."""
    name = PurePosixPath(os.fspath(path).replace(os.sep, "/"))
    return name.with_suffix("") if name.suffix.lower() in ENDINGS else name


def check_encoding(encoding: str | None) -> str | None:
    """The canonical name of an encoding of text, None for UTF-8.

    Raises:
        InputError: no such encoding.
    """
    if encoding is None:
        return None
    try:
        found = codecs.lookup(encoding)
        "a".encode(encoding)
    except (LookupError, TypeError, UnicodeError):
        known = "utf-8 utf-16 cp1250 cp1251 cp1252 latin-1 koi8-r koi8-u shift_jis euc-jp euc-kr gb18030 big5".split()
        raise InputError(
            f"no encoding {encoding!r}. {near(encoding, known)}. Expected a name that Python knows, such as cp1250"
        ) from None
    return None if found.name == "utf-8" else found.name


def default_encoding(encoding: str | None) -> contextlib.AbstractContextManager[object]:
    """In this block files that no encoding is given for have this one: the rows of tasks are read far below a command.

    Raises:
        InputError: no such encoding.
    """
    return within(_DEFAULT, check_encoding(encoding))


def chosen_encoding(encoding: str | None) -> str | None:
    """The encoding that is given, else that of `default_encoding`; None for UTF-8."""
    return check_encoding(encoding) or _DEFAULT.get()


def codec_of(path: str | os.PathLike) -> str:
    """The encoding of a file: that of its byte order mark (`utf-8-sig` for UTF-8's), the chosen one, or `utf-8`."""
    with unpacked(path) as file:
        head = _read(file, 4)
    mark = next((name for mark, name in MARKS if head.startswith(mark)), None)
    return "utf-8-sig" if mark == "utf-8" else mark or chosen_encoding(None) or "utf-8"


def is_utf8(path: str | os.PathLike) -> bool:
    """Whether a file is UTF-8 with letters beyond ASCII, which hardly ever happens by chance."""
    decoder, beyond = codecs.getincrementaldecoder("utf-8")(), False
    with unpacked(path) as file:
        try:
            while chunk := _read(file, CHUNK):
                beyond = not decoder.decode(chunk).isascii() or beyond
            decoder.decode(b"", True)
        except UnicodeDecodeError:
            return False
    return beyond


class ByteReader(Protocol):
    """A file, or what unpacks one: it gives at most so many bytes at a time, and none at its end."""

    def read(self, count: int, /) -> bytes:
        """The next bytes."""
        ...


@contextlib.contextmanager
def unpacked(path: str | os.PathLike) -> Iterator[Any]:
    """A file's bytes, unpacked where it is gz, bz2, xz or zst.

    Raises:
        InputError: it cannot be read, or its end or its checksum is wrong.
    """
    if not is_remote(path) and is_pipe(path):
        raise no_file(path)
    try:
        kind = packing_of(path)
        with contextlib.ExitStack() as stack:
            file = stack.enter_context(opened(path))
            yield _Bounded(stack.enter_context(_unpacker(kind, file)), file, path) if kind else file
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    except Exception as error:
        if isinstance(error, EOFError | zlib.error) or type(error).__name__ in ("LZMAError", "ZstdError"):
            raise InputError(f"cannot unpack {path}: {error}. Copy it again") from error
        raise


def packing_of(path: str | os.PathLike) -> str | None:
    """gz, bz2, xz or zst by the first bytes, None for a file that is not packed."""
    with opened(path) as file:
        first = file.read(6)
    return next((kind for magic, kind in PACKED.items() if first.startswith(magic)), None)


def _unpacker(kind: str, file: BinaryIO) -> contextlib.AbstractContextManager[ByteReader]:
    if kind == "gz":
        import gzip

        return gzip.GzipFile(fileobj=file)
    if kind == "bz2":
        import bz2

        return bz2.BZ2File(file)
    if kind == "xz":
        import lzma

        return lzma.LZMAFile(file)
    import zstandard

    return zstandard.ZstdDecompressor(max_window_size=2**31).stream_reader(file, read_across_frames=True)


class _Bounded:
    """An unpacked file whose content may not swell without end: a megabyte that becomes gigabytes of rows fills the memory."""

    def __init__(self, file: ByteReader, packed: BinaryIO, path: str | os.PathLike) -> None:
        self.file, self.packed, self.path, self.given = file, packed, path, 0

    def read(self, count: int) -> bytes:
        found = self.file.read(count)
        self.given += len(found)
        if self.given > BOMB:
            check_swollen(self.path, self.given, self.packed.tell())
        return found


def check_swollen(path: str | os.PathLike, given: int, packed: int) -> None:
    """Refuse a file of which more came than of any packed text.

    Args:
        given: int, bytes so far. packed: int, bytes of the file that they came of.
    """
    if given > max(BOMB, SWELLS * packed):
        raise InputError(
            f"{path} unpacks to more than {SWELLS} times its size ({given / 1e6:,.0f} MB so far), expected packed text: is it "
            "the right file? If so, unpack it first and give what comes out"
        )


def is_parquet(path: str | os.PathLike) -> bool:
    """Whether a file begins as Apache Parquet's do."""
    with opened(path) as file:
        return file.read(4) == PARQUET


def text_chunks(path: str | os.PathLike, encoding: str | None = None) -> Iterator[str]:
    """A file's text piece by piece, without a byte order mark.

    Args:
        path: a file, or an address such as gs://bucket/a.txt.gz.
        encoding: name of the encoding where it is not UTF-8; a byte order mark goes before it.

    Raises:
        InputError: what is no text, or bytes that do not decode, with the file, the line and the likeliest encoding.
    """
    encoding = chosen_encoding(encoding)
    with unpacked(path) as file:
        head = _read(file, HEAD)
        mark, codec = next(((mark, name) for mark, name in MARKS if head.startswith(mark)), (b"", encoding or "utf-8"))
        _refuse_others(path, head, codec)
        decode = codecs.getincrementaldecoder(codec)("strict").decode
        line = 1
        for chunk in itertools.chain([head[len(mark) :]], iter(lambda: file.read(CHUNK), b""), [b""]):
            try:
                text = decode(chunk, not chunk)
            except UnicodeDecodeError as error:
                raise _undecodable(path, line, error, codec, bool(mark)) from None
            except UnicodeError as error:  # a form without its mark
                raise InputError(f"{path} is not {codec}: {error}. Leave --encoding out, or name another") from None
            if "\0" in text:
                line += text[: text.index("\0")].count("\n")
                raise InputError(
                    f"{path}, line {line}: a NUL character, which no text holds. Is the file damaged? Save it again"
                )
            if text:
                line += text.count("\n")
                yield text


def _read(file: ByteReader, count: int) -> bytes:
    """So many bytes, or all there are: a decompressor may give fewer at once."""
    parts = []
    while count > 0 and (part := file.read(count)):
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def _refuse_others(path: str | os.PathLike, head: bytes, codec: str) -> None:
    found = _other(head)
    text, ending = head.decode(codec, "ignore"), plain_name(path).suffix.lower()
    if found and ending in WORKBOOKS:
        found = "a workbook: save its sheet as csv (in Excel: CSV UTF-8) and give that"
    if ending in MARKUP_NAMES or MARKUP.match(text):
        found = "HTML or XML: extract its text first (trafilatura, or wikiextractor for Wikipedia's dumps)"
    if found:
        raise InputError(f"{path} is {found}")
    if codec == "utf-8" and (wide := by_zeros(head[:4096])):
        raise InputError(f"{path} is probably {wide}, expected UTF-8: pass --encoding {wide}")
    controls = len(text) - len(text.translate(CONTROLS))
    if "\0" in text or controls > 0.005 * len(text):
        raise InputError(
            f"{path} is no text: {controls} of its first {len(text)} characters are control characters. "
            "Expected text, jsonl, json, tsv, csv or parquet, perhaps packed (gz, bz2, xz, zst)"
        )


def _other(head: bytes) -> str | None:
    """What begins so and is no text, and what to do."""
    if head[257:262] == b"ustar":
        return "a tar archive: unpack it and name its files"
    return next((what for magic, what in OTHERS if head.startswith(magic)), None)


def _undecodable(
    path: str | os.PathLike, line: int, error: UnicodeDecodeError, codec: str, marked: bool = False
) -> InputError:
    data: bytes = error.object
    line += data[: error.start].decode(codec, "ignore").count("\n")
    begin = data.rfind(b"\n", 0, max(0, error.start - HEAD // 4)) + 1
    likely = guess(data[begin : begin + HEAD])
    codec = "UTF-8" if codec == "utf-8" else codec
    if likely == "utf-8" and codec == "UTF-8":
        advice = "Most of it is UTF-8: mend the line, or drop such bytes with iconv -c -f utf-8 -t utf-8"
    elif marked:
        advice = f"Its byte order mark says {codec}, and it goes on otherwise ({likely or 'unknown'}): save it in one encoding"
    elif likely and likely.lower() != codec.lower():
        advice = f"It is probably {likely}: pass --encoding {likely}"
    else:
        advice = "No encoding known here fits: is it text?"
    return InputError(f"{path}, line {line}: byte 0x{data[error.start]:02x} is not {codec}. {advice}")


def line_lists(path: str | os.PathLike, encoding: str | None = None) -> Iterator[list[str]]:
    """The lines of a file, some thousands at once, without the line feed that ends each.

    Raises:
        InputError: see `text_chunks`; or a line of more than LONGEST characters.
    """
    yield from lines_of(text_chunks(path, encoding), path)


def lines_of(chunks: Iterable[str], path: str | os.PathLike) -> Iterator[list[str]]:
    """`line_lists` of a file's `text_chunks`."""
    waiting: list[str] = []
    length = 0
    for text in chunks:
        lines = text.split("\n")
        if len(lines) > 1:
            waiting.append(lines[0])
            lines[0] = "".join(waiting)
            waiting, length = [lines.pop()], 0
            yield lines
        else:
            waiting.append(text)
            length += len(text)
            if length > LONGEST:
                raise InputError(f"{path} has a line of more than {LONGEST:,} characters. Break the text into lines")
    if last := "".join(waiting):
        yield [last]


def numbered_lines(path: str | os.PathLike, encoding: str | None = None) -> Iterator[tuple[int, str]]:
    """The lines of a file with their numbers, without what ends them: a line feed, and a carriage return before it."""
    lines = itertools.chain.from_iterable(line_lists(path, encoding))
    return ((number, line.removesuffix("\r")) for number, line in enumerate(lines, 1))


def whole(path: str | os.PathLike, encoding: str | None = None) -> str:
    """All text of a file, for formats that are one object, such as SQuAD's json; raises as `text_chunks`."""
    return "".join(text_chunks(path, encoding))


class Stream:
    """The lines of a stream as they come, such as the standard input's: decoded as a file's, but never ended by a bad line.

    A line that does not decode gets replacement characters, and is counted; what is no text at all is refused.

    Attributes:
        damaged: numbers of the lines that did not decode. encoding: str.
    """

    def __init__(self, stream: Iterable[str | bytes], encoding: str | None = None) -> None:
        self.stream, self.name = stream, "the standard input"
        self.encoding, self.damaged, self.likely = chosen_encoding(encoding) or "utf-8", [], None

    def __iter__(self) -> Iterator[str]:
        lines = iter(getattr(self.stream, "buffer", self.stream))
        for number, line in enumerate(lines, 1):
            if isinstance(line, str):  # a stream of text, which was decoded
                yield line.rstrip("\n").removesuffix("\r")
                continue
            line = self._first(line) if number == 1 else line
            try:
                text = line.decode(self.encoding)
            except UnicodeDecodeError:
                self.damaged.append(number)
                self.likely = self.likely or guess(line)
                text = line.decode(self.encoding, "replace")
            yield text.rstrip("\n").removesuffix("\r")

    def _first(self, line: bytes) -> bytes:
        """The first line without a byte order mark; refused where it begins as no text does."""
        packed = next((kind for magic, kind in PACKED.items() if line.startswith(magic)), None)
        if packed:
            raise InputError(
                f"{self.name} is packed ({packed}), expected lines of text: unpack it, for instance with zcat"
            )
        mark, codec = next(((mark, name) for mark, name in MARKS if line.startswith(mark)), (b"", self.encoding))
        wide = codec if codec.startswith(("utf-16", "utf-32")) else by_zeros(line[:4096])
        if wide:
            raise InputError(f"{self.name} is {wide}, expected lines of UTF-8: convert it (iconv -f {wide} -t utf-8)")
        if mark:
            self.encoding = codec
        if found := _other(line):
            raise InputError(f"{self.name} is {found}")
        return line[len(mark) :]

    def told(self) -> list[str]:
        """What a user cannot see: lines that were read with replacement characters."""
        if not self.damaged:
            return []
        advice = (
            f"It is probably {self.likely}: pass --encoding {self.likely}" if self.likely else "Pass --encoding NAME"
        )
        lines = "line" if len(self.damaged) == 1 else "lines"
        return [
            f"{len(self.damaged)} {lines} of {self.name} did not decode as {self.encoding}, the first is line "
            f"{self.damaged[0]}: replacement characters were read there. {advice}"
        ]
