import json
import re

import pytest

from kerasbert.data import dialects, reading, sources
from kerasbert.data.sources import read_documents, read_table
from kerasbert.errors import InputError


def test_text_documents_end_at_blank_lines(tmp_path):
    file = tmp_path / "a.txt"
    file.write_bytes(b"\n one\ntwo \r\n\r\n \t\nthree\x0bstill three\n")
    assert list(read_documents([file])) == [["one", "two"], ["three\x0bstill three"]]


def test_documents_do_not_depend_on_how_much_is_read_at_once(tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("\n\none\n two\nthree\n\n\nfour\nfive\n \nsix")
    for size in range(1, 30):
        monkeypatch.setattr(reading, "HEAD", 3 * size)
        monkeypatch.setattr(reading, "CHUNK", size)
        found = list(sources.read_documents([tmp_path / "a.txt"]))
        assert found == [["one", "two", "three"], ["four", "five"], ["six"]]


def test_a_document_ends_with_its_file(tmp_path):
    (tmp_path / "a.txt").write_text("one")
    (tmp_path / "b.txt").write_text("two")
    assert list(read_documents([tmp_path / "a.txt", tmp_path / "b.txt"])) == [["one"], ["two"]]


def test_jsonl_rows_are_documents(tmp_path):
    file = tmp_path / "a.jsonl"
    file.write_text('{"text": "one\\n\\ntwo"}\n\n{"text": " "}\n{"text": "\\ud800three", "other": 1}\n')
    assert list(read_documents([file])) == [["one", "two"], ["\ufffdthree"]]


def test_tables_are_corpora_too(tmp_path):
    (tmp_path / "a.csv").write_text('id,body\n1,"one, and\ntwo"\n')
    (tmp_path / "a.tsv").write_text('id\tbody\n1\tsay "three\n')
    files = [tmp_path / "a.csv", tmp_path / "a.tsv"]
    assert list(read_documents(files, text_field="body")) == [["one, and", "two"], ['say "three']]


def test_tsv_has_no_quoting_and_csv_has(tmp_path):
    (tmp_path / "a.tsv").write_text('sentence\tlabel\n"a\t1\r\nb "\t0\n')
    (tmp_path / "a.csv").write_text('sentence,label\n"a, ""b""",1\n')
    assert read_table(tmp_path / "a.tsv") == [{"sentence": '"a', "label": "1"}, {"sentence": 'b "', "label": "0"}]
    assert read_table(tmp_path / "a.csv") == [{"sentence": 'a, "b"', "label": "1"}]


def test_a_table_without_header_gets_names(tmp_path):
    (tmp_path / "cola.txt").write_text("gj04\t1\t\tThe sailors.\n")
    rows = read_table(tmp_path / "cola.txt", names=["source", "label", "mark", "sentence"], format="tsv")
    assert rows == [{"source": "gj04", "label": "1", "mark": "", "sentence": "The sailors."}]


def test_json_scalars_become_text(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"a": 1, "b": 0.5, "c": true, "d": ["x"], "e": "t", "f": null}\n')
    assert read_table(tmp_path / "a.jsonl") == [{"a": "1", "b": "0.5", "c": "true", "d": ["x"], "e": "t", "f": None}]


def test_a_long_csv_field_is_read(tmp_path):
    (tmp_path / "a.csv").write_text("text\n" + "x" * 200_000 + "\n")
    assert len(read_table(tmp_path / "a.csv")[0]["text"]) == 200_000


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.tsv", "text\tlabel\none\t1\ntwo\n", r"a\.tsv, line 3: 1 fields, expected 2 \(text, label\) \(tsv is split"),
        ("a.csv", "text,label\none,1,2\n", r"a\.csv, line 2: 3 fields, expected 2 \(text, label\)\. Mend"),
        ("a.csv", 'text,label\n"one"x,1\n', r"a\.csv, line 2: ',' expected after '\"'"),
        ("a.csv", 'text,label\n"one,1\n', r"a\.csv, line 2: unexpected end of data"),
        (
            "a.csv",
            'text,label\nb,1\n"one,1\nc,2\n',
            r"line 4: unexpected end of data, in a row that begins in line 3\. Mend",
        ),
        ("a.tsv", "txt\tlabel\none\t1\n", r"a\.tsv has no column 'text'\. Nearest: 'txt'\. It has: txt, label"),
        ("a.tsv", "", r"a\.tsv is empty, expected a line with the names of its columns"),
        ("a.jsonl", '{"text": "one"}\n{"text"\n', r"a\.jsonl, line 2: not json"),
        ("a.jsonl", "[1]\n", r"a\.jsonl, line 1: a list, expected an object"),
        ("a.jsonl", '{"txt": "one"}\n', r"a\.jsonl, line 1 has no column 'text'\. Nearest: 'txt'"),
        ("a.tsv", "text\tlabel\n", r"a\.tsv has no rows"),
        ("a.txt", "text\n", r"cannot tell the format of .*a\.txt: expected a name ending in \.tsv"),
    ],
)
def test_bad_tables(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=message):
        read_table(tmp_path / name, columns=["text"])


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        (
            "a.csv",
            "txt,topic\none,two\n",
            "has no column 'text', nor 'label'. Nearest: 'txt'. It has: txt, topic. Name",
        ),
        ("a.csv", "one film I saw.,1\n", "has no column 'text', nor 'label': its first line looks like a row"),
        ("a.csv", "text,lable\none,two\n", "has no column 'label'. Nearest: 'lable'. It has: text, lable. Name"),
        ("a.jsonl", '{"txt": "one"}\n', "line 1 has no column 'text', nor 'label'. Nearest: 'txt'"),
    ],
)
def test_all_missing_columns_are_told_at_once(tmp_path, name, content, told):
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=re.escape(told)):
        read_table(tmp_path / name, columns=["text", "label"])


