"""csv as people have it: delimiters found, told or named; files without a header; nothing guessed in silence."""

import contextlib
import csv
import random
import string

import pytest

from kerasbert.data import dialects, read_table, texts
from kerasbert.data.dialects import DELIMITERS, default_reading
from kerasbert.errors import InputError

NAMES = ("text", "Review Text", "label", "id", "toxic", "Größe", "a.b")
CELLS = ["a fine film", "1", "", "so; so", "one, two", "a|b", "x\ty", 'he said "no"', "two\nlines", "3,5", "ü", " - "]


@pytest.fixture(autouse=True)
def _fresh():
    dialects.say.cache_clear()


def written(path, rows, delimiter, quoting=csv.QUOTE_MINIMAL, end="\n", encoding="utf-8", first=""):
    with open(path, "w", encoding=encoding, newline="") as file:
        file.write(first)
        csv.writer(file, delimiter=delimiter, quoting=quoting, lineterminator=end).writerows(rows)
    return path


def test_300_files_come_back_as_they_were_written(tmp_path, capsys):
    draw = random.Random(0)
    for number in range(300):
        delimiter = draw.choice([*DELIMITERS])
        header = draw.sample(NAMES, draw.randrange(2, 6))
        rows = [[draw.choice(CELLS) for _ in header] for _ in range(draw.randrange(1, 8))]
        rows = [row if any(row) else ["x", *row[1:]] for row in rows]
        quoting, end = draw.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]), draw.choice(["\n", "\r\n"])
        encoding = draw.choice(["utf-8", "utf-8-sig", "utf-16"])
        path = written(tmp_path / f"{number}.csv", [header, *rows], delimiter, quoting, end, encoding)
        found = read_table(path, columns=draw.sample(header, draw.randrange(1, len(header) + 1)))
        assert found == [dict(zip(header, row)) for row in rows], (number, delimiter)
        told = capsys.readouterr().err
        assert (delimiter == ",") == (told == ""), told
        assert delimiter == "," or f"{number}.csv: the delimiter is {DELIMITERS[delimiter]}" in told


def test_200_files_without_a_header_are_right_or_refused(tmp_path):
    draw, refused = random.Random(1), 0
    for number in range(200):
        delimiter, width = draw.choice([*DELIMITERS]), draw.randrange(2, 5)
        rows = [[draw.choice(CELLS[:6]) or "x" for _ in range(width)] for _ in range(draw.randrange(2, 7))]
        path = written(tmp_path / f"{number}.csv", rows, delimiter)
        names = list(string.ascii_lowercase[:width])
        found = None
        with contextlib.suppress(InputError):
            found = read_table(path, names=names)
        refused += found is None
        with default_reading({"delimiter": delimiter, "columns": ",".join(names)}):
            known = read_table(path)
        assert known == [dict(zip(names, row)) for row in rows]
        assert found in (None, known)
    assert refused < 10


def test_a_semicolon_inside_the_text_of_a_comma_csv(tmp_path, capsys):
    (tmp_path / "a.csv").write_text("text,label\nnot good; bad; very bad,0\nfine; really,1\na;b,1\n")
    assert read_table(tmp_path / "a.csv", columns=["text"])[0]["text"] == "not good; bad; very bad"
    assert read_table(tmp_path / "a.csv")[2] == {"text": "a;b", "label": "1"}
    (tmp_path / "one.csv").write_text('text\na;b\n"c, d"\n')
    assert [row["text"] for row in read_table(tmp_path / "one.csv")] == ["a;b", "c, d"]
    assert capsys.readouterr().err == ""


def test_what_fits_two_delimiters_is_refused_or_told_by_the_columns(tmp_path):
    (tmp_path / "a.csv").write_text("a;b,c\n1;2,3\n")
    with pytest.raises(InputError, match=r"read evenly by several delimiters.*',' \(2: a;b, c\), ';' \(2: a, b,c\)"):
        read_table(tmp_path / "a.csv")
    assert read_table(tmp_path / "a.csv", columns=["c"]) == [{"a;b": "1;2", "c": "3"}]
    assert read_table(tmp_path / "a.csv", columns=["a"]) == [{"a": "1", "b,c": "2,3"}]
    with default_reading({"delimiter": "semicolon"}):
        assert read_table(tmp_path / "a.csv") == [{"a": "1", "b,c": "2,3"}]


