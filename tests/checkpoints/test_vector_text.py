"""Lines of word vectors, part by part: pieces of a file, widths, words with blanks and numbers, what is skipped."""

import io

import numpy as np
import pytest

from kerasbert.checkpoints import vector_text
from kerasbert.checkpoints.vector_text import (
    AGAIN,
    CURE,
    LONGEST_WORD,
    NOT_UTF8,
    NUMBERED,
    SHOWN,
    WIDEST,
    Skipped,
    is_header,
    read_text,
    write_text,
)
from kerasbert.checkpoints.word_vectors import WordVectors
from kerasbert.errors import InputError
from tests.support import Dribble


def read(data, header=None, count=7, skipped=None):
    return read_text("a.txt", Dribble(data, count), header, skipped)


def vectors(found):
    return {word: row.tolist() for word, row in zip(found.words, found.table)}


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8, 13, 100])
@pytest.mark.parametrize("end", [b"", b"\n", b"\n\n \n"])
def test_a_file_is_the_same_in_pieces_of_any_size(count, end):
    data = b"\xef\xbb\xbfcat 1 2.5\n\n\t\nold dog\t3  4\r\n. . 5 -6" + end
    assert vectors(read(data, count=count)) == {"cat": [1, 2.5], "old dog": [3, 4], ". .": [5, -6]}


def test_lines_are_numbered_with_the_blank_ones():
    found = [*vector_text._lines("a", Dribble(b"\xef\xbb\xbfa 1\n\nb 2\n \nc 3", 2))]
    assert found == [(1, b"a 1"), (3, b"b 2"), (5, b"c 3")]
    limit = 4 * LONGEST_WORD + vector_text.NUMBER * WIDEST
    with pytest.raises(InputError, match=f"a, line 2: more than {limit:,} bytes"):
        list(vector_text._lines("a", io.BytesIO(b"a 1\n" + b"x" * (limit + 1))))
    assert len([*vector_text._lines("a", io.BytesIO(b"x" * limit))]) == 1


@pytest.mark.parametrize(
    ("line", "right"),
    [
        (b"2 3", True),
        (b"2 3\r", True),
        (b"2", False),
        (b"2 3 4", False),
        (b"a 3", False),
        (b"2 -3", False),
        (b"2 3.0", False),
    ]
    + [(b"12345678901 3", True), (b"123456789012 3", False)],
)
def test_a_header_is_two_whole_numbers(line, right):
    assert is_header(line) == right


@pytest.mark.parametrize(
    ("header", "expected"), [(None, {"a": [1]}), (True, {"a": [1]}), (False, {"1": [1], "a": [1]})]
)
def test_a_header_is_read_where_it_is_one_and_asked_for(header, expected):
    if header is False:
        assert vectors(read(b"x 1\na 1\n", header)) == {"x": [1], "a": [1]}
        return
    assert vectors(read(b"1 1\na 1\n", header)) == expected


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "a.txt holds no word vectors: it is empty"),
        (b"2 1\na 1\n", "its header says 2 words, and 1 follow. Copy it again"),
        (b"1 1\na 1\nb 2\n", "its header says 1 words, and 2 follow"),
        (b"0 3\n", "its header says 0 words of 3 numbers"),
        (b"3 0\na\n", "its header says 3 words of 0 numbers"),
        (f"1 {WIDEST + 1}\n".encode(), f"its header says 1 words of {WIDEST + 1:,} numbers"),
        (b"a 1 2\nb 1 2\nc 1\n", "line 3: 1 numbers, expected 2 after the word, as before"),
        (b"a 1 2\nb 1 2\n1 2\n", "line 3: 1 numbers, expected 2"),
        (b"a 1 2\nb 1 x\nc 1 2\n", r"line 2: 'x' is no number, expected 2 numbers after the word|line 2"),
        (b"a 1 nan\nb 1 2\n", "line 1: a number of 'a' is not finite"),
        (b"a 1 1e39\nb 1 2\n", "line 1: a number of 'a' is not finite"),
        (b"a,1,2\nb,1,2\n", "line 1: .* is no word and its numbers. Commas stand between them: write blanks or tabs"),
        (b"a 1,5 2,5\nb 1,0 2,0\n", "The numbers have decimal commas: write points"),
        (b"only words here\n", "line 1: 'only words here' is no word and its numbers"),
        (b"\x00\x01\n", "line 1: what is no text is no word"),
        (b"a 1_0\nb 2_0\n", "is no word and its numbers"),
    ],
)
def test_a_file_that_is_none_is_named_with_its_line(data, said):
    with pytest.raises(InputError, match=said) as error:
        read(data)
    assert "\n" not in str(error.value)


