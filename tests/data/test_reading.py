"""One reader for all files of text: encodings, packed files, json, parquet, and what is no text."""

import bz2
import gzip
import io
import json
import lzma
import tarfile
import tracemalloc

import pytest

from kerasbert.cli import main
from kerasbert.data import reading
from kerasbert.data.encodings import guess
from kerasbert.data.sources import file_format, read_documents, read_lines, read_table
from kerasbert.errors import InputError

POLISH = "Człowieka i obywatela.\nWszyscy ludzie rodzą się wolni\n\ni równi w godności.\n"
DOCUMENTS = [["Człowieka i obywatela.", "Wszyscy ludzie rodzą się wolni"], ["i równi w godności."]]
TEXTS = {  # of the Universal Declaration of Human Rights
    "cp1250": POLISH,
    "cp1251": "Все люди рождаются свободными и равными в своем достоинстве и правах.",
    "koi8-r": "Все люди рождаются свободными и равными в своем достоинстве и правах.",
    "koi8-u": "Усі люди народжуються вільними і рівними у своїй гідності та правах, наділені розумом і совістю.",
    "cp1252": "Tous les êtres humains naissent libres et égaux en dignité et en droits, doués de raison.",
    "shift_jis": "すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。",
    "gb18030": "人人生而自由，在尊严和权利上一律平等。他们赋有理性和良心，并应以兄弟关系的精神相对待。",
    "big5": "人人生而自由，在尊嚴和權利上一律平等。他們賦有理性和良心，並應以兄弟關係的精神對待。",
    "euc-kr": "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다.",
}


def zstd(data: bytes) -> bytes:
    return pytest.importorskip("zstandard").compress(data)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-be", "utf-32"])
def test_a_byte_order_mark_is_honoured(tmp_path, encoding):
    mark = "\ufeff" if encoding == "utf-16-be" else ""
    (tmp_path / "a.txt").write_bytes((mark + POLISH).encode(encoding))
    assert list(read_documents([tmp_path / "a.txt"])) == DOCUMENTS
    assert list(read_documents([tmp_path / "a.txt"], encoding="cp1250")) == DOCUMENTS  # the mark goes before


@pytest.mark.parametrize("encoding", [*TEXTS, "utf-16-le"])
def test_an_encoding_that_is_given_is_taken(tmp_path, encoding):
    text = TEXTS.get(encoding, POLISH)
    (tmp_path / "a.csv").write_bytes(f'id,text\n1,"{text}"\n'.encode(encoding))
    assert read_table(tmp_path / "a.csv", encoding=encoding) == [{"id": "1", "text": text}]
    with reading.default_encoding(encoding):
        assert read_table(tmp_path / "a.csv") == [{"id": "1", "text": text}]


@pytest.mark.parametrize("encoding", [*TEXTS, "utf-16-le", "utf-16-be"])
def test_bytes_that_do_not_decode_name_file_line_and_likeliest_encoding(tmp_path, encoding):
    file = tmp_path / "a.txt"
    file.write_bytes(("plain\n" + TEXTS.get(encoding, POLISH)).encode(encoding))
    where = (
        "is probably" if encoding.startswith("utf-16") else r"line 2: byte 0x[0-9a-f]{2} is not UTF-8\. It is probably"
    )
    with pytest.raises(InputError, match=rf"a\.txt,? {where} {encoding}.*pass --encoding {encoding}"):
        list(read_documents([file]))


def test_a_line_far_into_a_file_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "CHUNK", 1000)
    monkeypatch.setattr(reading, "HEAD", 1000)
    file = tmp_path / "a.txt"
    file.write_bytes("zażółć gęślą\n".encode() * 5000 + b"mend me: \xe9\n" + "jaźń\n".encode())
    with pytest.raises(InputError, match=r"line 5001: byte 0xe9 is not UTF-8\. Most of it is UTF-8: mend the line"):
        list(read_documents([file]))
    file.write_bytes(b"\xff\xfe" + "x".encode("utf-16-le") * 10 + b"\x00\xd8")
    with pytest.raises(InputError, match="is not utf-16-le"):
        list(read_documents([file]))
    with pytest.raises(InputError, match=r"no encoding 'cp125O'\. Nearest: 'cp125\d'"):
        list(read_documents([file], encoding="cp125O"))


def test_random_bytes_have_no_encoding():
    assert [guess(bytes((i * i * 7 + seed) % 251 for i in range(4000))) for seed in range(3)] == [None] * 3


PACKED = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "zst": zstd}