def test_excels_line_and_bom_and_a_line_that_is_wrong(tmp_path, capsys):
    path = written(tmp_path / "a.csv", [["text", "label"], ["a, b", "1"]], ";", encoding="utf-8-sig", first="sep=;\r\n")
    assert read_table(path, columns=["text"]) == [{"text": "a, b", "label": "1"}]
    assert capsys.readouterr().err == ""
    path.write_text("sep=;\ntext;label\na;1;2\n")
    with pytest.raises(InputError, match=r"a.csv, line 3: 3 fields, expected 2 \(text, label\)"):
        read_table(path)
    with (
        default_reading({"delimiter": ","}),
        pytest.raises(InputError, match="says sep=;, the delimiter that is given"),
    ):
        read_table(path)
    (tmp_path / "b.csv").write_bytes("text;label\nGrößter Müll – aber schön;1\n".encode("cp1252"))
    with pytest.raises(InputError, match="line 2: byte 0xf6 is not UTF-8. It is probably cp1252"):
        read_table(tmp_path / "b.csv")
    assert read_table(tmp_path / "b.csv", encoding="cp1252")[0]["text"] == "Größter Müll – aber schön"


def test_a_row_of_several_lines_is_named_by_its_first(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('sep=;\ntext;label\n"one\ntwo";1\n\n"three\nfour";2;3\n')
    with pytest.raises(InputError, match="a.csv, line 6: 3 fields"):
        read_table(path)


@pytest.mark.parametrize(
    ("content", "columns", "message"),
    [
        (
            "id;Review Text;Rating\n1;a;2\n",
            ["Ratings"],
            "no column 'Ratings'. Nearest: 'Rating'. It has: id, Review Text",
        ),
        ("text;label\na;1\nb\n", ["text"], r"line 3: 1 fields, expected 2 \(text, label\)"),
        ("a fine film,1\nbad,0\n", ["text"], "looks like a row and not like names .*--columns text,label"),
        ("", ["text"], "a.csv is empty"),
        ('text;label\n"a;1\n', ["text"], "line 2: unexpected end of data"),
    ],
)
def test_mistakes_are_told_by_the_right_delimiter(tmp_path, content, columns, message):
    (tmp_path / "a.csv").write_text(content)
    with pytest.raises(InputError, match=message):
        read_table(tmp_path / "a.csv", columns=columns)


def test_named_columns(tmp_path):
    (tmp_path / "a.csv").write_text("so good;1;x\nbad;0;y\n")
    (tmp_path / "b.tsv").write_text("so good\t1\n")
    (tmp_path / "c.jsonl").write_text('{"text": "a"}\n')
    (tmp_path / "d.txt").write_text("a|1\n")
    with default_reading({"columns": "text,label,"}):
        assert read_table(tmp_path / "a.csv", columns=["text"])[1] == {"text": "bad", "label": "0", "": "y"}
        with pytest.raises(InputError, match=r"b.tsv, line 1: 2 fields, expected 3"):
            read_table(tmp_path / "b.tsv")
        with pytest.raises(InputError, match="--columns is of a csv or tsv, .*c.jsonl is jsonl: leave it out"):
            texts.read(tmp_path / "c.jsonl")
        with pytest.raises(InputError, match="d.txt is text: name its --delimiter too"):
            texts.read(tmp_path / "d.txt")
    with default_reading({"columns": ["text", "label"]}):
        with pytest.raises(InputError, match="no delimiter gives the 2 columns that are named .* by ',' 1, ';' 3"):
            read_table(tmp_path / "a.csv")
        (tmp_path / "a.csv").write_text("text,label\nbad,0\n")
        with pytest.raises(InputError, match="a.csv, line 1 is a header, and columns are named: leave out --columns"):
            read_table(tmp_path / "a.csv")
        with default_reading({"delimiter": "pipe"}):
            assert texts.read(tmp_path / "d.txt") == ["a"]


@pytest.mark.parametrize("given", [{"delimiter": ";;"}, {"delimiter": "a"}, {"columns": "a,a"}, {"columns": ","}])
def test_what_is_no_delimiter_and_no_names(given):
    with (
        pytest.raises(InputError, match=r"expected (one character|each name once|names such as)"),
        default_reading(given),
    ):
        pass


def test_a_long_file_is_found_by_its_head(tmp_path):
    rows = [["text", "label"], *([["a; b " * 400 + "\n" + "x", str(i)] for i in range(200)])]
    path = written(tmp_path / "a.csv", rows, "|")
    assert [row["label"] for row in read_table(path, columns=["label"])] == [row[1] for row in rows[1:]]
    with open(path, "a") as file:
        file.write('"never ends')
    with pytest.raises(InputError, match="unexpected end of data"):
        read_table(path)
