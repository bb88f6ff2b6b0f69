"""The Task Library's readers, run by themselves in an environment of their own (`task_library.sh`)."""

import json
import subprocess
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
    return " ".join(context[begin : len(context) if close < 0 else close].split())
