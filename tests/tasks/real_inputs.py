"""Two hundred real inputs of every kind of answer, a document of 2,000 tokens and one of a word among them."""

import csv
import functools
import json
from collections.abc import Callable
from typing import Any

from kerasbert.data import read_table
from kerasbert.text import Tokenizer, load_tokenizer
from tests.support import shared
from tests.text.kinds import gpt2_bpe, shared_unigram

COUNT = 200
TOKENS = 2000


def tokenizer(kind: str) -> Tokenizer:
    """That of a published model: BERT's, RoBERTa's, T5's."""
    if kind == "wordpiece":
        return load_tokenizer(shared("data/vocab/bert-base-uncased/vocab.txt"))
    return gpt2_bpe() if kind == "bpe" else shared_unigram("t5-base")


def inputs(kind: str) -> list[Any]:
    """The inputs of a kind in `test_every_kind.KINDS`."""
    rows = READ.get(kind, sentences)()
    step = len(rows) // (COUNT - 2)
    return [*rows[::step][: COUNT - 2], *(LONG[kind](text) if kind in LONG else text for text in (document(), "film"))]


def languages(kind: str, lines: int = 5) -> list[Any]:
    """Inputs of a kind: so many lines of the Declaration of Human Rights in each of its languages."""
    found = []
    for file in sorted(shared("data/lm/udhr").glob("*.txt")):
        texts = [line.strip() for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
        found += texts[:: len(texts) // (lines - 1)][:lines]
    return [SHAPED.get(kind, lambda text, *_: text)(*found[i : i + 3]) for i in range(len(found) - 2)]


@functools.cache
def document() -> str:
    """The first 2,000 words of WikiText-2's valid articles, which are more tokens."""
    words = shared("data/lm/wikitext-2/wiki.valid.tokens").read_text(encoding="utf-8").split()
    return " ".join(words[:TOKENS])


def sentences() -> list[str]:
    """SST-2."""
    return [row["sentence"] for row in read_table(shared("data/glue/SST-2/dev.tsv"))]


def similar() -> list[tuple[str, str]]:
    """STS-B."""
    with open(shared("data/glue/STS-B/stsb-en-dev.csv"), encoding="utf-8", newline="") as file:
        return [(row[0], row[1]) for row in csv.reader(file)]


def words() -> list[str]:
    """WNUT17, its words with blanks between them."""
    blocks = shared("data/ner/WNUT17/dev.conll").read_text(encoding="utf-8").split("\n\n")
    return [" ".join(line.split("\t")[0] for line in block.splitlines()) for block in blocks if block.strip()]


def questions() -> list[tuple[str, str]]:
    """SQuAD 1.1."""
    articles = json.loads(shared("data/squad/dev_slice-v1.1.json").read_text(encoding="utf-8"))["data"]
    paragraphs = [paragraph for article in articles for paragraph in article["paragraphs"]]
    return [(each["question"], paragraph["context"]) for paragraph in paragraphs for each in paragraph["qas"]]


def hypotheses() -> list[tuple[str, tuple[str, ...]]]:
    """MNLI: a premise, and its hypothesis among those of the rows after it."""
    with open(shared("data/glue/MNLI/dev_slice.csv"), encoding="utf-8", newline="") as file:
        rows = [(row["premise"], row["hypothesis"]) for row in csv.DictReader(file)]
    return [(rows[i][0], tuple(rows[(i + j) % len(rows)][1] for j in range(2 + i % 3))) for i in range(len(rows))]


READ: dict[str, Callable[[], list]] = {
    "regression": similar,
    "tags": words,
    "span": questions,
    "choice": hypotheses,
    "vector": lambda: [text for pair in similar() for text in pair],
}
LONG: dict[str, Callable[[str], Any]] = {
    "regression": lambda text: (text, "a film"),
    "span": lambda text: ("What is it about?", text),
    "choice": lambda text: (text, ("it is a film", "film")),
}
SHAPED: dict[str, Callable[..., Any]] = {  # of a line and two that follow it
    "regression": lambda text, other, _: (text, other),
    "span": lambda text, other, _: (text[:20], other),
    "choice": lambda text, *others: (text, others),
}
