"""Words and tags in columns: what may stand in a file, and what is refused with file and line."""

import dataclasses
import json

import pytest

from kerasbert import answers, registry
from kerasbert.errors import InputError
from kerasbert.tasks.base import Task
from kerasbert.tasks.conll import read_conll
from kerasbert.tasks.task import find_task
from tests.support import shared
from tests.text.kinds import gpt2_bpe, shared_unigram

NER, POS = (
    Task(name, kind="tags", text="words", label=label, reader="conll")
    for name, label in (("ner", "tags"), ("pos", "upos"))
)
UD = "\t".join(["{}", "{}", "_", "{}", "_", "_", "0", "_", "_", "_"])


def read(tmp_path, content, name="x.conll", task=NER):
    (tmp_path / name).write_text(content, encoding="utf-8", newline="")
    return read_conll(tmp_path / name, task)


def test_columns_with_tabs_or_blanks(tmp_path):
    conll2003 = "-DOCSTART- -X- -X- O\n\nEU NNP B-NP B-ORG\n# NN B-NP O\n\n\n-DOCSTART- -X- O O\n\nPeter NNP B-NP B-PER"
    assert read(tmp_path, conll2003) == [
        (3, {"words": ["EU", "#"], "tags": ["B-ORG", "O"]}),
        (9, {"words": ["Peter"], "tags": ["B-PER"]}),
    ]
    chunks = dataclasses.replace(NER, label="3", text="2")
    assert read(tmp_path, conll2003, task=chunks)[0][1] == {"2": ["NNP", "NN"], "3": ["B-NP", "B-NP"]}
    tabs = "\ufeffNew York\tB-LOC\r\n\u3000\tO\r\n\t\r\na\u2028b\tO\r\n"  # a line ends at a line feed alone
    assert [row for _, row in read(tmp_path, tabs)] == [
        {"words": ["New York", "\u3000"], "tags": ["B-LOC", "O"]},
        {"words": ["a\u2028b"], "tags": ["O"]},
    ]
    assert read(tmp_path, "BRCA1\tB\ngene\tO\n", "train.tsv")[0][1]["words"] == ["BRCA1", "gene"]


def test_conllu_without_ranges_empty_nodes_and_comments(tmp_path):
    lines = [
        "# text = vámonos #",
        UD.format("1-2", "vámonos", "_"),
        UD.format(1, "vamos", "VERB"),
        UD.format(2, "#", "SYM"),
    ]
    lines += [UD.format("2.1", "empty", "X"), "", "# next", UD.format(1, "1 000", "NUM"), ""]
    content = "\n".join(lines)
    assert read(tmp_path, content, "x.conllu", POS) == [
        (3, {"words": ["vamos", "#"], "upos": ["VERB", "SYM"]}),
        (8, {"words": ["1 000"], "upos": ["NUM"]}),
    ]
    lemmas = dataclasses.replace(POS, label="deps")
    assert read(tmp_path, content, "x.conllu", lemmas)[0][1]["deps"] == ["_", "_"]
    with pytest.raises(InputError, match=r"x.conllu, line 1: 3 columns, expected CoNLL-U's 10"):
        read(tmp_path, "1\ta\tb\n", "x.conllu", POS)


def test_tables(tmp_path):
    rows = [{"words": ["a", "b"], "tags": ["O", "B-X"], "id": 1}, {"words": "a  b", "tags": "O O"}]
    found = read(tmp_path, "\n".join(map(json.dumps, rows)), "x.jsonl")
    assert [row for _, row in found] == [
        {"words": ["a", "b"], "tags": ["O", "B-X"], "id": 1},
        {"words": ["a", "b"], "tags": ["O", "O"]},
    ]
    assert read(tmp_path, "words\ttags\na b\tO O\n", "x.tsv") == [(2, {"words": ["a", "b"], "tags": ["O", "O"]})]
    assert read(tmp_path, '{"words": "Don\'t!"}', "x.jsonl") == [(1, {"words": "Don't!"})]
    with pytest.raises(InputError, match="x.jsonl, line 1 has no column 'words'. It has: text"):
        read(tmp_path, '{"text": "a"}', "x.jsonl")
    with pytest.raises(InputError, match="x.jsonl, line 1: 'tags' is 3, expected a list"):
        read(tmp_path, '{"words": ["a"], "tags": 3}', "x.jsonl")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a O\nb\nc O\n", "line 2: 1 columns, expected 2"),
        ("a O\nb O O\n", "line 2: 3 columns, expected 2"),
        ("a\tO\n\tO\n", "line 2: an empty word"),
        ("a\tO\nb\t\n", "line 2: an empty tag"),
        ("\n\na\n", "line 3: one column, expected a word and its tag"),
        ("a b\tO O\n", "line 1: the tag 'O O' holds blanks. Is it a table"),
        (b"a O\n\xff O\n", "line 2"),
    ],
)
def test_what_is_refused_is_named_with_its_line(tmp_path, content, message):
    (tmp_path / "x.conll").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError, match=rf"x.conll, {message}"):
        read_conll(tmp_path / "x.conll", NER)


