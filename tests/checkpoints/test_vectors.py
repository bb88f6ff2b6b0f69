"""Files of word vectors in and out, fastText's words of n-grams, and files that are damaged or lie."""

import gzip
import struct

import numpy as np
import pytest

from kerasbert.checkpoints import vector_binary
from kerasbert.checkpoints import vectors as files
from kerasbert.checkpoints.vectors import FastTextVectors, WordVectors, read_vectors, write_vectors
from kerasbert.checkpoints.word_vectors import ngram_buckets
from kerasbert.errors import InputError

WORDS = ["the", "été", "日本", "a-b"]
TABLE = np.array([[0.1, -2.5e-8, 3], [1 / 3, 16777216, -0.0], [5, 6, 7], [1e30, 0, 1]], np.float32)


def fasttext() -> FastTextVectors:
    rng = np.random.default_rng(3)
    own, buckets, output = (rng.normal(size=(rows, 3)).astype(np.float32) for rows in (4, 11, 4))
    return FastTextVectors(WORDS, own, buckets, 2, 4, output=output, counts=[9, 5, 3, 2])


@pytest.mark.parametrize("packed", ["", ".gz"])
@pytest.mark.parametrize("format", ["vec", "bin", "glove"])
def test_every_format_is_read_as_it_was_written(tmp_path, format, packed):
    path = tmp_path / (files.FORMATS[format] + packed)
    write_vectors(WordVectors(WORDS, TABLE), path, format)
    assert files.format_of(path) == format
    found = read_vectors(path)
    assert found.words == tuple(WORDS)
    assert found.table.tobytes() == TABLE.tobytes()
    again = tmp_path / f"again{packed}"
    write_vectors(found, again, format)
    assert again.read_bytes() == path.read_bytes()
    assert sorted(tmp_path.iterdir()) == sorted([path, again])


def test_files_as_others_write_them(tmp_path):
    path = tmp_path / "a.vec"  # fastText ends each line by a blank
    path.write_bytes("2 3\n</s> 0.5 1 -1 \nété 1e-3 2 3 \n".encode())
    assert read_vectors(path).words == ("</s>", "été")
    path.write_bytes(b". . . 1 2\nat name@domain.com 3 4\nthe 5 6\r\n\nthe 7 8\n")  # GloVe's words may hold blanks
    found = read_vectors(path)
    assert (found.words, found.table.tolist()) == ((". . .", "at name@domain.com", "the"), [[1, 2], [3, 4], [5, 6]])
    path = tmp_path / "a.bin"  # the original word2vec ends each vector by a line feed
    path.write_bytes(b"2 1\na " + struct.pack("<f", 1) + b"\nb " + struct.pack("<f", 0.5) + b"\n")
    assert read_vectors(path).table.tolist() == [[1], [0.5]]


@pytest.mark.parametrize("chunk", [5, 64, 2**20])
def test_fasttext_file_is_read_as_it_was_written(tmp_path, monkeypatch, chunk):
    monkeypatch.setattr(vector_binary, "CHUNK", chunk)
    vectors = fasttext()
    write_vectors(vectors, tmp_path / "a.bin", "fasttext")
    found = read_vectors(tmp_path / "a.bin")
    assert isinstance(found, FastTextVectors)
    assert (found.words, found.least, found.most, list(found.counts)) == (tuple(WORDS), 2, 4, [9, 5, 3, 2])
    for word in [*WORDS, "unseen", "日"]:
        np.testing.assert_array_equal(found.vector(word), vectors.vector(word))
    write_vectors(found, tmp_path / "b.bin", "fasttext")
    assert (tmp_path / "a.bin").read_bytes() == (tmp_path / "b.bin").read_bytes()
    write_vectors(found, tmp_path / "a.vec", "vec")  # the composed ones
    np.testing.assert_array_equal(read_vectors(tmp_path / "a.vec").table, vectors.table)


