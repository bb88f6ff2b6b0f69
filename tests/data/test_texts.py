"""Texts of users: one reader, the same texts from every kind of file, what is no text refused."""

import bz2
import gzip
import json
import lzma
import os
import tracemalloc

import pytest

from kerasbert.cli import main
from kerasbert.data import reading, sources, texts
from kerasbert.data.reading import Stream, default_encoding
from kerasbert.errors import InputError

LINES = ["ein schöner Film", "", "  Ränder bleiben  ", 'mit "Zeichen", und Komma', "ende"]
PLAIN = "\n".join(LINES) + "\n"
WANTED = [line for line in LINES if line.strip()]
PACK = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}


def _csv() -> str:
    rows = ",".join(["text", "note"]) + "\n"
    return rows + "".join('"' + line.replace('"', '""') + '",x\n' for line in LINES)


FORMS = {
    "t.txt": PLAIN,
    "crlf.txt": PLAIN.replace("\n", "\r\n"),
    "noname": PLAIN,
    "t.csv": _csv(),
    "t.tsv": "text\tnote\n" + "".join(f"{line}\tx\n" for line in LINES),
    "t.jsonl": "".join(json.dumps({"text": line, "note": 1}) + "\n" for line in LINES),
    "t.json": json.dumps([{"text": line} for line in LINES], indent=2),
}


@pytest.mark.parametrize("pack", PACK)
@pytest.mark.parametrize("name", FORMS)
def test_every_form_of_a_file_gives_the_same_texts(tmp_path, name, pack):
    path = tmp_path / (name + pack)
    for codec in ("utf-8", "utf-8-sig", "utf-16", "utf-32"):
        path.write_bytes(PACK[pack](FORMS[name].encode(codec)))
        assert texts.read(path) == WANTED
    with default_encoding("cp1252"):
        path.write_bytes(PACK[pack](FORMS[name].encode("cp1252")))
        assert texts.read(path) == WANTED


def test_bytes_that_do_not_decode_are_refused_with_the_likely_encoding(tmp_path):
    (tmp_path / "a.txt").write_bytes(PLAIN.encode("cp1252"))
    with pytest.raises(InputError, match=r"a.txt, line 1: byte 0xf6 is not UTF-8. .* pass --encoding cp1252"):
        texts.read(tmp_path / "a.txt")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"%PDF-1.4 ...", "is a PDF"),
        (b"PK\x03\x04rest", "is a zip archive"),
        (b"version https://git-lfs.github.com/spec/v1\noid x\n", "git-lfs pointer"),
        (bytes(range(256)) * 4, "no text"),
        ("a line\nand another\n".encode("utf-16-le"), "probably utf-16-le"),
        (b"", "is empty"),
        (b"\n \n\n", "holds no text"),
    ],
)
def test_what_is_no_text_is_refused(tmp_path, content, said):
    path = tmp_path / "a.txt"
    path.write_bytes(content)
    with pytest.raises(InputError, match=said):
        texts.read(path)
    with pytest.raises(InputError, match="no file"):
        texts.read(tmp_path / "b.txt")


def test_pairs_come_with_a_tab_or_from_two_columns(tmp_path):
    (tmp_path / "a.txt").write_text("a\tb\n\nc\td\n")
    (tmp_path / "a.csv").write_text("x,text_b,text_a\n1,b,a\n2,d,c\n")
    wanted = [("a", "b"), ("c", "d")]
    assert texts.read(tmp_path / "a.txt", texts.PAIR) == texts.read(tmp_path / "a.csv", texts.PAIR) == wanted
    (tmp_path / "a.txt").write_text("a\tb\nc d\n")
    with pytest.raises(InputError, match=r"a.txt, line 2 has 0 tabs, expected 1"):
        texts.read(tmp_path / "a.txt", texts.PAIR)


def test_other_columns_are_taken_where_the_first_are_not_there(tmp_path):
    (tmp_path / "a.csv").write_text("text,label\nx,1\n")
    assert texts.read(tmp_path / "a.csv", ["sentence"], default=["text"]) == ["x"]
    with pytest.raises(InputError, match="no column 'sentence'"):
        texts.read(tmp_path / "a.csv", ["sentence"], default=["other"])


def test_columns_without_a_name_keep_their_cells(tmp_path):
    """Two empty names at the end of a header, as spreadsheets write them, were one column."""
    (tmp_path / "a.csv").write_text("text,,\nx,1,2\n")
    assert sources.read_table(tmp_path / "a.csv") == [{"text": "x", "": "1", "column_3": "2"}]


@pytest.mark.parametrize("pack", [".gz", ".bz2", ".xz"])
def test_a_file_that_swells_is_refused_in_one_line(tmp_path, monkeypatch, pack):
    """560 MB of rows of a gz of 1.6 MB filled the memory."""
    monkeypatch.setattr(reading, "BOMB", 2**20)
    path = tmp_path / f"a.csv{pack}"
    path.write_bytes(PACK[pack](b"text\n" + b"the same row again and again\n" * 10**5 * 2))
    for read in (sources.read_table, texts.read, lambda path: list(sources.read_documents([path]))):
        with pytest.raises(InputError, match="unpacks to more than 100 times its size .* unpack it first"):
            read(path)
    monkeypatch.setattr(reading, "SWELLS", 10**6)
    assert len(texts.read(path)) == 2 * 10**5