def test_bad_corpora(tmp_path):
    (tmp_path / "empty.txt").write_text(" \n\n")
    (tmp_path / "number.jsonl").write_text(json.dumps({"text": ["x"]}) + "\n")
    with pytest.raises(InputError, match="no files given"):
        list(read_documents([]))
    with pytest.raises(InputError, match=r"no file .*none\.txt"):
        list(read_documents([tmp_path / "none.txt"]))
    with pytest.raises(InputError, match="is a directory, expected a file"):
        list(read_documents([tmp_path]))
    with pytest.raises(InputError, match=r"empty corpus: no text in .*empty\.txt"):
        list(read_documents([tmp_path / "empty.txt"]))
    with pytest.raises(InputError, match=r"number\.jsonl, line 1: field 'text' holds no text"):
        list(read_documents([tmp_path / "number.jsonl"]))


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("a.tsv", "text,label\na film,pos\n", "Its columns stand apart by ',': pass --delimiter ','"),
        (
            "a.tsv",
            "text\tlabel\ra film\tpos\rb\tneg\r",
            "its lines end in carriage returns alone: pass --delimiter tab",
        ),
        (
            "a.tsv",
            '"text"\t"label"\n"a film"\t"pos"\n',
            "its cells are quoted, and a tsv has no quoting: pass --delimiter tab",
        ),
        ("a.jsonl", '{"id": 1, "doc": {"text": "a film"}}\n', "'doc' holds a field of that name: take it out"),
        ("a.jsonl", '{"data": [{"text": "a film"}]}', "'data' holds rows: write them alone, an object a line"),
        (
            "a.jsonl",
            '{"translation": {"en": "a", "de": "b"}}',
            "'translation' holds the texts en, de: make them columns",
        ),
        (
            "a.json",
            '{"a": [{"text": "x"}],\n "b": [{"text": "y"}]}',
            "a.json holds rows in 'a' and in 'b': write those that",
        ),
        ("a.json", '[{"data": {"text": "x"}, "annotations": []}]', "It is an export of Label Studio.*: export CSV"),
    ],
)
def test_a_table_without_the_column_says_what_it_looks_like(tmp_path, name, content, told):
    path = tmp_path / name
    path.write_bytes(content.encode())
    with pytest.raises(InputError, match=told):
        list(sources.table_rows(path, sources.file_format(path), ["text", "label"] if "tsv" in name else ["text"]))