def test_ngrams_are_hashed_by_hand():
    """FNV-1a of 32 bits; "é" is C3 A9, both above 127: signed, they flip the upper 24 bits."""

    def fnv(spelled):
        value = 2166136261
        for byte in spelled:
            value = ((value ^ (byte if byte < 128 else byte + 0xFFFFFF00)) * 16777619) % 2**32
        return value

    parts = ["<é", "<éa", "é", "éa", "éa>", "a", "a>"]  # neither < nor > alone
    assert list(ngram_buckets("éa", 1, 3, 1000)) == [fnv(part.encode()) % 1000 for part in parts]
    assert fnv(b"a") == 0xE40C292C  # of the hash's own test vectors


def test_words_of_ngrams_are_means_by_hand():
    buckets = np.arange(8, dtype=np.float32).reshape(4, 2)
    vectors = FastTextVectors(["ab"], np.array([[10, 20]], np.float32), buckets, 3, 3)
    seen, unseen = (list(ngram_buckets(word, 3, 3, 4)) for word in ("ab", "c"))
    assert (len(seen), len(unseen)) == (2, 1)
    np.testing.assert_allclose(vectors.vector("ab"), ([10, 20] + buckets[seen].sum(0)) / 3, rtol=1e-6)
    np.testing.assert_array_equal(vectors.vector("c"), buckets[unseen[0]])
    assert vectors.vector("").tolist() == [0, 0]  # "<>" has no n-gram of three
    np.testing.assert_array_equal(vectors.table[0], vectors.vector("ab"))


def test_nearest_by_hand():
    table = np.array([[1, 0], [2, 0], [0, 1], [-1, 0], [0, 0]], np.float32)
    vectors = WordVectors("abcde", table)
    assert vectors.nearest("a", 9) == [("b", 1.0), ("c", 0.0), ("e", 0.0), ("d", -1.0)]
    assert [word for word, _ in vectors.nearest("a", 2)] == ["b", "c"]
    with pytest.raises(InputError, match="no vector of the word 'A' among 5 words. Nearest: 'a'"):
        vectors.nearest("A")
    with pytest.raises(InputError, match="number of words must be at least 1. Received: 0"):
        vectors.nearest("a", 0)


