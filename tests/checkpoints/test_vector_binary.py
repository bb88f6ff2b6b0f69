"""Binary files of word vectors at their edges: pieces of a file, numbers of headers, words that hold blanks."""

import io
import struct

import numpy as np
import pytest

from kerasbert.checkpoints import vector_binary
from kerasbert.checkpoints.vector_binary import (
    MAGIC,
    USUAL,
    Stream,
    read_fasttext,
    read_word2vec,
    write_fasttext,
    write_word2vec,
)
from kerasbert.checkpoints.vector_text import LONGEST_WORD, WIDEST
from kerasbert.checkpoints.word_vectors import FastTextVectors, WordVectors
from kerasbert.errors import InputError
from tests.support import Dribble


@pytest.mark.parametrize("count", [1, 2, 3, 7, 100])
def test_a_stream_gives_the_same_in_pieces_of_any_size(count):
    stream = Stream("a", Dribble(b"one two\0" + struct.pack("<if", 7, 0.5) + b"end", count))
    assert stream.ahead(5) == b"one t"
    assert stream.until(b" ", 10, "x") == b"one"
    assert stream.until(b"\0", 10, "x") == b"two"
    assert stream.unpack("if", "x") == (7, 0.5)
    assert stream.ahead(99) == b"end"
    assert stream.more()[:1] == b"e"
    assert stream.take(3, "x") == b"end"
    assert stream.more() == stream.ahead(3) == b""


@pytest.mark.parametrize("count", [1, 100])
def test_a_stream_that_ends_or_goes_on_too_long(count):
    with pytest.raises(InputError, match="a ends in its rows: 2 of 5 bytes are missing. Copy it again"):
        Stream("a", Dribble(b"abc", count)).take(5, "its rows")
    with pytest.raises(InputError, match="a ends in a word. Copy it again"):
        Stream("a", Dribble(b"abc", count)).until(b" ", 9, "a word")
    assert Stream("a", Dribble(b"abc ", count)).until(b" ", 3, "a word") == b"abc"
    for data in (b"abcd ", b"abcdefghij"):
        with pytest.raises(InputError, match="a: more than 3 bytes in a word"):
            Stream("a", Dribble(data, count)).until(b" ", 3, "a word")
    table = np.arange(6, dtype="<f4").reshape(3, 2)
    np.testing.assert_array_equal(Stream("a", Dribble(table.tobytes(), count)).table(3, 2, "x"), table)
    table[1, 1] = np.inf
    with pytest.raises(InputError, match="a, its rows: row 2 holds a number that is not finite"):
        Stream("a", Dribble(table.tobytes(), count)).table(3, 2, "its rows")


def test_the_upper_bytes_of_usual_numbers():
    for value in (2.0**-59, 1e-3, 1.0, 2.0**20 * 1.99):
        for each in (value, -value):
            assert struct.pack("<f", each)[3:] in (bytes([byte]) for byte in USUAL), each
    for value in (2.0**-60, 2.0**21):
        assert struct.pack("<f", value)[3] not in USUAL
    assert sorted(USUAL) == [*range(0x22, 0x4A), *range(0xA2, 0xCA)]


TABLE = np.float32([[0.5, -1.25], [2, 1e-3], [-0.75, 3]])


def word2vec(words, table=TABLE, end=b""):
    data = f"{len(words)} {table.shape[1]}\n".encode()
    return data + b"".join(word + b" " + row.tobytes() + end for word, row in zip(words, table))


@pytest.mark.parametrize("count", [1, 5, 1000])
@pytest.mark.parametrize("end", [b"", b"\n"])
@pytest.mark.parametrize("words", [[b"cat", b"dog", b"old"], [b"new york", b". . .", b"a"], [b"a b c d", b"e", b"f g"]])
def test_words_with_and_without_blanks(words, end, count):
    found = read_word2vec("a.bin", Dribble(word2vec(words, end=end), count))
    assert list(found.words) == [word.decode() for word in words]
    np.testing.assert_array_equal(found.table, TABLE)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"cat dog\n", "is no header of word2vec's .bin, expected two whole numbers"),
        (b"0 2\n", "its header says 0 words of 2 numbers"),
        (b"1 0\n", "its header says 1 words of 0 numbers"),
        (word2vec([b"a", b"b", b"c"]) + b"x", "its header says 3 words of 2 numbers, and more bytes follow"),
        (word2vec([b"a", b"b", b"c"])[:-1], "ends in the vector of word 3 of 3: 1 of 8 bytes are missing"),
        (b"3 2\na " + b"\0" * 8, "ends in word 2 of 3"),
    ],
)
def test_a_file_that_is_none(data, said):
    with pytest.raises(InputError, match=f"a.bin.*{said}"):
        read_word2vec("a.bin", io.BytesIO(data))