def test_rows_are_read_one_by_one(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("text,label\n" + "a row of a large table,x\n" * 10**5)
    opened = texts.opened(path)
    tracemalloc.start()
    try:
        assert sum(1 for _ in opened) == 10**5
        assert tracemalloc.get_traced_memory()[1] < 4 * 2**20
    finally:
        tracemalloc.stop()


class Piped:
    """A stream of bytes, as `sys.stdin` is."""

    def __init__(self, content: bytes):
        self.buffer = content.splitlines(keepends=True)


def test_the_standard_input_is_decoded_as_files_are():
    stream = Stream(Piped("\ufeffschön\r\n\nende".encode()))
    assert list(stream) == ["schön", "", "ende"]
    assert stream.told() == []
    stream = Stream(Piped("gut\nschön\nkühl\n".encode("cp1252")))
    assert list(stream) == ["gut", "sch\ufffdn", "k\ufffdhl"]
    assert "2 lines of the standard input did not decode as utf-8, the first is line 2" in stream.told()[0]
    assert "--encoding cp1252" in stream.told()[0]
    assert list(Stream(Piped("schön\n".encode("cp1252")), "cp1252")) == ["schön"]
    # one line of text may hold what a file may not
    assert list(Stream(Piped(b"bell\x07 nul\x00\n<html> is a tag\n"))) == ["bell\x07 nul\x00", "<html> is a tag"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (gzip.compress(b"a\n", mtime=0), "is packed .gz."),
        (bz2.compress(b"a\n"), "is packed .bz2."),
        ("a text\n".encode("utf-16"), "is utf-16-le"),
        ("a text of some words\n".encode("utf-16-le"), "is utf-16-le"),
        (b"%PDF-1.4\n", "is a PDF"),
    ],
)
def test_a_standard_input_that_is_no_text_is_refused(content, said):
    with pytest.raises(InputError, match=said):
        list(Stream(Piped(content)))


def test_squad_and_race_are_read_by_the_reader(tmp_path):
    """They read UTF-8 alone by themselves: a .json.gz was taken for a table, UTF-16 refused as no json."""
    from pathlib import Path

    from kerasbert.tasks.task import find_task, read_rows

    question = {"id": "q", "question": "Wer?", "answers": [{"text": "Zoë", "answer_start": 0}]}
    squad = {"data": [{"paragraphs": [{"context": "Zoë sang.", "qas": [question]}]}]}
    race = {"article": "Zoë sang.", "questions": ["Who?"], "options": [["Zoë", "Al"]], "answers": ["A"]}
    wanted = {"squad": ("Wer?", "Zoë sang."), "race": ("Zoë sang.", ("Who? Zoë", "Who? Al"))}
    for name, content in (("squad", squad), ("race", race)):
        text = json.dumps(content, ensure_ascii=False)
        for number, data in enumerate((text.encode(), gzip.compress(text.encode()), text.encode("utf-16"))):
            path = tmp_path / f"{name}{number}.json{'.gz' if number == 1 else ''}"
            path.write_bytes(data)
            assert read_rows(find_task(name), Path(path), targets=False).texts == [wanted[name]]
        with default_encoding("cp1252"):
            path.write_bytes(text.encode("cp1252"))
            assert read_rows(find_task(name), Path(path), targets=False).texts == [wanted[name]]


def test_a_table_with_the_columns_keeps_the_others_whatever_the_task_reads(tmp_path):
    """Of GLUE's tasks `predict --data` left out every column that is not the task's."""
    from kerasbert.tasks.answer_tables import inputs_of, read
    from kerasbert.tasks.task import find_task

    (tmp_path / "a.csv").write_text("mine,sentence1,sentence2\n7,a,b\n")
    task = find_task("glue/mrpc")
    opened = read(tmp_path / "a.csv", task.asked, task)
    assert (opened.kind, [row for _, row, _ in opened]) == ("csv", [{"mine": "7", "sentence1": "a", "sentence2": "b"}])
    (tmp_path / "test.tsv").write_text("index\t#1 String\t#2 String\n0\ta\tb\n")
    assert inputs_of(task, tmp_path / "test.tsv") == [("a", "b")]
    (tmp_path / "lines.txt").write_text("a\tb\n\nc\td\n")
    assert inputs_of(task, tmp_path / "lines.txt") == [("a", "b"), ("c", "d")]
    assert inputs_of(find_task("squad"), tmp_path / "lines.txt") == [("a", "b"), ("c", "d")]
    (tmp_path / "lines.txt").write_text("a\tb\tc\td\te\nf\tg\th\ti\tj\n")
    with pytest.raises(InputError, match="has no column 'sentence1'"):
        inputs_of(task, tmp_path / "lines.txt")


@pytest.mark.parametrize(
    "command",
    [
        "vocab P --size 300 --out OUT",
        "look RUN --word bank --sentences P --out OUT",
        "encode RUN --data P --out OUT.npy",
        "finetune RUN --task classification --data P --out OUT",
        "predict RUN --data P",
        "index RUN P --out OUT",
        "lab masking --text P --out OUT",
    ],
)
def test_a_pipe_is_refused_before_it_is_read(command, tmp_path, pretrained, capsys):
    """Files are read twice; of bash's <(command) the second time was empty, or "no file"."""
    os.mkfifo(tmp_path / "pipe")  # reading it would wait for ever
    names = {"P": tmp_path / "pipe", "RUN": pretrained, "OUT": tmp_path / "out", "OUT.npy": tmp_path / "out.npy"}
    assert main([str(names.get(word, word)) for word in command.split()]) == 2
    assert (
        "pipe is a pipe or a device, and files are read more than once: write it to a file" in capsys.readouterr().err
    )
