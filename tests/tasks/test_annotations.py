"""Entities by characters, as annotation tools write them: six tools, what does not fit words, and answers as files."""

import html.parser
import json
import random
import re
import sys
import types
from typing import ClassVar

import pytest

from kerasbert.answers.schemes import entities_of
from kerasbert.cli import tables as cli_tables
from kerasbert.data import dialects
from kerasbert.errors import InputError
from kerasbert.tasks import answer_tables, entity_files
from kerasbert.tasks.tables import in_memory
from kerasbert.tasks.task import find_task, read_rows, table
from kerasbert.text.words import split_words

NER = find_task("ner")
TEXT = "Uber pays 1 million to Zoe."
TAGS = ["B-ORG", "O", "B-SUM", "I-SUM", "O", "B-PER", "O"]
SPANS = [[0, 4, "ORG"], [10, 19, "SUM"], [23, 26, "PER"]]
NAMED = [{"start": start, "end": end, "label": label} for start, end, label in SPANS]
OFFSETS = [{"id": i, "label": label, "start_offset": a, "end_offset": b} for i, (a, b, label) in enumerate(SPANS)]


def results(spans, text=TEXT):
    return [
        {
            "from_name": "label",
            "to_name": "text",
            "type": "labels",
            "value": {"start": a, "end": b, "text": text, "labels": [label]},
        }
        for (a, b, label), text in zip(spans, ["Uber", "1 million", "Zoe"])
    ]


STUDIO = {"id": 1, "data": {"text": TEXT, "source": "x"}, "annotations": [{"id": 4, "result": results(SPANS)}]}
MINIMAL = [{"start": a, "end": b, "text": TEXT[a:b], "labels": [label]} for a, b, label in SPANS]
GROUPS = [{"start": a, "end": b, "entity_group": label, "word": TEXT[a:b]} for a, b, label in SPANS]
FILES = {
    "spacy.json": [[TEXT, {"entities": SPANS}]],
    "lines.jsonl": [TEXT, {"entities": SPANS}],
    "exported.json": {"classes": ["ORG"], "annotations": [[TEXT, {"entities": SPANS}], None]},
    "doccano.jsonl": {"id": 3, "text": TEXT, "label": SPANS},
    "doccano2.jsonl": {"id": 3, "text": TEXT, "labels": SPANS, "Comments": "x"},
    "relations.jsonl": {"id": 3, "text": TEXT, "entities": OFFSETS, "relations": []},
    "older.jsonl": {"id": 3, "text": TEXT, "annotations": OFFSETS, "meta": {}, "annotation_approver": None},
    "prodigy.jsonl": {"text": TEXT, "tokens": [{"text": "Uber", "id": 0}], "spans": NAMED, "answer": "accept"},
    "studio.json": [STUDIO],
    "minimal.json": [{"id": 1, "text": TEXT, "label": MINIMAL, "annotator": 1, "annotation_id": 4}],
    "hugging_face.jsonl": {"text": TEXT, "entities": GROUPS},
    "bigbio.jsonl": {
        "text": TEXT,
        "entities": [{"offsets": [[a, b]], "type": label, "text": [TEXT[a:b]]} for a, b, label in SPANS],
    },
}


@pytest.fixture(autouse=True)
def _fresh():
    dialects.say.cache_clear()


def written(tmp_path, name, content):
    (tmp_path / name).write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return tmp_path / name


def tags(source, task=NER):
    return [row[task.label] for _, row in table(task, source, task.columns)]


@pytest.mark.parametrize("name", FILES)
def test_every_tool_gives_the_same_words_and_tags(tmp_path, name, capsys):
    path = written(tmp_path, name, FILES[name])
    rows = read_rows(find_task(NER, labels={tag: tag for tag in sorted(set(TAGS))}), path)
    assert (rows.texts, rows.labels) == ([TEXT], [TAGS])
    held = FILES[name] if name.endswith(".json") and isinstance(FILES[name], list) else [FILES[name]]
    if name != "exported.json":
        assert tags(in_memory(held)) == [TAGS]  # the same in Python
    assert capsys.readouterr().err == ""


def test_rows_of_entities_within_one_object(tmp_path, capsys):
    path = written(tmp_path, "a.json", json.dumps({"data": [{"text": TEXT, "entities": NAMED}]}, indent=1))
    assert tags(path) == [TAGS]
    assert capsys.readouterr().err == f"{path}: the rows are those of 'data'\n"