@pytest.mark.parametrize("ending", PACKED)
def test_packed_files_are_unpacked_whatever_their_name(tmp_path, ending):
    rows = [{"text": text, "label": number} for number, text in enumerate(["one two", "three"])]
    data = "".join(json.dumps(row) + "\n" for row in rows).encode()
    (tmp_path / f"a.jsonl.{ending}").write_bytes(PACKED[ending](data[:20]) + PACKED[ending](data[20:]))
    (tmp_path / "b").write_bytes(PACKED[ending](POLISH.encode()))
    assert read_table(tmp_path / f"a.jsonl.{ending}") == [{**row, "label": str(row["label"])} for row in rows]
    assert list(read_documents([tmp_path / "b"])) == DOCUMENTS
    (tmp_path / "c").write_bytes(PACKED[ending](POLISH.encode() * 100)[:-9])
    if ending != "zst":  # its frames may end anywhere
        with pytest.raises(InputError, match=r"cannot (unpack|read) .*c"):
            list(read_documents([tmp_path / "c"]))


def test_addresses_are_unpacked_too(tmp_path):
    import tensorflow as tf

    for name, data in (("a.txt.gz", gzip.compress(POLISH.encode())), ("a.parquet", parquet([{"text": "one"}]))):
        with tf.io.gfile.GFile(f"ram://reading/{name}", "wb") as file:
            file.write(data)
    assert list(read_documents(["ram://reading/a.txt.gz", "ram://reading/a.parquet"])) == [*DOCUMENTS, ["one"]]


def parquet(rows) -> bytes:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    written = io.BytesIO()
    parquet.write_table(pyarrow.Table.from_pylist(rows), written)
    return written.getvalue()


def test_parquet(tmp_path):
    (tmp_path / "a.parquet").write_bytes(parquet([{"text": "one\ntwo", "label": 1}, {"text": "three", "label": 0}]))
    assert list(read_documents([tmp_path / "a.parquet"])) == [["one", "two"], ["three"]]
    assert read_table(tmp_path / "a.parquet")[0] == {"text": "one\ntwo", "label": "1"}
    with pytest.raises(InputError, match=r"line 1 has no column 'txt'\. Nearest: 'text'"):
        read_table(tmp_path / "a.parquet", columns=["txt"])
    (tmp_path / "b.parquet").write_bytes((tmp_path / "a.parquet").read_bytes()[:-20])
    with pytest.raises(InputError, match=r"cannot read .*b\.parquet as parquet"):
        read_table(tmp_path / "b.parquet")


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("c4.json", '{"text": "Der sch\\u00f6ne"}\n{"text": "Tag"}\n', "jsonl"),
        ("a.json", '[{"text": "Der sch\\u00f6ne"},\n\n {"text": "Tag", "x": [1, {}]}\n]\n', "json"),
        ("a.data", ' [ {"text": "Der sch\\u00f6ne"}, {"text": "Tag"}]', "json"),
        ("a.txt", '{"text": "Der sch\\u00f6ne", "id": 1}\n{"text": "Tag"}', "jsonl"),
    ],
)
def test_json_is_told_by_its_content(tmp_path, monkeypatch, name, text, kind):
    (tmp_path / name).write_text(text)
    assert file_format(tmp_path / name) == kind
    for size in (1, 2, 7, 100):
        monkeypatch.setattr(reading, "CHUNK", size)
        assert list(read_documents([tmp_path / name])) == [["Der schöne"], ["Tag"]]


def test_line_ends_of_every_system(tmp_path):
    rows = [{"text": "one", "label": "1"}, {"text": "two", "label": "0"}]
    for end in ("\n", "\r\n", "\r"):
        (tmp_path / "a.csv").write_text(f'\ufefftext,label{end}one,1{end}"two",0{end}', newline="")
        assert read_table(tmp_path / "a.csv") == rows


