"""Zero-shot transfer: a run of SQuAD 1.1 on XQuAD's other languages, by the 50 paragraphs that its training did not see.

    python -m tests.benchmarks.bench_xquad RUN [--length 256]

RUN is what `kerasbert finetune MODEL --task squad` (or bench_tasks, as WORK/squad/seed0) wrote. 105 of XQuAD's 155 paragraphs
stand in ../shared/data/squad's training slice; their questions are left out here, in every language. Exact match and F1 by the
rules of the language, with two standard errors over questions.
"""

import argparse
import json
import statistics
import tempfile
from pathlib import Path

import kerasbert as kb
from kerasbert import report
from kerasbert.tasks import predict
from kerasbert.tasks.base import Rows
from kerasbert.tasks.task import find_task
from kerasbert.training.splits import split
from tests.benchmarks.bench_sst2 import SHARED

LANGUAGES = ("en", "de", "es", "zh", "ar")


def unseen() -> set[str]:
    """Ids of the questions whose English paragraph is in no article of the training slice."""
    train = json.loads((SHARED / "squad/train_slice-v1.1.json").read_text())
    seen = {paragraph["context"].strip() for article in train["data"] for paragraph in article["paragraphs"]}
    english = json.loads((SHARED / "xquad/xquad.en.json").read_text())
    paragraphs = [paragraph for article in english["data"] for paragraph in article["paragraphs"]]
    others = [paragraph for paragraph in paragraphs if paragraph["context"].strip() not in seen]
    return {question["id"] for paragraph in others for question in paragraph["qas"]}


def rows_of(language: str, ids: set[str], folder: Path) -> Rows:
    """The questions of those ids in a language."""
    content = json.loads((SHARED / f"xquad/xquad.{language}.json").read_text())
    for article in content["data"]:
        for paragraph in article["paragraphs"]:
            paragraph["qas"] = [question for question in paragraph["qas"] if question["id"] in ids]
        article["paragraphs"] = [paragraph for paragraph in article["paragraphs"] if paragraph["qas"]]
    content["data"] = [article for article in content["data"] if article["paragraphs"]]
    path = folder / f"xquad.{language}.json"
    path.write_text(json.dumps(content))
    rows = split(find_task("xquad"), {"dev": path}).dev
    assert rows is not None
    return rows


def main() -> None:
    """Measure every language and print the table."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("run", type=Path)
    options.add_argument("--length", type=int, default=256)
    options = options.parse_args()
    model, ids, cells = kb.load(options.run), unseen(), []
    with tempfile.TemporaryDirectory() as folder:
        for language in LANGUAGES:
            rows = rows_of(language, ids, Path(folder))
            encoded = predict.encoded_rows(model, rows.texts, options.length)
            outputs, owned = predict.outputs_of(model, encoded, options.length), encoded.of()
            task = find_task("xquad")
            each = []
            for i, at in enumerate(owned):
                one = predict.encoded_rows(model, rows.texts[i : i + 1], options.length)
                each.append(task.measured(outputs[at.start : at.stop], rows.take([i]).targets, one))
            figures = {name: [one[name] for one in each] for name in ("f1", "exact_match")}
            told = [
                f"{statistics.mean(values):.4f} +- {2 * statistics.stdev(values) / len(values) ** 0.5:.4f}"
                for values in figures.values()
            ]
            cells.append([language, str(len(each)), *told])
    print(report.table(["language", "questions", "F1", "exact match"], cells))


if __name__ == "__main__":
    main()