def test_a_header_claims_no_more_than_the_file_has(tmp_path):
    path = tmp_path / "a.bin"
    path.write_bytes(word2vec([b"a", b"b", b"c"]))
    with path.open("rb") as file:
        assert len(read_word2vec(path, file).words) == 3
    short = tmp_path / "b.bin"
    short.write_bytes(b"9 2\n" + b"a " * 30)
    said = "its header says 9 words of 2 numbers, and it has 64 bytes. Copy it again"
    with short.open("rb") as file, pytest.raises(InputError, match=said):
        read_word2vec(short, file)


def test_word2vec_there_and_back():
    file = io.BytesIO()
    write_word2vec(file, WordVectors({"cat": None, "é": None, "x": None}, TABLE))
    assert file.getvalue() == word2vec([b"cat", "é".encode(), b"x"])
    for word in ("", "a b", "a\nb"):
        with pytest.raises(InputError, match="holds a blank, which word2vec's .bin cannot"):
            write_word2vec(io.BytesIO(), WordVectors({word: None}, TABLE[:1]))


def vectors(**more):
    words = {"cat": 0, "dog": 1, "old": 2}
    return FastTextVectors(words, TABLE, np.float32([[1, 2], [3, 4]]), 3, 6, **more)


def written(found, output=None):
    file = io.BytesIO()
    write_fasttext(file, found)
    data = file.getvalue()
    if output is not None:  # in the place of zeros
        data = data[: -struct.calcsize("<?qq") - found.own.nbytes]
        data += struct.pack("<?qq", False, *output.shape) + output.tobytes()
    return data


HEADER = struct.calcsize("<2i12id3iqq")


@pytest.mark.parametrize("count", [1, 9, 1000])
def test_fasttext_there_and_back(count):
    settings = {"epoch": 7, "ws": 3, "t": 0.5, "ntokens": 99, "version": 11}
    found = read_fasttext("a.bin", Dribble(written(vectors(settings=settings, counts=[3, 2, 1])), count))
    np.testing.assert_array_equal(found.own, TABLE)
    np.testing.assert_array_equal(found.buckets, [[1, 2], [3, 4]])
    assert (list(found.words), found.least, found.most, list(found.counts)) == (["cat", "dog", "old"], 3, 6, [3, 2, 1])
    assert {name: found.settings[name] for name in settings} == settings
    plain = read_fasttext("a.bin", io.BytesIO(written(vectors())))
    assert (plain.settings["version"], plain.settings["ntokens"], list(plain.counts)) == (12, 3, [1, 1, 1])
    assert {name: plain.settings[name] for name in vector_binary.DEFAULTS} == vector_binary.DEFAULTS


FORM = "<2i12id3iqq"
PLACES = {
    name: i
    for i, name in enumerate(
        ("magic", "version", *vector_binary.FIELDS, "entries", "words", "labels", "tokens", "pruned")
    )
}