def test_tuples_of_spacy_and_named_columns(tmp_path):
    assert tags(in_memory([(TEXT, {"entities": [tuple(span) for span in SPANS]}), ("no", {})])) == [TAGS, ["O"]]
    named = find_task("ner", text="body", label="spans")
    assert tags(written(tmp_path, "a.jsonl", {"body": TEXT, "spans": SPANS}), named) == [TAGS]


def test_500_random_annotations_are_the_words_that_they_touch(tmp_path, capsys):
    draw = random.Random(0)
    for _ in range(500):
        text = "".join(draw.choices("ab, é中\U0001f600-", k=draw.randrange(1, 30)))
        start = draw.randrange(len(text))
        end = draw.randrange(start + 1, len(text) + 1)
        ((_, row),) = table(NER, in_memory([{"text": text, "entities": [[start, end, "X"]]}]), NER.columns)
        words = split_words(text)
        touched = [i for i, (_, a, b) in enumerate(words) if a < end and start < b]
        found = entities_of(row["tags"])
        assert found == ([("X", touched[0], touched[-1])] if touched else [])
        cut = touched and (words[touched[0]][1] < start or words[touched[-1]][2] > end)
        told = capsys.readouterr().err
        assert ("widened" in told) == bool(cut), (text, start, end, told)
        assert ("hold no word" in told) == (not touched)
        dialects.say.cache_clear()


def test_what_does_not_fit_words_is_told_with_counts_and_lines(tmp_path, capsys):
    rows = [
        {"text": "Bank of America", "entities": [[0, 15, "ORG"], [8, 15, "LOC"], [0, 15, "ORG"], [4, 5, "X"]]},
        {"text": "New York", "entities": [[0, 3, "A"], [1, 6, "B"]]},
    ]
    path = written(tmp_path, "a.jsonl", "\n".join(map(json.dumps, rows)))
    assert tags(path) == [["B-ORG", "I-ORG", "I-ORG"], ["B-B", "I-B"]]
    told = capsys.readouterr().err
    assert (
        "2 of 6 entities share a word with a longer or an earlier one and are left out, such as LOC 'America' (line 1)"
        in told
    )
    assert (
        "1 of 6 entities begin or end inside a word and are widened to it, such as 'ew Yo' -> 'New York' (line 2)"
        in told
    )
    assert "1 of 6 entities hold no word and are left out, such as X ' ' (line 1)" in told


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            {"text": "Zoe", "entities": [[0, 4, "X"]]},
            "the entity 'X' from 0 to 4 lies outside the text, of 3 characters",
        ),
        ({"text": "Zoe", "entities": [[-1, 2, "X"]]}, "from -1 to 2 lies outside the text"),
        ({"text": "Zoe", "entities": [[2, 1, "X"]]}, "from 2 to 1 ends before it begins"),
        ({"text": "Zoe", "entities": [[1, 1, "X"]]}, "from 1 to 1 ends before it begins"),
        ({"text": "Zoe", "entities": [{"start": 0, "label": "X"}]}, r"is no \[start, end, label\] with one label"),
        ({"text": "Zoe", "entities": [{"start": 0, "end": 3, "label": ["X", "Y"]}]}, "with one label"),
        ({"text": "Zoe", "entities": [{"start": 0, "end": 3, "label": "X", "text": "Eve"}]}, "'Eve' by its own text"),
        ({"text": "Zoe", "entities": [[0, 3, "X"]], "label": [[0, 3, "Y"]]}, "entities in 'entities' and in 'label'"),
        ({"text": "Zoe", "entities": [{"start": float("nan"), "end": 3, "label": "X"}]}, "with one label"),
        ({"text": "Zoe", "entities": [{"start": 0, "end": float("inf"), "label": "X"}]}, "with one label"),
        ({"text": "Zoe", "entities": [{"offsets": [[]], "type": "X"}]}, "with one label"),
        (["Zoe", {"entities": 5}], r"the entities are 5, expected a list \(spaCy\)"),
        (["Zoe", {"entities": None}], r"the entities are None, expected a list \(spaCy\)"),
        ({"text": "Zoe", "spans": {"a": 1}, "answer": "accept"}, r"are {'a': 1}, expected a list \(Prodigy\)"),
        ({"data": {"text": "Zoe"}, "annotations": 5}, "the annotations are not Label Studio's"),
        ({"data": {"text": "Zoe"}, "annotations": ["x"]}, "the annotations are not Label Studio's"),
        ({"data": {"text": "Zoe"}, "annotations": [{"result": 5}]}, "the annotations are not Label Studio's"),
        ({"data": {"text": "Zoe"}, "annotations": [{"result": [5]}]}, "the annotations are not Label Studio's"),
        ({"data": {"text": "Zoe"}, "annotations": [{"result": [{"value": "start"}]}]}, "are not Label Studio's"),
        ({"body": "Zoe"}, "has no column 'words'. It has: body. Name the one of texts or words with --text-column"),
    ],
)
def test_mistakes_are_refused_with_the_line(tmp_path, row, message):
    path = written(tmp_path, "a.jsonl", "\n" * ("body" not in row) + json.dumps(row))
    with pytest.raises(InputError, match=rf"a.jsonl, line {1 + ('body' not in row)}.*{message}"):
        tags(path)