@pytest.mark.parametrize("text", ["[Moby Dick by Herman Melville 1851]\n", "{curly} text\n", "[1] a reference\n"])
def test_text_that_begins_with_a_bracket_is_text(tmp_path, text):
    (tmp_path / "a.txt").write_text(text)
    assert list(read_documents([tmp_path / "a.txt"])) == [[text.strip()]]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.json", '[{"text": "one"},\n{"text": }]', r"a\.json, line 2: not json \(Expecting value"),
        ("a.json", '[{"text": "one"},\n{"text": "two"}\n', r"a\.json, line 3: not json \(the array has no end\)"),
        ("a.json", "[1]", r"a\.json, line 1: a int, expected an object"),
        ("a.json", '{\n "text": "one"\n}', r"a\.json, line 1: not json .*Expected one object per line, or an array"),
        (
            "a.json",
            '[{"text": "one"},\n{"text": "two", "text": "three"}]',
            r"a\.json, line 2: the key 'text' is there twice",
        ),
        (
            "a.jsonl",
            '{"text": "one"}\n{"text": "two", "n": {"a": 1, "a": 2}}',
            r"jsonl, line 2: the key 'a' is there twice",
        ),
        ("a.json", "[" * 100_000, r"a\.json, line 1: not json"),
        ("a.html", "<p>one</p>", r"a\.html is HTML or XML: extract its text first"),
        ("a.txt", "\n <!DOCTYPE html><html>", r"a\.txt is HTML or XML: extract"),
        ("a.txt", "version https://git-lfs.github.com/spec/v1\noid x\n", r"a\.txt is a git-lfs pointer.*git lfs pull"),
        ("a.txt", "{\\rtf1 a}\n", r"a\.txt is a document in RTF: save it as plain text"),
        ("a.txt", "%!PS-Adobe\n", r"a\.txt is PostScript: extract its text"),
        ("a.txt", "%PDF-1.7\n", r"a\.txt is a PDF: extract its text"),
        ("a.xlsx", "PK\x03\x04", r"a\.xlsx is a workbook: save its sheet as csv"),
        ("a.docx", "PK\x03\x04", r"a\.docx is a zip archive \(as docx"),
        ("a.bin", "text\x00\x01\x02", r"a\.bin is no text: 3 of its first 7 characters are control characters"),
    ],
)
def test_what_is_no_text_is_refused(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=message):
        list(read_documents([tmp_path / name]))


def test_a_tar_archive_is_refused(tmp_path):
    (tmp_path / "a.txt").write_text("one")
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "a.txt", "a.txt")
    with pytest.raises(InputError, match=r"a\.tar\.gz is a tar archive: unpack it"):
        list(read_documents([tmp_path / "a.tar.gz"]))


def test_what_unpacks_without_end_is_never_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "LONGEST", 2**18)
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"a" * 2**24))
    (tmp_path / "b.json.gz").write_bytes(gzip.compress(b'[{"text": "' + b"a" * 2**24))
    (tmp_path / "c.json.gz").write_bytes(gzip.compress(b"[" + b'{"text": "one"},' * 2**15 + b"{}]"))
    tracemalloc.start()
    with pytest.raises(InputError, match="has a line of more than 262,144 characters"):
        list(read_documents([tmp_path / "a.txt.gz"]))
    with pytest.raises(InputError, match="line 1: not json"):
        list(read_documents([tmp_path / "b.json.gz"]))
    with pytest.raises(InputError, match="line 1 has no column 'text'. It has none"):
        for _ in read_documents([tmp_path / "c.json.gz"]):
            pass
    assert tracemalloc.get_traced_memory()[1] < 2**22
    tracemalloc.stop()


def test_lines_for_a_vocabulary_are_those_of_the_records(tmp_path):
    (tmp_path / "a.jsonl").write_text(json.dumps({"id": 1, "text": "сло́во\nдва"}) + "\n")
    (tmp_path / "b.csv").write_text("id,text\n7,three\n")
    (tmp_path / "c.txt").write_text("four\n\n five\n")
    files = [tmp_path / "a.jsonl", tmp_path / "b.csv", tmp_path / "c.txt"]
    assert list(read_lines(files)) == ["сло́во", "два", "three", "four", "five"]


def test_a_missing_package_is_one_line(tmp_path, monkeypatch, capsys):
    import sys

    (tmp_path / "a.txt.zst").write_bytes(zstd(b"one\n"))
    monkeypatch.setitem(sys.modules, "zstandard", None)
    assert main(["vocab", str(tmp_path / "a.txt.zst"), "--out", str(tmp_path / "out")]) == 2
    assert "needs zstandard, which is not installed" in capsys.readouterr().err


def test_commands_take_an_encoding(tmp_path, capsys):
    for command in (
        ["finetune", "run", "--task", "classification", "--data", "a.csv"],
        ["evaluate", "run", "--data", "a"],
    ):
        out = ["--out", str(tmp_path / "out")] if command[0] == "finetune" else []
        assert main([*command, *out, "--encoding", "cp125O"]) == 2
        assert "no encoding 'cp125O'. Nearest: 'cp125" in capsys.readouterr().err


def test_the_command_line_reads_rows_in_the_encoding(tmp_path, monkeypatch):
    (tmp_path / "a.csv").write_bytes("text,label\nsehr schön,pos\n".encode("latin-1"))
    found = []
    monkeypatch.setattr("kerasbert.cli._check_names", lambda options: None)
    monkeypatch.setattr("kerasbert.cli.training._evaluate", lambda options: found.extend(read_table(options.data)))
    assert main(["evaluate", "run", "--data", str(tmp_path / "a.csv")]) == 2
    assert main(["evaluate", "run", "--data", str(tmp_path / "a.csv"), "--encoding", "latin-1"]) == 0
    assert found == [{"text": "sehr schön", "label": "pos"}]