def test_cells_of_a_tsv_that_are_quoted_as_of_a_csv_are_told(tmp_path, capsys):
    """pandas quotes what holds a quote, in a tsv too; GLUE's quotes are ordinary characters."""
    dialects.say.cache_clear()
    path = tmp_path / "a.tsv"
    path.write_text('text\tlabel\n"He said ""no"""\tx\n"no"\ty\nhe ""said"" no\ty\n""\ty\n', "utf-8")
    rows = sources.numbered_table(path, columns=["text"])
    assert [row["text"] for _, row in rows] == ['"He said ""no"""', '"no"', 'he ""said"" no', '""']
    assert capsys.readouterr().err == (
        f"{path}: cells of 1 rows are quoted as in a csv, and a tsv has no quoting: the quotes are text. "
        "--delimiter tab takes them off\n"
    )
    with dialects.default_reading({"delimiter": "tab"}):
        rows = sources.numbered_table(path, columns=["text"])
    assert [row["text"] for _, row in rows] == ['He said "no"', "no", 'he ""said"" no', ""]


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        ('{"version": 1,\n "data": [\n  {"text": "a"},\n  {"text":\n "b"}]}', [3, 4]),
        ('{"data": [{"text": "a"}, {"text": "b"}], "note": ["data"]}', [1, 1]),
        ('{"more": {"data": []},\n"data": [{"text": "a"},\n{"text": "b"}]}', [2, 3]),
        ('{"r\\u00e4te": [{"text": "a"},\n{"text": "b"}]}', [1, 1]),  # escapes: where it stands is not looked for
    ],
)
def test_rows_within_one_object_of_json(tmp_path, content, lines, capsys):
    """`{"data": [...]}` over several lines was no json."""
    dialects.say.cache_clear()
    path = tmp_path / "a.json"
    path.write_text(content, "utf-8")
    rows = sources.numbered_table(path, columns=["text"])
    assert rows == [(lines[0], {"text": "a"}), (lines[1], {"text": "b"})]
    assert list(read_documents(path)) == [["a"], ["b"]]
    name = "räte" if "u00e4" in content else "data"
    assert capsys.readouterr().err == f"{path}: the rows are those of {name!r}\n"


def test_lines_of_json_with_lists_of_objects_are_rows_themselves(tmp_path):
    line = '{"text": "a", "data": [{"text": "b"}]}'
    (tmp_path / "one.json").write_text(line)
    (tmp_path / "two.json").write_text(f"{line}\n{line}\n")
    assert len(sources.numbered_table(tmp_path / "one.json", columns=["text"])) == 1
    assert len(sources.numbered_table(tmp_path / "two.json", columns=["text"])) == 2
    with pytest.raises(
        InputError, match=r"two\.json, line 1 has no column 'label'.*'data' holds rows: write them alone"
    ):
        sources.numbered_table(tmp_path / "two.json", columns=["label"])


def test_lines_of_json_are_read_whatever_the_name(tmp_path):
    """A csv of them was told to have no header, and --columns text,label made texts of braces."""
    path = tmp_path / "a.csv"
    path.write_text('{"text": "a, b", "label": "pos"}\n{"text": "c", "label": "neg"}\n')
    assert sources.file_format(path) == "jsonl"
    assert [row["text"] for _, row in sources.table_rows(path, "jsonl", ["text"])] == ["a, b", "c"]


def test_a_nul_behind_the_head_is_told_with_its_line(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b"text,label\n" + b"a film,pos\n" * 20_000 + b"a\0b,pos\n")
    with pytest.raises(InputError, match="a.csv, line 20002: a NUL character, which no text holds"):
        list(sources.table_rows(path, "csv", ["text"]))


def test_a_mark_of_utf_8_before_bytes_that_are_none(tmp_path):
    """--encoding was advised, and the mark goes before it: there was no way on."""
    path = tmp_path / "a.csv"
    path.write_bytes(b"\xef\xbb\xbftext;label\r\n" + "café – fin;pos\r\n".encode("cp1252") * 9)
    with pytest.raises(
        InputError, match=r"line 2: byte 0xe9 is not UTF-8. Its byte order mark says UTF-8.*save it in one"
    ):
        list(sources.table_rows(path, "csv", ["text"], encoding="cp1252"))


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("a film,neg\nanother,pos\nb,neg\n", "its first line looks like a row .*'a film', 'neg'.*--columns text,label"),
        (
            "# by me\ntext,label\na,pos\n",
            "line 2 names the columns, expected them in line 1: drop what stands above it",
        ),
        ("Report 2026,\n,\ntext,label\na,pos\n", "line 3 names the columns, expected them in line 1"),
        ("review,stars\na,pos\nb,neg\n", "It has: review, stars. Name the right one"),
        ("text,label\na,pos\ntext,label\nb,neg\n", "line 3 repeats the header: drop it"),
    ],
)
def test_a_header_in_another_place_is_told(tmp_path, content, told):
    """Files joined by cat gave a class 'label' with one row; a title above the names was taken for a wrong name."""
    (tmp_path / "a.csv").write_text(content)
    with pytest.raises(InputError, match=told):
        sources.numbered_table(tmp_path / "a.csv", columns=["text", "label"])


def test_one_column_may_hold_its_own_name(tmp_path):
    (tmp_path / "a.csv").write_text("text\na\ntext\n")
    assert [row["text"] for _, row in sources.numbered_table(tmp_path / "a.csv", columns=["text"])] == ["a", "text"]