HOSTILE = {
    "ragged": (b"2 3\na 1 2 3\nb 1 2\n", r"a.vec, line 3: 2 numbers, expected 3 after the word"),
    "two widths": (b"a 1 2\nb 1 2\nc 1 2 3\n", r"a.vec, line 3: 3 numbers, expected 2 after the word"),
    "short": (b"a 1 2\nb 1\n", r"a.vec, line 2: 1 numbers, expected 2"),
    "too many announced": (
        b"9 1\n" + b"a 1  \nb 1          \nc 1                \n",
        r"a.vec: its header says 9 words, and 3",
    ),
    "far too many": (
        b"9999999999 300\na 1\n",
        r"its header says 9,999,999,999 words of 300 numbers, and it has 19 bytes",
    ),
    "too few announced": (b"1 1\na 1\nb 1\n", r"a.vec: its header says 1 words, and 2 follow"),
    "no width": (b"2 0\na 1\n", r"its header says 2 words of 0 numbers"),
    "wide": (b"1 70000\na 1\n", r"words of 70,000 numbers, expected 1 to 65,536"),
    "no number": (b"a 1 2\nb 1 x\n", r"a.vec, line 2: 'x' is no number"),
    "underscore": (b"a 1 2\nb 1 1_0\n", r"a.vec, line 2: '1_0' is no number"),
    "not finite": (b"a 1 2\nb 1 nan\n", r"a.vec, line 2: a number of 'b' is not finite"),
    "overflow": (b"a 1 2\nb 1 1e39\n", r"a.vec, line 2: a number of 'b' is not finite"),
    "long word": (
        b"a 1 2\n" + b"b" * 10_000 + b" 1 2\n",
        r"a.vec, line 2: a word of more than 1,000 characters \(10,000 bytes\)",
    ),
    "a longer than it may be": (b"b" * 1001 + b" 1 2\n", r"line 1: a word of 1,001 characters, expected at most 1,000"),
    "another encoding": (
        b"\xe9t\xe9 1 2\nna\xefve 1 2\na 1 2\n",
        r"a.vec: 2 of 3 words are not UTF-8: it has another encoding. Convert the file: iconv -f ENCODING -t utf-8",
    ),
    "UTF-16": ("a 1 2\nb 1 2\n".encode("utf-16"), r"a.vec is UTF-16, expected UTF-8. Convert it: iconv -f utf-16"),
    "commas between": (b"a,0.1,0.2\n", r"line 1: .* Commas stand between them: write blanks or tabs"),
    "decimal commas": (b"a 0,1 0,2\n", r"line 1: .* The numbers have decimal commas: write points"),
    "hexadecimal": (b"a 0.5 1\nb 0x1p-3 1\n", r"line 2: '0x1p-3' is no number"),
    "a real too many": (b"a .1 .2\nb .1 .2 .3\nc .1 .2\n", r"line 2: 3 numbers, expected 2 after the word"),
    "U+00A0 after the word": ("a\u00a00.1 0.2 0.3\n".encode() * 2, r"line 1: 3 numbers, expected 2 after the word"),
    "a header with too few": (b"2 2\na 7 .1 .2\nb 8 .1 .2\n", r"most words end in a number \('a 7'\)"),
    "a header with too many": (b"2 3\na .1 .2 .3\nb .1 .2\n", r"line 3: 2 numbers, expected 3 after the word"),
    "no word": (b"a 1 2\n 1 2\n", r"a.vec, line 2: 1 numbers, expected 2"),
    "empty": (b"", r"a.vec holds no word vectors: it is empty"),
    "a header alone": (
        b"1 1\n",
        r"its header says 1 words of 1 numbers, and it has 4 bytes|says 1 words, and 0 follow",
    ),
    "prose": (b"It was the best of times\n", r"a.vec, line 1: 'It was the best of times' is no word and its numbers"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_damaged_text_is_one_line(tmp_path, name):
    content, message = HOSTILE[name]
    (tmp_path / "a.vec").write_bytes(content)
    with pytest.raises(InputError, match=message) as error:
        read_vectors(tmp_path / "a.vec")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("width", [1, 2, 5])
def test_a_header_may_claim_the_shortest_rows_that_a_file_can_hold(tmp_path, width):
    """A letter, and a blank and a digit for each number: one row more cannot be there."""
    rows = b"".join(bytes([97 + i]) + b" 1" * width + b"\n" for i in range(26))

    def claimed(words):
        (tmp_path / "a.vec").write_bytes(b"%d %d\n" % (words, width) + rows)
        return read_vectors(tmp_path / "a.vec")

    assert claimed(26).table.shape == (26, width)
    held = (tmp_path / "a.vec").stat().st_size
    most = (held + 2) // (2 * width + 2)  # the header's own bytes may be rows
    for words in range(27, most + 1):
        with pytest.raises(InputError, match=f"says {words} words, and 26 follow"):
            claimed(words)
    with pytest.raises(InputError, match=f"numbers, and it has {held} bytes. Copy it again"):
        claimed(most + 1)


def binary(words=2, width=2, names=("a", "b")) -> bytes:
    rows = b"".join(name.encode() + b" " + struct.pack(f"<{width}f", *range(width)) for name in names)
    return f"{words} {width}\n".encode() + rows


BINARY = {
    "truncated vector": (binary()[:-3], r"a.bin ends in the vector of word 2 of 2: 3 of 8 bytes are missing"),
    "truncated word": (binary(names=("a" * 20, "b"))[:-9], r"a.bin ends in word 2 of 2"),
    "header lies": (binary(words=1), r"its header says 1 words of 2 numbers, and more bytes follow"),
    "far too many": (binary(words=10**9), r"its header says 1,000,000,000 words of 2 numbers, and it has \d+ bytes"),
    "another encoding": (
        binary().replace(b"a", b"\xe9").replace(b"b", b"\xe4"),
        r"2 of 2 words are not UTF-8: it has another encoding. Convert the corpus to UTF-8 and train again",
    ),
    "float64": (
        b"2 2\n" + b"".join(name + b" " + struct.pack("<2d", 0.1, 0.2) + b"\n" for name in (b"a", b"b")),
        r"a.bin.* rows are shifted",
    ),
    "a header with too few": (
        b"3 2\n" + b"".join(b"w%d " % i + struct.pack("<3f", 0.1, 0.2, 0.3) + b"\n" for i in range(3)),
        r"a.bin.* rows are shifted|more bytes follow",
    ),
    "long word": (
        binary(names=("a", "b" * 10_000)),
        r"more than 4,000 bytes in word 2 of 2, expected at most 1,000 characters",
    ),
    "not finite": (binary()[:-4] + struct.pack("<f", np.nan), r"a.bin: row 2 holds a number that is not finite"),
}


@pytest.mark.parametrize("name", BINARY)
def test_a_damaged_bin_is_one_line(tmp_path, name):
    content, message = BINARY[name]
    (tmp_path / "a.bin").write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_vectors(tmp_path / "a.bin")


SEPARATED = {  # each two words of three numbers
    "a tab after the word": b"the\t0.1 -0.2 0.3\nx\t1 2 3\n",
    "tabs everywhere": b"2\t3\nthe\t0.1\t-0.2\t0.3\nx\t1\t2\t3\n",
    "two blanks after the word": b"the  0.1 -0.2 0.3\nx  1 2 3\n",
    "two blanks everywhere": b"the  0.1  -0.2  0.3\nx  1  2  3\n",
    "a column of numbers": b"  the    0.1   -0.2   0.3\n    x    1      2     3\n",
    "a blank and a tab": b"the \t0.1 -0.2\t 0.3\nx \t1 2 3\n",
    "blanks at the end": b"2 3\nthe 0.1 -0.2 0.3 \t \nx 1 2 3 \n",
    "a byte order mark": b"\xef\xbb\xbfthe 0.1 -0.2 0.3\nx 1 2 3\n",
    "a byte order mark and a header": b"\xef\xbb\xbf2 3\nthe 0.1 -0.2 0.3\nx 1 2 3\n",
    "CRLF": b"2 3\r\nthe 0.1 -0.2 0.3\r\nx 1 2 3\r\n",
    "no line feed at the end": b"the 1e-1 -2E-1 .3\nx 1 2 3",
}


@pytest.mark.parametrize("name", SEPARATED)
@pytest.mark.parametrize("packed", [False, True])
def test_blanks_tabs_and_marks_are_no_part_of_a_word(tmp_path, name, packed):
    path = tmp_path / ("a.txt.gz" if packed else "a.txt")
    path.write_bytes(gzip.compress(SEPARATED[name]) if packed else SEPARATED[name])
    found = read_vectors(path)
    assert found.words == ("the", "x")
    np.testing.assert_allclose(found.table, [[0.1, -0.2, 0.3], [1, 2, 3]], rtol=1e-6)


def test_words_with_blanks_and_numbers_are_words(tmp_path, capfd):
    path = tmp_path / "glove.txt"
    path.write_text(
        "windows 95 .1 .2 .3\n. . . 1 2 3\nat a@b.c 4 5 6\n1999 7 8 9\n  .4 .5 .6\n\u00a0 1 1 1\n#\t2 2 2\n"
    )
    found = read_vectors(path)
    assert found.words == ("windows 95", ". . .", "at a@b.c", "1999", " ", "\u00a0", "#")
    np.testing.assert_allclose(found.table[[0, 4]], [[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]], rtol=1e-6)
    told = f"{path}: 1 of 7 words end in a number, which is taken for a part of the word: 'windows 95'\n"
    assert capfd.readouterr().err == told


CUT = "中文".encode()[:5]  # as word2vec.c cuts a word


def test_words_that_are_not_utf8_are_skipped_and_counted(tmp_path, capfd):
    row = struct.pack("<2f", 3, 4)
    of_bin = b"4 2\n" + b"".join(word + b" " + row + b"\n" for word in (b"the", CUT, b"x", b"the"))
    texts = {
        "a.vec": (b"4 2\nthe 3 4\n" + CUT + b" 3 4\nx 3 4\nthe 5 6\n", "iconv"),
        "a.txt": (b"the 3 4\n" + CUT + b" 3 4\nx 3 4\nthe 5 6\n", "iconv"),
        "a.bin": (of_bin, "train again"),
    }
    for name, (content, cure) in texts.items():
        (tmp_path / name).write_bytes(content)
        found = read_vectors(tmp_path / name)
        assert (found.words, found.table.tolist()) == (("the", "x"), [[3, 4], [3, 4]])
        lines = capfd.readouterr().err.splitlines()
        assert lines[0].startswith(f"{tmp_path / name}: 1 of 4 words are not UTF-8 and are skipped: '中\\\\xe6\\\\x96'")
        assert cure in lines[0]
        assert ("iconv" in lines[0]) == (name != "a.bin")
        assert lines[1] == f"{tmp_path / name}: 1 of 4 words occur again and are skipped: 'the'"


def test_a_cut_word_of_fasttext_leaves_with_all_its_rows(tmp_path, capfd):
    vectors = fasttext()
    write_vectors(vectors, tmp_path / "a.bin", "fasttext")
    second = vectors.words[1].encode()
    content = (tmp_path / "a.bin").read_bytes().replace(second + b"\0", b"\xff" * len(second) + b"\0", 1)
    (tmp_path / "b.bin").write_bytes(content)
    found = read_vectors(tmp_path / "b.bin")
    kept = [row for row in range(len(vectors)) if row != 1]
    assert found.words == tuple(vectors.words[row] for row in kept)
    np.testing.assert_array_equal(found.table, vectors.table[kept])
    np.testing.assert_array_equal(found.output, vectors.output[kept])
    assert "words are not UTF-8 and are skipped" in capfd.readouterr().err


@pytest.mark.parametrize(("width", "end"), [(1, b"\n"), (2, b"\n"), (7, b"\n"), (300, b"\n"), (7, b""), (300, b"")])
def test_blanks_in_the_words_of_a_bin_shift_no_row(tmp_path, end, width):
    """Suffixes of 0 to 9 bytes: shifted by any of them, bytes are no numbers of a vector, or stand where no vector ends."""
    words = [
        "the",
        "new york",
        "a b",
        "a bc",
        "a bcd",
        "a bcde",
        " ",
        "x y z",
        "Île de la Cité",
        "two  blanks",
        "last one",
    ]
    table = np.random.default_rng(width).normal(0, 0.3, (len(words), width)).astype("<f4")
    table[0, 0] = 0
    rows = [word.encode() + b" " + row.tobytes() + end for word, row in zip(words, table)]
    (tmp_path / "a.bin").write_bytes(f"{len(words)} {width}\n".encode() + b"".join(rows))
    found = read_vectors(tmp_path / "a.bin")
    assert found.words == tuple(words)
    np.testing.assert_array_equal(found.table, table)


def test_small_and_large_numbers_of_a_bin_are_numbers(tmp_path):
    table = np.array([[1e-30, 1e9], [0, -1e-25], [1, 2]], "<f4")
    rows = [name + b" " + row.tobytes() for name, row in zip((b"a", b"b", b"c"), table)]
    (tmp_path / "a.bin").write_bytes(b"3 2\n" + b"".join(rows))
    np.testing.assert_array_equal(read_vectors(tmp_path / "a.bin").table, table)


def test_a_damaged_fasttext_file_is_one_line_wherever_it_ends(tmp_path):
    path = tmp_path / "a.bin"
    write_vectors(fasttext(), path, "fasttext")
    whole = path.read_bytes()
    without_output = len(whole) - (1 + 16 + 4 * 3 * 4)
    for end in [*range(4, 140, 5), *range(140, len(whole), 17)]:
        path.write_bytes(whole[:end])
        if end == without_output:
            continue
        with pytest.raises(InputError, match=r"a\.bin"):
            read_vectors(path)
    path.write_bytes(whole[:without_output])  # a file may end there: gensim's need no output layer
    assert read_vectors(path).output is None
    dictionary = 8 + 12 * 4 + 8
    lies = {
        (8, 2**30): "its header says 1073741824 numbers",
        (dictionary + 4, 7): "its header says 4 entries, 7 words, 0 labels",
        (8 + 4 * 7, 3): "a supervised model of fastText",
        (8 + 4 * 8, 2**30): r"a table of 15 x 3, and its header says 4 words, 1,073,741,824 buckets",
        (4, 99): "no .bin of fastText .version 99.",
    }
    for (place, value), message in lies.items():
        path.write_bytes(whole[:place] + struct.pack("<i", value) + whole[place + 4 :])
        with pytest.raises(InputError, match=message):
            read_vectors(path)
    place = whole.index(struct.pack("<qq", 15, 3)) - 1
    path.write_bytes(whole[:place] + b"\1" + whole[place + 1 :])
    with pytest.raises(InputError, match="a quantized model of fastText"):
        read_vectors(path)


def test_what_a_format_cannot_hold_is_refused_and_nothing_is_left(tmp_path):
    blank = WordVectors(["a b"], TABLE[:1])
    for format in ("vec", "bin"):
        with pytest.raises(InputError, match="the word 'a b' holds a blank"):
            write_vectors(blank, tmp_path / "a", format)
    with pytest.raises(InputError, match="these vectors have no n-grams"):
        write_vectors(blank, tmp_path / "a", "fasttext")
    with pytest.raises(InputError, match="no format of vectors 'vex'. Nearest: 'vec'"):
        write_vectors(blank, tmp_path / "a", "vex")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(InputError, match="no file of vectors"):
        read_vectors(tmp_path / "a")
    with pytest.raises(InputError, match="is no directory of vectors"):
        read_vectors(tmp_path)
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"a 1 2\nb 1 2\n" * 50)[:-20])
    with pytest.raises(InputError, match=r"cannot unpack .*a\.gz"):
        read_vectors(tmp_path / "a.gz")