def test_rows_of_another_form_than_the_first(tmp_path):
    lines = json.dumps({"text": "a", "label": []}) + '\n{"text": "b"}'
    with pytest.raises(InputError, match="a.jsonl, line 2 is no row of entities as the first one is"):
        tags(written(tmp_path, "a.jsonl", lines))


def test_what_annotators_left_open_is_counted(tmp_path, capsys):
    lines = [{"text": "a", "spans": [], "answer": answer} for answer in ("accept", "reject", "ignore", "reject")]
    path = written(tmp_path, "a.jsonl", "\n".join(map(json.dumps, lines)))
    assert tags(path) == [["O"]]
    assert (
        "3 of 4 rows have no label and are left out: answer 'reject' (2), answer 'ignore' (1)"
        in capsys.readouterr().err
    )
    cancelled = {"data": {"text": "x"}, "annotations": [{"was_cancelled": True, "result": []}]}
    assert tags(written(tmp_path, "b.json", [STUDIO, cancelled])) == [TAGS]
    assert "1 of 2 rows have no label and are left out: no annotation (1)" in capsys.readouterr().err
    with pytest.raises(InputError, match="none of its 1 rows has a label: no annotation"):
        tags(written(tmp_path, "c.json", [cancelled]))
    assert len(answer_tables.read(path, ["words"], NER).texts()) == 4  # all are predicted


def test_of_several_annotators_one_is_taken_and_that_is_said(tmp_path, capsys):
    both = [{"result": results(SPANS[:1])}, {"result": results(SPANS)}, {"result": [], "was_cancelled": True}]
    assert tags(written(tmp_path, "a.json", [STUDIO | {"annotations": both}])) == [["B-ORG", *"OOOOOO"]]
    assert "1 of 1 texts have several annotations: of each the one marked as ground truth" in capsys.readouterr().err
    both[1]["ground_truth"] = True
    assert tags(written(tmp_path, "b.json", [STUDIO | {"annotations": both}, STUDIO])) == [TAGS, TAGS]
    other = [{"to_name": "title", "value": {"start": 0, "end": 1, "labels": ["X"]}}]
    both[1]["result"] = [*results(SPANS), *other]
    with pytest.raises(
        InputError, match=r"c\.json: entities of 2 texts are marked \(text, title\), expected those of one"
    ):
        tags(written(tmp_path, "c.json", [STUDIO | {"annotations": both}]))


def test_label_studio_counts_utf16_units_unless_the_annotation_says_otherwise(tmp_path):
    text = "\U0001f4a9 Zoe sees \U0001f4a9 Eve"
    spans = [(3, 6, "Zoe"), (15, 18, "Eve")]  # 2 to 5 and 13 to 16 in characters
    wanted = ["O", "B-X", "O", "O", "B-X"]
    for own in (True, False):
        for shift in (0, 1):
            values = [
                {"start": a - shift * (1 + (a > 9)), "end": b - shift * (1 + (a > 9)), "labels": ["X"]}
                | ({"text": word} if own else {})
                for a, b, word in spans
            ]
            task = {"data": {"text": text}, "annotations": [{"result": [{"value": value} for value in values]}]}
            found = tags(written(tmp_path, "a.json", [task]))[0]
            assert (found == wanted) == (own or shift == 0), (own, shift)


BODY, TITLE = {"title": "Zoe", "body": TEXT}, {"title": TEXT, "body": "Uber pays 2 million to Eve."}


