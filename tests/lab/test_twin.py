"""The second language of the lab: nothing of a text is lost in it, and what it shares with the first."""

from importlib import resources

import pytest

import kerasbert
from kerasbert.data.records import Records
from kerasbert.errors import InputError
from kerasbert.lab import plan, recipes, twin, work
from kerasbert.quickstart import books
from kerasbert.text.train import train_wordpiece

TEXTS = {
    "novels": [line for chapter in books.chapters("carroll")[:3] for line in chapter],
    "German": [
        "Schöne Grüße aus Köln: 30 Straßen, 4 Brücken!",
        "Zwölf Boxkämpfer jagen Viktor quer über den Sylter Deich.",
    ],
    "Chinese": ["他在学习中文,我也在学习。", "学而时习之,不亦说乎? BERT 2018"],
    "Korean": ["안녕하세요, 세계!", "우리는 한국어를 읽는다."],
    "Hindi": ["नमस्ते दुनिया, आप कैसे हैं?"],
}


@pytest.mark.parametrize("kind", twin.KINDS)
@pytest.mark.parametrize("name", TEXTS)
def test_nothing_is_lost_and_words_stay_words(name, kind):
    table = twin.alphabet(TEXTS[name], kind)
    assert len(set(table.values())) == len(table)  # one to one
    back = {ord(other): chr(code) for code, other in table.items()}
    for text in map(twin.words, TEXTS[name]):
        there = text.translate(table)
        assert twin.words(there) == there  # the tokenizer reads it so: no capital, no mark, words apart as before
        kept = str.maketrans({chr(code): None for code in back if chr(code) not in table.values()})
        assert there.translate(back).translate(kept) == text
        assert there != text


@pytest.mark.parametrize("name", TEXTS)
def test_another_script_shares_no_character_and_the_same_letters_all(name):
    used = set("".join(map(twin.words, TEXTS[name]))) - {" "}
    table = twin.alphabet(TEXTS[name], "script")
    assert not used & set(table.values())
    assert used == {chr(code) for code in table}
    table = twin.alphabet(TEXTS[name], "letters")
    letters = "".join(twin.words(text).translate(table) for text in TEXTS[name])
    assert set(letters) - {" "} == used
    assert all(chr(code).isalpha() for code in table)


def test_a_text_in_the_other_script_gets_letters_that_it_has_not():
    text = "".join(map(chr, range(twin.LETTERS[0], twin.LETTERS[500])))
    assert not set(text.translate(twin.alphabet([text], "script"))) & set(text)
    with pytest.raises(
        InputError, match="the text has 1,000 characters, and the other script 165 to put in their place"
    ):
        twin.alphabet(["".join(map(chr, range(twin.LETTERS[0], twin.LETTERS[1000])))], "script")


def test_a_vocabulary_cuts_both_languages_alike_and_shares_no_piece():
    lines = TEXTS["novels"][:150]
    table = twin.alphabet(lines, "script")
    other = [twin.words(line).translate(table) for line in lines]
    tokenizer = train_wordpiece([*lines, *other], 400)
    first, second = ([tokenizer.encode(line) for line in each] for each in (lines, other))
    pieces = [{piece for ids in each for piece in ids} - {tokenizer.unk_id} for each in (first, second)]
    assert not pieces[0] & pieces[1]
    counts = [sum(map(len, each)) for each in (first, second)]
    assert counts[0] == pytest.approx(counts[1], rel=0.02)


@pytest.mark.parametrize("kind", twin.KINDS)
def test_documents_alternate_and_rows_keep_their_labels(tmp_path, kind):
    """No document is in both languages; rows are those of the file, in its order."""
    corpus, rows = tmp_path / "corpus.txt", tmp_path / "test.tsv"
    corpus.write_text("One is.\nIt is so.\n\nTwo are.\n\nThree, 3!\n\nAnd four.\nThe end.\n")
    rows.write_text("text\tauthor\nIs it five?\tAusten\nFourteen are.\tDoyle\n")
    twin.write(tmp_path, corpus, rows.rename(tmp_path / "rows.tsv"), kind)
    table = twin.alphabet([corpus.read_text(), "Is it five? Fourteen are."], kind)

    def other(*lines):
        return "\n".join(twin.words(line).translate(table) for line in lines)

    first = ["One is.\nIt is so.", "Three, 3!"]
    second = [other("Two are."), other("And four.", "The end.")]
    assert (tmp_path / "text.txt").read_text() == "\n\n".join([*first, *second]) + "\n"
    whole = [other("One is.", "It is so."), second[0], other("Three, 3!"), second[1]]
    assert (tmp_path / "whole.txt").read_text() == "\n\n".join(whole) + "\n"


