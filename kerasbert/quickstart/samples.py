"""`kerasbert samples`: small files of every format that the guides use, made of the five novels that ship with the package.

The labels are made by rules, so that they are right by construction and the files the same on every machine: who wrote a passage,
which names of a list stand in a sentence, who speaks by the words `said Alice`.
"""

import csv
import io
import json
import os
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from importlib import resources
from itertools import pairwise
from typing import TypeVar

from kerasbert.quickstart import books, sample_texts
from kerasbert.storage import files
from kerasbert.storage.json_view import Json

ABOUT = {  # file -> what it holds and what reads it
    "novels.csv": "passages and their author: classification",
    "novels-test.csv": "the same, of other chapters",
    "new.csv": "passages without an author: predict",
    "tags.csv": "passages with several labels: multi_label",
    "entities/train.conll": "words and their entities, CoNLL columns: ner",
    "entities/dev.conll": "the same, of other chapters",
    "spans.jsonl": "texts with entities as character offsets",
    "questions/train.json": "questions about passages, SQuAD's format: squad",
    "questions/dev.json": "the same, of other chapters",
    "choices.jsonl": "a sentence and four, one of which comes next: choice",
    "pairs.csv": "pairs of sentences with a score from 0 to 5: sts, regression",
    "translations.csv": "English sentences with their French: translation",
    "sentences.txt": "a sentence a line: search",
    "corpus.txt": "sentences of chapters, a blank line between: pretraining",
    "en.txt": "English sentences: a corpus of two languages",
    "fr.txt": "French sentences: the other language",
    "graph.spo": "subject, predicate, object, tabs between: a knowledge graph",
    "classify.ipynb": "a notebook: novels.csv to a classifier and its mistakes",
    "entities.ipynb": "a notebook: entities/ to names and places in new texts",
    "search.ipynb": "a notebook: sentences.txt to an index, and how well it finds",
    "phone.ipynb": "a notebook: a classifier in one int8 file",
}
AUTHORS = ("austen", "carroll", "melville")  # of novels.csv: three that a small encoder tells apart from few passages
Passage = tuple[str, str]  # text, author
Value = TypeVar("Value")


def write(folder: str | os.PathLike = "samples", overwrite: bool = False) -> dict[str, str]:
    """Write the samples; TensorFlow is not needed.

    Args:
        folder: a new or an empty folder.
        overwrite: bool, replace a folder of samples that holds nothing else.

    Returns:
        file -> what it holds.

    Raises:
        InputError: the folder holds something that is not to be replaced.
    """
    with files.new_directory(folder, overwrite) as new:
        for name, content in contents().items():
            files.write_atomic(new / name, content)
    return ABOUT


def contents() -> dict[str, str]:
    """File -> its text; the same on every machine."""
    train, test = _passages("train", 150), _passages("test", 40)
    tagged, tagged_dev = _named("train", 480), _named("test", 120)
    translated = sample_texts.translations()
    return {
        "novels.csv": _csv(["text", "author"], train),
        "novels-test.csv": _csv(["text", "author"], test),
        "new.csv": _csv(["id", "text"], [(i, text) for i, (text, _) in enumerate(test[5::6], 1)]),
        "tags.csv": _csv(["text", "labels"], [(text, "|".join(_labels(text))) for text, _ in train]),
        "entities/train.conll": _conll(tagged),
        "entities/dev.conll": _conll(tagged_dev),
        "spans.jsonl": _jsonl({"text": text, "entities": _spans(text)} for text in tagged),
        "questions/train.json": _squad("train"),
        "questions/dev.json": _squad("test"),
        "choices.jsonl": _jsonl(_choices()),
        "pairs.csv": _csv(["sentence1", "sentence2", "score"], _pairs()),
        "translations.csv": _csv(["source", "target"], translated),
        "sentences.txt": _lines(text for text in _sentences("test", 5, 30)),
        "corpus.txt": "\n".join(_lines(chapter) for chapter in _chapters("train") if len(chapter) > 20),
        "en.txt": _lines(english for english, _ in translated),
        "fr.txt": _lines(french for _, french in translated),
        "graph.spo": _lines("\t".join(triple) for triple in sample_texts.GRAPH),
    } | {name: _notebook(name) for name in ABOUT if name.endswith(".ipynb")}


def _notebook(name: str) -> str:
    return (resources.files("kerasbert.quickstart") / "notebooks" / name).read_text(encoding="utf-8")


def _chapters(part: str) -> Iterator[list[str]]:
    for author in books.AUTHORS:
        yield from books.split(author)[part]


def _sentences(part: str, least: int, most: int) -> list[str]:
    """Sentences of so many words, each once, in the order of the books."""
    found = [line for chapter in _chapters(part) for line in chapter if least <= len(line.split()) <= most]
    return list(dict.fromkeys(found))


def _some(values: Sequence[Value], count: int) -> list[Value]:
    """So many values, in their order, drawn by a fixed seed."""
    chosen = sorted(random.Random(0).sample(range(len(values)), count))
    return [values[i] for i in chosen]


def _passages(part: str, each: int) -> list[Passage]:
    """Two sentences in a row of 20 to 40 words, `each` of every author, shuffled."""
    found = []
    for author in AUTHORS:
        texts = [f"{a} {b}" for chapter in books.split(author)[part] for a, b in list(pairwise(chapter))[::2]]
        fit = list(dict.fromkeys(text for text in texts if 20 <= len(text.split()) <= 40))
        found += [(text, books.AUTHORS[author]) for text in _some(fit, each)]
    random.Random(0).shuffle(found)
    return found