def studio(data, to_name="part", spans=SPANS, own=True, **more):
    made = [result | {"to_name": to_name} | more for result in results(spans)]
    if not own:
        made = [each | {"value": {k: v for k, v in each["value"].items() if k != "text"}} for each in made]
    return {"id": 1, "data": data, "annotations": [{"result": made}]}


def minimal(data, *names, spans=SPANS):
    made = [result["value"] for result in results(spans)]
    return {"id": 1, **data, "annotation_id": 4, "created_at": "2024-01-01", **dict.fromkeys(names, made)}


NOBODY = {"id": 2, "data": {"title": "no", "body": "no"}, "annotations": []}
LABEL_STUDIO = [
    ("its name", [studio(TITLE, "title")], ""),
    (
        "the name of another field",
        [studio(BODY, "title")],
        "annotated text 'title' is 'body', where every entity stands",
    ),
    ("where the entities stand", [studio(BODY), NOBODY], "annotated text 'part' is 'body', where every entity stands"),
    ("where all entities stand", [studio(BODY), studio(TITLE | {"body": TEXT})], "'part' is 'body'"),
    ("offsets alone", [studio(BODY, own=False)], "'part' is 'body', where every entity stands, and not title"),
    ("JSON-MIN", [minimal(BODY, "ner")], "'text' is 'body', where every entity stands, and not title"),
    (
        "two sets",
        [minimal({"body": TEXT}, "ner", "more")],
        "entities of 2 sets of labels (ner, more) are taken together",
    ),
]


@pytest.mark.parametrize(("rows", "said"), [rest for _, *rest in LABEL_STUDIO], ids=[name for name, *_ in LABEL_STUDIO])
def test_of_several_texts_label_studio_s_entities_say_which_is_theirs(tmp_path, capsys, rows, said):
    assert tags(written(tmp_path, "a.json", rows))[0] == TAGS
    err = capsys.readouterr().err
    assert said in err
    assert err.count("a.json: ") == bool(said) + ("no annotation" in err)


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([studio(BODY, "title"), studio(BODY, "body")], r"entities of 2 texts are marked \(title, body\)"),
        (
            [studio({"one": TEXT, "two": TEXT})],
            "the annotated text 'part' stands is not clear: one, two. Name it with --text",
        ),
        ([NOBODY], "the annotated text 'text' stands is not clear: title, body"),
        ([studio({"title": "no", "body": "no"})], "is not clear: title, body"),
    ],
)
def test_entities_of_label_studio_that_may_be_of_several_texts_are_refused(tmp_path, rows, told):
    with pytest.raises(InputError, match=rf"a\.json: .*{told}"):
        tags(written(tmp_path, "a.json", rows))
    asked = find_task("ner", text="two")
    if "one" in rows[0]["data"]:
        assert tags(written(tmp_path, "b.json", rows), asked) == tags(in_memory(rows), asked) == [TAGS]


def test_docbin_is_read_by_spacy_or_told(tmp_path, monkeypatch):
    path = tmp_path / "a.spacy"
    path.write_bytes(b"\x78\x9c\x00\x01")
    monkeypatch.setitem(sys.modules, "spacy", None)
    with pytest.raises(InputError, match=r"a.spacy is spaCy's own format, which spaCy reads: pip install spacy"):
        tags(path)
    ents = [types.SimpleNamespace(start_char=a, end_char=b, label_=label) for a, b, label in SPANS]
    doc = types.SimpleNamespace(text=TEXT, ents=ents)
    docbin = types.SimpleNamespace(from_disk=lambda path: types.SimpleNamespace(get_docs=lambda vocab: [doc]))
    spacy = types.SimpleNamespace(blank=lambda name: types.SimpleNamespace(vocab=None))
    monkeypatch.setitem(sys.modules, "spacy", spacy)
    monkeypatch.setitem(sys.modules, "spacy.tokens", types.SimpleNamespace(DocBin=lambda: docbin))
    assert tags(path) == [TAGS]