@pytest.mark.slow
def test_gensim_gives_the_same_vectors_of_the_same_files(tmp_path):
    from gensim.models import FastText, KeyedVectors
    from gensim.models.fasttext import load_facebook_vectors, save_facebook_model

    texts = [["the", "cat", "sat", "été", "naïve"], ["日本", "the", "dog's"]] * 20
    for least, most, buckets in ((2, 4, 50), (3, 6, 1000), (1, 2, 7)):
        model = FastText(texts, vector_size=7, min_count=1, bucket=buckets, epochs=1, min_n=least, max_n=most, seed=1)
        save_facebook_model(model, str(tmp_path / "f.bin"))
        theirs, ours = load_facebook_vectors(str(tmp_path / "f.bin")), read_vectors(tmp_path / "f.bin")
        for word in [*theirs.index_to_key, "unseen", "catdog", "日", "ét", "x" * 40]:
            np.testing.assert_allclose(ours.vector(word), theirs[word], atol=1e-6)
        write_vectors(ours, tmp_path / "again.bin", "fasttext")
        assert (tmp_path / "again.bin").read_bytes() == (tmp_path / "f.bin").read_bytes()
    for format, binary in (("bin", True), ("vec", False)):
        theirs.save_word2vec_format(str(tmp_path / "theirs"), binary=binary)
        found = read_vectors(tmp_path / "theirs", format)
        write_vectors(found, tmp_path / "ours", format)
        assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()
        again = KeyedVectors.load_word2vec_format(str(tmp_path / "ours"), binary=binary)
        np.testing.assert_array_equal(again.vectors, found.table)
