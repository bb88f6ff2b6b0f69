"""A folder of documents: every word is in one passage, named by its file and line; what is left out is told."""

import pytest

from kerasbert.data.reading import default_encoding
from kerasbert.errors import InputError
from kerasbert.retrieval.documents import LONGEST, Folder, paragraphs
from kerasbert.retrieval.passages import Source
from kerasbert.storage.places import MARK

NOTES = "The boiler was serviced\nby Mr. Hansen.\n\n\nThe policy is 4711-A.\n"


@pytest.fixture
def folder(tmp_path):
    """Text, Markdown and tables, in a folder below too, beside what is no document."""
    (tmp_path / "b").mkdir()
    (tmp_path / "notes.txt").write_bytes(b"\xef\xbb\xbf" + NOTES.replace("\n", "\r\n").encode())
    (tmp_path / "b/trip.md").write_text("# Norway\n\n- two beds\n- no dog\n\n## Costs\nThe ferry: 180 euros.\n")
    (tmp_path / "b/people.csv").write_text("name;phone;remark\nAnna;555-1;plumber\nBert;;electrician\n")
    (tmp_path / "b/rows.jsonl").write_text('{"text": "a whale", "n": 1}\n')
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "photo.png").write_bytes(bytes(9))
    (tmp_path / ".hidden.txt").write_text("hidden")
    for ours in ("index", ".git"):
        (tmp_path / ours).mkdir()
        (tmp_path / ours / "texts.txt").write_text("ours")
    (tmp_path / "index" / MARK).write_text("{}")
    return tmp_path


def test_a_folder_is_its_paragraphs_and_rows(folder):
    source = Source(folder)
    assert [tuple(each) for each in source] == [
        ("notes.txt:1", "The boiler was serviced by Mr. Hansen."),
        ("notes.txt:5", "The policy is 4711-A."),
        ("b/people.csv:2", "name: Anna; phone: 555-1; remark: plumber"),
        ("b/people.csv:3", "name: Bert; remark: electrician"),
        ("b/rows.jsonl:1", "a whale"),
        ("b/trip.md:1", "Norway - two beds - no dog"),
        ("b/trip.md:6", "Costs The ferry: 180 euros."),
    ]
    assert source.count == 7
    assert source.folder.told() == [
        f"{folder}: 5 documents",
        "1 files are no documents by their endings and are left out: photo.png",
    ]


def test_a_long_paragraph_is_split_between_sentences_and_nothing_is_lost():
    sentences = [f"Sentence {i} tells of a ship that hunts a whale." for i in range(100)]
    found = [text for _, text in paragraphs(iter([(3, " ".join(sentences))]))]
    assert len(found) > 1
    assert max(map(len, found)) <= LONGEST
    assert " ".join(found) == " ".join(sentences)
    assert [text for _, text in paragraphs(iter([(1, "x" * 3000)]))] == ["x" * 3000]


def test_a_heading_at_the_end_is_a_passage_and_a_number_sign_is_none():
    assert list(paragraphs(iter([(1, "a"), (2, ""), (3, "# End")]))) == [(1, "a"), (3, "End")]
    assert list(paragraphs(iter([(1, "#tag is here"), (2, ""), (3, "#"), (4, "")]))) == [(1, "#tag is here"), (3, "#")]


def test_a_folder_is_refused_by_what_is_wrong_with_it(folder):
    with pytest.raises(InputError, match=r"people\.csv has no column 'remrk'"):
        Source(folder, "remrk", default=False)
    with pytest.raises(InputError, match="whose ids are file:line"):
        Source(folder, id_column="name")
    (folder / "c").mkdir()
    with pytest.raises(InputError, match=r"c holds no documents, expected files ending in \.txt"):
        Folder(folder / "c")
    (folder / "notes.txt").write_bytes("caf\u00e9 \u2013 fine\n".encode("cp1252"))
    with pytest.raises(InputError, match=r"notes\.txt.*--encoding"):
        Source(folder)


def test_a_column_of_plain_text_is_refused(folder):
    """It was dropped: every line was a text."""
    with pytest.raises(
        InputError, match=r"notes\.txt is plain text, which has no column 'words': leave --text-column out"
    ):
        Source(folder / "notes.txt", "words", default=False)


def test_files_in_two_encodings_are_read_each_in_its_own(tmp_path):
    """`--encoding cp1252`, which the error of one file names, made "Ã¶" of the letters of the others."""
    (tmp_path / "a.txt").write_text("Die Störung", "cp1252")
    (tmp_path / "b.md").write_text("behoben: Müller", "utf-8")
    (tmp_path / "c.csv").write_text("text\nGrün\n", "utf-8")
    (tmp_path / "d.txt").write_text("plain")
    (tmp_path / "e.txt").write_bytes("cut off: é".encode()[:-1])
    with default_encoding("cp1252"):
        folder = Folder(tmp_path)
        assert [text for _, text in folder] == ["Die Störung", "behoben: Müller", "Grün", "plain", "cut off: Ã"]
        assert folder.told()[1:] == ["2 files are UTF-8 and were read so, the others as cp1252: b.md, c.csv"]
    with pytest.raises(InputError, match=r"a\.txt, line 1: byte 0xf6 is not UTF-8"):
        list(Folder(tmp_path))
