"""The Task Library's readers, run by themselves in an environment of their own (`task_library.sh`).

    python -m tests.mobile.task_library RUN [--quantize float32]

compares its BertQuestionAnswerer with our runtime on a model of spans that was trained: the best answers to 100 questions of
SQuAD's dev, lower-cased, of plain ASCII and at most 300 tokens together; ours as `whole_words`. It looks at 5 starts and 5 ends
alone, of which no two may make an answer: then it has none.
"""

import argparse
import json
import subprocess
import tempfile
from pathlib import Path

import pytest

READ = """
import json, sys
from tflite_support.task import text
reader, file, source, out = sys.argv[1:]
made = getattr(text, reader).create_from_file(file)
rows = json.load(open(source))
if reader == "BertQuestionAnswerer":
    told = [made.answer(context, question).answers for question, context in rows]
    found = [[(each.text, each.pos.start, each.pos.end, each.pos.logit) for each in answers] for answers in told]
elif reader == "BertNLClassifier":
    told = [made.classify(row).classifications[0].categories for row in rows]
    found = [{each.category_name: each.score for each in categories} for categories in told]
else:
    found = [made.embed(row).embeddings[0].feature_vector.value.tolist() for row in rows]
json.dump(found, open(out, "w"))
"""


class Readers:
    """What the Task Library makes of texts."""

    def __init__(self, folder: Path):
        self.folder = folder
        done = subprocess.run(["sh", Path(__file__).parent / "task_library.sh", folder], capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"the Task Library cannot be had: {done.stderr.strip().splitlines()[-1]}")

    def __call__(self, reader: str, file: Path, rows: list) -> list:
        """The answers of a reader: BertNLClassifier, TextEmbedder, or BertQuestionAnswerer of (question, context)."""
        (self.folder / "rows.json").write_text(json.dumps(rows))
        command = [
            self.folder / "python",
            "-c",
            READ,
            reader,
            file,
            self.folder / "rows.json",
            self.folder / "out.json",
        ]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads((self.folder / "out.json").read_text())


def whole_words(context: str, start: int, end: int) -> str:
    """context[start:end] and what of its words at single spaces stands outside, as BertQuestionAnswerer joins them.

    >>> whole_words("a  very unlikeable film, he said", 10, 21)
    'unlikeable film,'
    """
    begin = context.rfind(" ", 0, start + 1) + 1
    close = context.find(" ", end - 1)
    return " ".join(filter(None, context[begin : len(context) if close < 0 else close].split(" ")))


def questions(tokenizer, count: int = 100) -> list[tuple[str, str]]:
    """(question, context) of SQuAD's dev, evenly taken from those that the reader reads as we do."""
    from kerasbert.tasks.task import find_task
    from kerasbert.training.splits import split
    from tests.support import shared

    dev = split(find_task("squad"), shared("data/squad")).dev
    assert dev is not None
    pairs = [(question.lower(), context.lower()) for question, context in dev.texts]
    short = [pair for pair in pairs if all(map(str.isascii, pair)) and len(tokenizer.encode(pair[0])) <= 64]
    short = [pair for pair in short if sum(len(tokenizer.encode(text)) for text in pair) <= 300]
    return [short[i * len(short) // count] for i in range(count)]


def main() -> None:
    """Print how many answers are equal, and the others."""
    import kerasbert as kb
    from kerasbert.mobile import compress
    from kerasbert.mobile.runtime import load

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--quantize", default="float32")
    options = parser.parse_args()
    rows = questions(kb.load_tokenizer(options.run / "tokenizer"))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "spans.tflite"
        compress(options.run, options.quantize, file, target="task_library", texts=rows, min_agreement=0)
        ours = [whole_words(row[1], each.start, each.end) for row, each in zip(rows, load(file, cache=False)(rows))]
        found = Readers(Path(folder))("BertQuestionAnswerer", file, rows)
    theirs = [answers[0][0] if answers else "" for answers in found]
    same = sum(a == b for a, b in zip(ours, theirs, strict=True))
    print(
        f"{options.run.name}, {options.quantize}: {same} of {len(rows)} best answers are equal, {len(set(ours))} different"
    )
    for row, a, b in zip(rows, ours, theirs):
        if a != b:
            print(f"{row[0]!r:.60}: ours {a!r:.60}, theirs {b!r:.60}")
    none = theirs.count("")
    print(f"of {none} it finds no answer among its 5 starts and 5 ends")


if __name__ == "__main__":
    main()