def changed(**fields):
    """A file of fastText with other numbers in its header."""
    data = written(vectors())
    values = [*struct.unpack(FORM, data[:HEADER])]
    for name, value in fields.items():
        values[PLACES[name]] = value
    return struct.pack(FORM, *values) + data[HEADER:]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"magic": MAGIC + 1}, "is no .bin of fastText"),
        ({"version": 10}, r"is no .bin of fastText \(version 10\)"),
        ({"version": 13}, r"is no .bin of fastText \(version 13\)"),
        ({"model": vector_binary.SUPERVISED}, r"is a supervised model of fastText \(0 labels\)"),
        ({"labels": 1, "entries": 4}, r"is a supervised model of fastText \(1 labels\)"),
        ({"words": 0, "entries": 0}, "its header says 0 entries, 0 words, 0 labels: it is damaged"),
        ({"labels": -1, "entries": 2}, "its header says 2 entries, 3 words, -1 labels"),
        ({"entries": 4}, "its header says 4 entries, 3 words"),
        ({"dim": 0}, "its header says 0 numbers"),
        ({"dim": WIDEST + 1}, f"its header says {WIDEST + 1} numbers"),
        ({"bucket": -1}, "-1 buckets"),
        ({"minn": -1}, "n-grams of -1 to 6"),
        ({"minn": LONGEST_WORD + 1}, f"n-grams of {LONGEST_WORD + 1} to 6"),
        ({"maxn": LONGEST_WORD + 1}, f"n-grams of 3 to {LONGEST_WORD + 1}"),
        ({"maxn": -1}, "n-grams of 3 to -1"),
        ({"pruned": 1}, "is a quantized model of fastText"),
        ({"bucket": 3}, "a table of 5 x 2, and its header says 3 words, 3 buckets, 2 numbers: it is damaged"),
        ({"dim": 3}, "a table of 5 x 2, and its header says 3 words, 2 buckets, 3 numbers"),
    ],
)
def test_numbers_of_a_header_that_lie(fields, said):
    with pytest.raises(InputError, match=f"a.bin.*{said}"):
        read_fasttext("a.bin", io.BytesIO(changed(**fields)))


@pytest.mark.parametrize(
    "fields", [{"version": 11}, {"pruned": 0}, {"minn": 0}, {"minn": LONGEST_WORD}, {"maxn": LONGEST_WORD}]
)
def test_numbers_of_a_header_at_their_edges(fields):
    assert len(read_fasttext("a.bin", io.BytesIO(changed(**fields))).words) == 3


def test_without_ngrams_there_are_no_buckets():
    none = FastTextVectors({"cat": 0, "dog": 1, "old": 2}, TABLE, np.zeros((0, 2), "float32"), 0, 0)
    data = written(none)
    values = [*struct.unpack(FORM, data[:HEADER])]
    values[PLACES["bucket"]] = 2_000_000  # as fastText writes its default
    found = read_fasttext("a.bin", io.BytesIO(struct.pack(FORM, *values) + data[HEADER:]))
    assert found.buckets.shape == (0, 2)


@pytest.mark.parametrize("rows", [0, 2, 3])
def test_an_output_layer(rows):
    output = np.ones((rows, 2), "float32")
    found = read_fasttext("a.bin", io.BytesIO(written(vectors(), output)))
    np.testing.assert_array_equal(found.output, output)
    for wrong in (np.ones((4, 2), "float32"), np.ones((3, 1), "float32")):
        with pytest.raises(InputError, match="an output layer of .* expected at most 3 x 2: it is damaged"):
            read_fasttext("a.bin", io.BytesIO(written(vectors(), wrong)))


@pytest.mark.parametrize(("row", "absurd"), [(2, False), (1, True)])
def test_rows_of_absurd_numbers(row, absurd):
    table = np.ones((4, 2), "float32")
    table[row:, 0] = vector_binary.ABSURD * 2
    if absurd:
        with pytest.raises(InputError, match="here: its rows are shifted: 3 of 4 hold absurd numbers"):
            vector_binary._usual(table, "here")
    else:
        assert vector_binary._usual(table, "here") is table


@pytest.mark.parametrize(
    ("after", "right"),
    [
        (b"word ", True),
        (b"\nword ", True),
        (b"nothing", True),
        (b"", True),
        (b"\x01 ", False),
        (b"a\x7f ", False),
        (" é ".encode()[1:], True),
    ]
    + [
        ("é".encode()[:1] + b" ", False),
        (b"a" + "é".encode()[:1] + b" ", True),
        (b"\xff\xfe ", False),
        (b"new-york ", True),
    ],
)
def test_whether_a_word_begins(after, right):
    assert vector_binary._begins(after) is right