ALPHABET = "the quick brown fox jumps over a lazy dog\n"


def test_a_text_of_one_document_is_refused(tmp_path):
    path = tmp_path / "mine.txt"
    path.write_text(ALPHABET * 200)
    with pytest.raises(
        InputError, match="mine.txt is one document, and the two languages of cross-lingual are of different"
    ):
        plan.make("cross-lingual", tmp_path / "lab", seeds=2, text=path)
    assert not (tmp_path / "lab").exists()
    path.write_text(ALPHABET * 300 + "\n" + ALPHABET * 100)
    line = plan.make("cross-lingual", tmp_path / "lab", seeds=2, text=path).told()[-1]
    assert line == "25% of it in the second language: every second of its 2 documents"


@pytest.mark.parametrize(
    ("line", "share"),
    [("他在学习中文,我也在学习。他在学习中文,我也在学习。 AI", 7), ("Широкая электрификация южных губерний", 0)],
)
def test_a_text_without_the_letters_of_the_labelled_rows_is_refused(tmp_path, line, share):
    """A vocabulary of it has no word of theirs. Experiments without labels take it."""
    path = tmp_path / "mine.txt"
    path.write_text(f"{line}\n" * 200, "utf-8")
    with pytest.raises(
        InputError, match=f"mine.txt has {share}% Latin letters.* without labels: batch, embedding-width, "
    ):
        plan.make("masking", tmp_path / "lab", seeds=2, text=path)
    assert not (tmp_path / "lab").exists()
    assert plan.make("sharing", tmp_path / "lab", seeds=2, text=path).told()[1:] == []


def test_words_that_the_vocabulary_cannot_hold_are_told(tmp_path):
    path = tmp_path / "mine.txt"
    path.write_text("Zwölf Boxkämpfer jagen Viktor über den Sylter Deich.\n" * 200, "utf-8")
    line = plan.make("masking", tmp_path / "lab", seeds=2, text=path).told()[-1]
    assert line.endswith("whose words with q are [UNK]")
    path.write_text(ALPHABET * 200)
    assert plan.make("masking", tmp_path / "other", seeds=2, text=path).told()[-1].endswith("samples that ship")


def test_every_arm_reads_its_language(tmp_path, monkeypatch):
    """Records of the arm's languages, the rows of its test; all of one vocabulary."""
    text, rows = tmp_path / "text.txt", tmp_path / "data/authors/test.tsv"
    rows.parent.mkdir(parents=True)
    text.write_text("\n\n".join("\n".join(TEXTS["novels"][i : i + 10]) for i in range(0, 60, 10)) + "\n")
    rows.write_text("text\tauthor\n" + "".join(f"{line}\tCarroll\n" for line in TEXTS["novels"][60:80]))
    monkeypatch.setattr(work, "VOCABULARY", 400)
    arms = recipes.find("cross-lingual").arms
    work.prepare(tmp_path, arms, str(text))
    tokenizer = kerasbert.load_tokenizer(tmp_path / "tokenizer")
    asked = []

    def evaluate(run, rows, batch):
        asked.append(rows)
        return {"metrics": {"accuracy": 0.5}}

    monkeypatch.setattr(work.kerasbert, "evaluate", evaluate)
    for name, arm in arms.items():
        records = Records(work.records(tmp_path, arms, name))
        ids = {int(i) for shard in records.shards for i in records.rows(shard)[:, : records.length].flat}
        foreign = [i for i in ids if ord(tokenizer.vocabulary[i][-1]) >= twin.APART[0]]
        assert bool(foreign) == (arm["data"].get("twin") == "script")
        assert work._figure(tmp_path, tmp_path, arm, {"of": "test", "name": "accuracy"}) == 0.5
    languages = ["letters", "script", "letters", "script", None]
    assert [path.parent.name if "twins" in path.parts else None for path in asked] == languages
    assert all(
        [line.split("\t")[1] for line in path.read_text().splitlines()[1:]] == ["Carroll"] * 20 for path in asked
    )
    assert len({path.read_text() for path in asked}) == 3


def test_the_guide_shows_the_second_language_of_the_novels():
    novels = [line for author in books.AUTHORS for chapter in books.chapters(author) for line in chapter]
    guide = (resources.files("kerasbert") / "guides/lab.md").read_text("utf-8")
    for kind in twin.KINDS:
        assert f"| `{twin.words('The cat sat.').translate(twin.alphabet(novels, kind))}` |" in guide