def test_a_column_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match=r"x.conll has 2 columns, expected a number from 1. Received: 4"):
        read(tmp_path, "a O\n", task=dataclasses.replace(NER, label="4"))


def test_a_trained_model_is_given_words_or_raw_texts_too(tmp_path):
    task = dataclasses.replace(NER, labels={"O": "O", "B-X": "B-X"})
    assert [row for _, row in read(tmp_path, "Zoe\nsees\n\n-\n", task=task)] == [
        {"words": ["Zoe", "sees"]},
        {"words": ["-"]},
    ]
    assert read(tmp_path, "Zoe sees.\n\nIs it O?\n", task=task) == [
        (1, {"words": "Zoe sees."}),
        (3, {"words": "Is it O?"}),
    ]
    assert read(tmp_path, "Zoe B-X\n", task=task) == [(1, {"words": ["Zoe"], "tags": ["B-X"]})]
    with pytest.raises(InputError, match="x.conll, line 2: 3 columns, expected 2"):
        read(tmp_path, "Zoe O\nsees B O\n", task=task)


def test_tasks_find_their_files(tmp_path):
    from kerasbert.tasks.task import split_files

    for name in ("de_gsd-ud-dev.conllu", "de_gsd-ud-train.conllu", "train.txt", "valid.txt"):
        (tmp_path / name).write_text("")
    found = split_files(tmp_path, task=registry.task("pos"))
    assert {split: path.name for split, path in found.items()} == {
        "train": "de_gsd-ud-train.conllu",
        "dev": "de_gsd-ud-dev.conllu",
    }
    assert split_files(tmp_path, task=registry.task("conll2003"))["dev"].name == "valid.txt"


@pytest.mark.slow
def test_every_word_of_the_shared_data_gets_one_label():
    """In windows of 48 tokens, with BPE and unigram of every twelfth sentence; counts as the READMEs of the data have them."""
    from kerasbert.text import load_tokenizer

    expected = {
        "ner/BTC/a.conll": (1000, 16612),
        "ner/BTC/b.conll": (2000, 30825),
        "ner/WNUT17/dev.conll": (1009, 15733),
        "ner/WNUT17/train.conll": (3394, 62730),
        "ner/WikiANN/de-dev.conll": (3000, 29442),
        "ner/WikiANN/fr-dev.conll": (3000, 20797),
        "ud/UD_English-EWT/en_ewt-ud-dev.conllu": (2001, 25510 - 359 - 4),
        "ud/UD_Czech-CLTT/cs_cltt-ud-dev.conllu": (316, 10710),
        "ud/UD_German-GSD/de_gsd-ud-dev.conllu": (799, 12480),
    }
    sentences = []
    for name, (count, words) in expected.items():
        rows = read_conll(shared(f"data/{name}"), POS if name.endswith("u") else NER)
        assert (len(rows), sum(len(row["words"]) for _, row in rows)) == (count, words), name
        sentences += [tuple(row["words"]) for _, row in rows]
    kind, uncased = answers.find("tags"), load_tokenizer(shared("data/vocab/bert-base-uncased"))
    lost = {}
    for name, tokenizer in (
        ("wordpiece", uncased),
        ("bpe", gpt2_bpe()),
        ("unigram", shared_unigram("sentencepiece-1k")),
    ):
        lost[name] = 0
        for words in sentences if name == "wordpiece" else sentences[::12]:
            rows = kind.rows(tokenizer, (words,), 48)
            answered = [number for row in rows for number in row.about.words.tolist()]
            assert len(set(answered)) == len(answered)
            assert max(row.length for row in rows) <= 48
            lost[name] += len(words) - len(answered)
    assert lost == {"wordpiece": 5, "bpe": 0, "unigram": 0}


COMMENTS = {  # each the sentence "it laughs", "x #", of tags O B, O O
    "MultiCoNER": "# id 5f-1 domain=en\nit _ _ O\nlaughs _ _ B-X\n\n# id 5f-2 domain=en\nx _ _ O\n# _ _ O\n",
    "MultiCoNER with a tab": "# id 5f-1\tdomain=en\nit O\nlaughs B-X\n\n# id 5f-2\tdomain=en\nx O\n# O\n",
    "CoNLL-U's comments": "# sent_id = 1\n# text = it laughs\nit O\nlaughs B-X\n\n# text = x # y z\nx O\n# O\n",
    "as many columns as rows": "# sent_id = 1\nit a a O\nlaughs a a B-X\n\n# text = 2\nx a a O\n# a a O\n",
    "OntoNotes": "#begin document (a/b); part 000\nit O\nlaughs B-X\n\nx O\n# O\n#end document\n",
    "an address": "#\thttp://example.org/a\t[2009-10-17]\nit\tO\nlaughs\tB-X\n\n#\thttp://example.org\nx\tO\n#\tO\n",
    "a comment alone": "# it is a file\n\nit O\nlaughs B-X\n\n# more of it\n\nx O\n# O\n",
}