def test_tokens_and_numbers_of_data_sets(tmp_path):
    row = {"id": 1, "tokens": ["Uber", "pays"], "ner_tags": [1, 0]}
    path = written(tmp_path, "a.jsonl", row)
    assert tags(path) == tags(in_memory([row])) == [[1, 0]]
    task = find_task("ner", labels={"0": "O", "1": "B-ORG"})
    (target,) = read_rows(task, path).targets
    assert target.tolist() == [1, 0]

    class Dataset(dict):
        column_names = ("tokens", "ner_tags", "label")
        features: ClassVar = {
            "tokens": types.SimpleNamespace(feature=types.SimpleNamespace()),
            "ner_tags": types.SimpleNamespace(feature=types.SimpleNamespace(names=["O", "B-ORG"])),
            "label": types.SimpleNamespace(names=["bad", "good"]),
        }

    data = in_memory(Dataset({name: [value] * 2 for name, value in row.items()} | {"label": [1, -1]}))
    assert [row["label"] for row in data.rows] == ["good", -1]
    assert tags(data)[0] == ["B-ORG", "O"]


def test_a_table_of_texts_is_predicted_with_its_offsets(tmp_path):
    path = written(tmp_path, "a.csv", "id,text\n1,New  York is big\n")
    (found,) = answer_tables.read(path, ["words"], NER)
    assert found == (2, {"id": "1", "text": "New  York is big"}, "New  York is big")
    path = written(tmp_path, "b.csv", "words,text\na b,no\n")
    assert answer_tables.read(path, ["words"], NER).texts() == ["a b"]
    assert answer_tables.read(written(tmp_path, "c.json", [[TEXT, {}]]), ["words"], NER).texts() == [TEXT]


def test_what_a_row_says_beside_its_text_stays_beside_the_answers(tmp_path):
    """The id of a task of Label Studio, by which predictions go back to it."""
    rows = [{**STUDIO, "id": 41, "created_at": "2024", "meta": {}}]
    (found,) = answer_tables.read(written(tmp_path, "studio.json", rows), ["words"], NER)
    assert (found[1]["id"], found[1]["created_at"], found[2]) == (41, "2024", TEXT)


def test_training_data_of_spacy_2_is_refused_with_what_converts_it(tmp_path):
    path = written(tmp_path, "old.json", [{"id": 0, "paragraphs": [{"raw": TEXT}]}])
    with pytest.raises(InputError, match=r"old.json is training data of spaCy 2: python -m spacy convert .*old.json"):
        table(NER, path, NER.columns)


ENTITIES = [{"label": "A<b>", "start": 0, "end": 3, "text": "Zoe", "score": 0.75}]
ROWS = [
    ({"text": "Zoe <script>alert(1)</script> & \n x"}, [["Zoe", "x"], ["B-A<b>", "O"], ENTITIES]),
    ({"text": ""}, None),
    ({"text": ("Zoe", "runs")}, [["Zoe", "runs"], ["B-A<b>", "O"], ENTITIES]),
]


def test_answers_as_conll_can_be_read_again(tmp_path):
    text = "".join(entity_files.conll(ROWS, "text"))
    assert text == "-DOCSTART-\tO\n\nZoe\tB-A<b>\nx\tO\n\nZoe\tB-A<b>\nruns\tO\n\n"
    assert tags(written(tmp_path, "a.conll", text)) == [["B-A<b>", "O"], ["B-A<b>", "O"]]
    with pytest.raises(InputError, match="row 1: the word 'a\\\\tb' cannot stand in CoNLL"):
        list(entity_files.conll([({}, [["a\tb"], ["O"], []])], "text"))


def test_the_page_marks_entities_and_runs_nothing():
    page = "".join(entity_files.page(ROWS, "text"))
    seen = []

    class Parser(html.parser.HTMLParser):
        def handle_starttag(self, tag, attrs):
            seen.append((tag, dict(attrs)))

    Parser().feed(page)
    names = {tag for tag, _ in seen}
    assert "script" not in names
    assert not re.search(r"(src|href|@import|url\()", page)
    marks = [attrs for tag, attrs in seen if tag == "mark"]
    assert [mark["title"] for mark in marks] == ["A<b> 0.7500"] * 2
    assert "Zoe<b>A&lt;b&gt;</b></mark> &lt;script&gt;" in page
    assert "2 entities in 3 texts" in page
    assert page.count("<main>") == page.count("</main>") == 1  # a landmark; axe-core asks for it


def test_files_of_words_are_of_taggers_alone(tmp_path):
    for name in ("a.conll", "a.html"):
        kind = cli_tables.check_out(name)
        answer_tables.check_kind(kind, ("words", "labels", "entities"), name)
        with pytest.raises(InputError, match=f"--out {name}: a .* file holds the words and entities of a tagger"):
            answer_tables.check_kind(kind, ("label", "score"), name)