def test_the_width_is_the_commonest_of_the_first_lines():
    assert vectors(read(b"windows 95 1.5 2\ncat 3.5 4\ndog 5.5 6\n")) == {
        "windows 95": [1.5, 2],
        "cat": [3.5, 4],
        "dog": [5.5, 6],
    }
    equal = [(1, b"a 1 2"), (2, b"b 1")]
    assert vector_text._usual_width("a", equal) == 2
    assert vector_text._usual_width("a", equal[::-1]) == 1
    many = b"a " + b"1 " * (WIDEST + LONGEST_WORD)
    with pytest.raises(InputError, match=f"line 1: {WIDEST + LONGEST_WORD:,} numbers, expected at most {WIDEST:,}"):
        vector_text._usual_width("a", [(1, many)])


def test_words_that_are_blanks_or_end_in_numbers():
    skipped = Skipped("a.txt", CURE)
    found = read(b"cat 0.5 1\n\xc2\xa0 0.5 2\nwindows 95 0.5 3\nold 0.5 4\nnew 0.5 5\n", skipped=skipped)
    assert list(found.words) == ["cat", "\xa0", "windows 95", "old", "new"]
    assert skipped.counts == {NUMBERED: 1}
    with pytest.raises(InputError, match="line 2: 3 numbers, expected 2 after the word, with blanks or tabs between"):
        read(b"cat 1 2\ndog 3 4 5\nold 4 5\n")  # whole numbers alone: one of them is not the word's
    with pytest.raises(InputError, match=r"most words end in a number \('w 1'\): its header, or its first line"):
        read(b"3 1\nw 1 0.5\nw 2 0.5\nx 0.5\n")


def test_words_that_occur_again_or_are_not_utf8_are_skipped_and_told():
    skipped = Skipped("a.txt", CURE)
    found = read(b"a 1\nb 2\na 3\n\xff 4\nc 5\n", skipped=skipped)
    assert vectors(found) == {"a": [1], "b": [2], "c": [5]}
    again, wrong = skipped.lines(5)
    assert again == f"a.txt: 1 of 5 words {AGAIN}: 'a'"
    assert wrong.startswith(f"a.txt: 1 of 5 words {NOT_UTF8}: '\\\\xff' (where they are words of another encoding")
    with pytest.raises(InputError, match="3 of 5 words are not UTF-8: it has another encoding. Convert the file"):
        read(b"\xff 1\n\xfe 2\n\xfd 3\na 4\nb 5\n")
    assert len(read(b"\xff 1\n\xfe 2\na 4\nb 5\n").words) == 2  # half of them


def test_the_first_few_of_what_is_skipped_are_shown():
    skipped = Skipped("a", CURE)
    for i in range(SHOWN):
        skipped.add(AGAIN, f"word {i}")
    assert skipped.lines(9) == [f"a: {SHOWN} of 9 words {AGAIN}: 'word 0', 'word 1', 'word 2'"]
    skipped.add(AGAIN, b"x" * 99)
    assert skipped.lines(9)[0].endswith("'word 2', ...")
    long = Skipped("a", CURE)
    long.add(AGAIN, "y" * 99)
    assert long.lines(1) == [f"a: 1 of 1 words {AGAIN}: '{'y' * 40}'"]


@pytest.mark.parametrize(
    ("spelled", "right"),
    [
        (b"x" * LONGEST_WORD, True),
        (b"x" * (LONGEST_WORD + 1), False),
        ("é" * LONGEST_WORD, True),
        (b"x" * 4 * LONGEST_WORD, False),
    ],
)
def test_the_longest_word(spelled, right):
    spelled = spelled.encode() if isinstance(spelled, str) else spelled
    if right:
        assert Skipped("a", CURE).decoded(spelled, "here") == spelled.decode()
        return
    with pytest.raises(InputError, match="here: a word of "):
        Skipped("a", CURE).decoded(spelled, "here")


def test_a_header_that_promises_more_than_the_file_has(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"x" * 18)
    vector_text.check_claim(path, 5, 1, 4)  # the last line may lack its end
    with pytest.raises(InputError, match="its header says 6 words of 1 numbers, and it has 18 bytes. Copy it again"):
        vector_text.check_claim(path, 6, 1, 4)
    vector_text.check_claim(tmp_path / "absent", 10**9, WIDEST, 4)


@pytest.mark.parametrize("header", [True, False])
def test_what_is_written_is_read(header):
    table = np.float32([[0.1, -2e-8], [3, 1e10]])
    file = io.BytesIO()
    write_text(file, WordVectors({"cat": None, "dog": None}, table), header)
    assert file.getvalue().startswith(b"2 2\n" if header else b"cat 0.1 -2e-08\n")
    found = read(file.getvalue(), header)
    np.testing.assert_array_equal(found.table, table)
    blanks = WordVectors({"a b": None, "c": None}, table)
    if not header:
        write_text(io.BytesIO(), blanks, header)
    for words in ("", "a\nb", "a\rb", *(["a b"] if header else [])):
        with pytest.raises(InputError, match="holds a blank, which a line of this format cannot. Take --format glove"):
            write_text(io.BytesIO(), WordVectors({words: None}, table[:1]), header)