@pytest.mark.parametrize("name", COMMENTS)
def test_comments_are_no_words(tmp_path, capfd, name):
    found = [tuple(row.values()) for _, row in read(tmp_path, COMMENTS[name], f"{name.replace(' ', '')}.conll")]
    assert found == [(["it", "laughs"], ["O", "B-X"]), (["x", "#"], ["O", "O"])]
    assert "2 comment lines are no words and are skipped, such as line 1" in capfd.readouterr().err.replace(
        " 3 ", " 2 "
    )


@pytest.mark.parametrize(
    "content",
    [
        "# O\nx B-X\n",
        "#\tO\nx\tB-X\n",
        "# SYM\n5 NUM\n\n# SYM\n6 NUM\n",
        "#1 O\n\n#yes B-X\nx O\n",
        "x O\n# a=b\n",
        "# #\nx O\n",
    ],
)
def test_a_word_that_is_a_hash_stays(tmp_path, capfd, content):
    words = [word for _, row in read(tmp_path, content) for word in row["words"]]
    assert words == [line.split()[0] for line in content.splitlines() if line]
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("name", ["BTC/a.conll", "BTC/b.conll", "WNUT17/train.conll", "WNUT17/dev.conll"])
def test_tweets_lose_no_word(name, capfd):
    path = shared("data/ner") / name
    lines = [line for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]
    assert sum(len(row["words"]) for _, row in read_conll(path, NER)) == len(lines)
    assert any(line.startswith("#\t") for line in lines)
    assert capfd.readouterr().err == ""


GERMEVAL = "#\thttp://example.org/a\t[2009]\n1\tAnna\tB-PER\tO\n2\tlacht\tO\tO\n\n#\tb\n1\tRom\tB-LOC\tB-LOCpart\n"


@pytest.mark.parametrize("ending", ["tsv", "conll", "txt"])
def test_columns_are_chosen_by_their_numbers(tmp_path, ending, capfd):
    task = find_task(NER, text="2", label="3")
    assert (task.text, task.label, task.reader) == ("words", "tags", "conll:2,3")
    assert Task.from_json(json.loads(json.dumps(task.to_json()))).reader == "conll:2,3"
    wanted = [(2, {"words": ["Anna", "lacht"], "tags": ["B-PER", "O"]}), (6, {"words": ["Rom"], "tags": ["B-LOC"]})]
    assert read(tmp_path, GERMEVAL, f"x.{ending}", task) == wanted
    assert capfd.readouterr().err.count("\n") == 1  # of the comments alone
    outer = find_task(NER, label="3")
    assert [row["tags"] for _, row in read(tmp_path, GERMEVAL, f"y.{ending}", outer)] == [["B-PER", "O"], ["B-LOC"]]
    assert "words are read from column 2, tags from column 3 (--text-column N" in capfd.readouterr().err
    inner = [row["tags"] for _, row in read(tmp_path, GERMEVAL, f"z.{ending}")]
    assert inner == [["O", "O"], ["B-LOCpart"]]
    assert "words are read from column 2, tags from column 4" in capfd.readouterr().err


def test_what_is_no_column_of_words(tmp_path):
    with pytest.raises(InputError, match=r"x.conll has 2 columns, expected a number from 1. Received: 5"):
        read(tmp_path, "a O\n", task=find_task(NER, text="5"))
    with pytest.raises(InputError, match="x.conll: the first of its two columns numbers the words"):
        read(tmp_path, "1 O\n2 B-X\n\n1 O\n")
    with pytest.raises(InputError, match=r"x.jsonl is a table, whose columns are named: give their names, not 2, 3"):
        read(tmp_path, '{"words": ["a"], "tags": ["O"]}', "x.jsonl", find_task(NER, text="2", label="3"))
    numbers = read(tmp_path, "1 CD\nof IN\n\n1 CD\n2 CD\n3 CD\n", task=POS)  # not of every sentence
    assert [row["words"] for _, row in numbers] == [["1", "of"], ["1", "2", "3"]]
    assert read(tmp_path, "1\tAnna\tNE\n2\tlacht\tVV\n", task=POS)[0][1] == {
        "words": ["Anna", "lacht"],
        "upos": ["NE", "VV"],
    }


def test_comments_of_words_to_predict_are_no_words(tmp_path):
    task = dataclasses.replace(NER, labels={"O": "O", "B-X": "B-X"})
    assert [row for _, row in read(tmp_path, "# id 1 domain=en\nZoe\nsees\n\n# id 2\n#\n", task=task)] == [
        {"words": ["Zoe", "sees"]},
        {"words": ["#"]},
    ]