def _labels(text: str) -> list[str]:
    """What a passage has: speech, a question, an exclamation, a name."""
    marks = {"speech": '"' in text, "question": "?" in text, "exclamation": "!" in text, "name": bool(_spans(text))}
    return [name for name, there in marks.items() if there] or ["narration"]


_ENTITY = re.compile(
    r"\b(?:(?P<PER>(?:(?:Mr\.|Mrs\.|Miss|Lady|Sir|Captain|Doctor|Madame|Sherlock|Charles|Elizabeth|Jane|Lucie) )?"
    rf"(?:{'|'.join(sample_texts.PEOPLE)}))|(?P<LOC>{'|'.join(sample_texts.PLACES)}))\b"
)


def _spans(text: str) -> list[Json]:
    """People and places of a text by the characters where they begin and end."""
    found = _ENTITY.finditer(text)
    return [{"start": match.start(), "end": match.end(), "label": str(match.lastgroup)} for match in found]


def _named(part: str, count: int) -> list[str]:
    """Sentences of 6 to 30 words, shuffled: four with a name, of people or places, to one without."""
    texts = _sentences(part, 6, 30)
    found = {text: {span["label"] for span in _spans(text)} for text in texts}
    places = [text for text, labels in found.items() if "LOC" in labels][: count // 4]
    people = [text for text, labels in found.items() if labels == {"PER"}]
    plain = [text for text, labels in found.items() if not labels]
    mixed = places + _some(people, count * 4 // 5 - len(places)) + _some(plain, count // 5)
    random.Random(0).shuffle(mixed)
    return mixed


def _conll(texts: Iterable[str]) -> str:
    """A word and its tag (IOB2) a line, a blank line behind each sentence; words as BERT splits a raw text into them."""
    lines = []
    for text in texts:
        spans = _spans(text)
        for word in re.finditer(r"\w+|[^\w\s]", text):
            tag = "O"
            for span in spans:
                if span["start"] <= word.start() < span["end"]:
                    tag = ("B-" if word.start() == span["start"] else "I-") + span["label"]
            lines.append(f"{word[0]} {tag}")
        lines.append("")
    return _lines(lines)


_SPEECH = re.compile(
    r'"(?P<words>[^"]{12,120}[,!?])" (?:said|cried|replied|asked|exclaimed|returned|answered) '
    r"(?P<who>(?:the |poor )?(?:(?:Mr\.|Mrs\.|Miss|Doctor) )?[A-Z][a-z]+(?: [A-Z][a-z]+)?)"
)


def _squad(part: str) -> str:
    """Who speaks: a question about three sentences in a row, of 60 words at most."""
    data = []
    for author, name in books.AUTHORS.items():
        paragraphs = []
        for chapter in books.split(author)[part]:
            for i in range(1, len(chapter) - 1):
                context = " ".join(chapter[i - 1 : i + 2])
                if (speech := _SPEECH.match(chapter[i])) is None or len(context.split()) > 60:
                    continue
                begin = len(chapter[i - 1]) + 1 + speech.start("who")
                answer = {"text": speech["who"], "answer_start": begin}
                words = " ".join(speech["words"].rstrip(",!?").split()[:8])
                question = {
                    "id": f"{author}-{len(paragraphs)}",
                    "question": f'Who says "{words}"?',
                    "answers": [answer],
                }
                paragraphs.append({"context": context, "qas": [question]})
        data.append({"title": name, "paragraphs": paragraphs})
    return json.dumps({"version": "1.1", "data": data}, indent=1, ensure_ascii=False) + "\n"


def _choices() -> Iterator[Json]:
    """The next sentence among four of the same author."""
    draw = random.Random(0)
    for author in books.AUTHORS:
        follow = [pair for chapter in books.split(author)["train"] for pair in pairwise(chapter) if _short(*pair)]
        for context, right in _some(follow, 40):
            others = draw.sample(sorted({text for _, text in follow} - {right}), 3)
            choices = draw.sample([right, *others], 4)
            yield {"context": context, "choices": choices, "label": choices.index(right)}


def _short(*texts: str) -> bool:
    return all(5 <= len(text.split()) <= 20 for text in texts)


def _pairs() -> list[tuple[str, str, str]]:
    """A sentence beside itself without some words (its score: the share of words that is left), or beside another (0)."""
    draw, rows = random.Random(0), []
    lines = _sentences("train", 6, 20)
    for i, text in enumerate(_some(lines, 300)):
        words = text.split()
        if i % 3 == 2:
            rows.append((text, draw.choice(lines), "0"))
            continue
        kept = sorted(draw.sample(range(len(words)), draw.randint(len(words) // 3, len(words) - 1)))
        rows.append((text, " ".join(words[j] for j in kept), f"{5 * len(kept) / len(words):.1f}"))
    return rows


def _lines(texts: Iterable[str]) -> str:
    return "".join(f"{text}\n" for text in texts)


def _csv(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *rows])
    return text.getvalue()


def _jsonl(rows: Iterable[Json]) -> str:
    return _lines(json.dumps(row, ensure_ascii=False) for row in rows)
