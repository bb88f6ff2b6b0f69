"""How good is a search of questions for their paragraphs? NDCG@10 on SQuAD: vectors in every form, words (BM25), both fused.

    python -m tests.benchmarks.bench_search MODEL SQUAD --folder DIR [--beside STATIC]

MODEL: a folder of sentence-transformers or a run. STATIC: another, perhaps several: its static embedding (`kerasbert static`).
SQUAD: a folder with dev_slice-v1.1.json and train_slice-v1.1.json: the questions of the first are asked, among the paragraphs
of both. The texts are encoded once; a form is what an index of that dtype stores.
"""

import argparse
import json
import platform
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import kerasbert as kb
from kerasbert.retrieval import exact, forms, judging, lexical

FILES = ("dev_slice-v1.1.json", "train_slice-v1.1.json")
TOP = judging.DEPTH


def read(squad: Path) -> tuple[list[str], dict[str, dict[str, float]]]:
    """The paragraphs, whose numbers are their ids, and {question: {id: 1}}."""
    paragraphs: dict[str, str] = {}
    relevant: dict[str, dict[str, float]] = {}
    for name in FILES:
        for article in json.loads((squad / name).read_text("utf-8"))["data"]:
            for paragraph in article["paragraphs"]:
                number = paragraphs.setdefault(paragraph["context"], str(len(paragraphs)))
                for asked in paragraph["qas"] if name == FILES[0] else ():
                    relevant.setdefault(asked["question"], {})[number] = 1.0
    return list(paragraphs), relevant


def nearest(texts: np.ndarray, queries: np.ndarray, dtype: str = "float32") -> list[list[int]]:
    """Numbers of the texts nearest to each query, of vectors of length 1 that are stored in a form."""
    return exact.nearest(forms.stored(texts, dtype), dtype, queries, TOP)[1].tolist()


def rankings(index: kb.Index, questions: Sequence[str]) -> dict[str, list[list[int]]]:
    """Name of a search -> what it finds for each question."""
    texts, queries = np.array(index.vectors), index.encode(questions)
    found = {dtype: nearest(texts, queries, dtype) for dtype in forms.DTYPES}
    for dims in (256, 128, 64):
        found[f"first {dims} numbers"] = nearest(forms.unit(texts[:, :dims]), forms.unit(queries[:, :dims]))
    worded = lexical.nearest(index._words, questions, TOP)
    found["words (BM25)"] = [[number for number, _ in row] for row in worded]
    pairs = zip(found["float32"], found["words (BM25)"])
    return found | {"both, fused": [[number for number, _ in lexical.fused(pair, TOP)] for pair in pairs]}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("squad", type=Path)
    parser.add_argument("--beside", action="append", default=[], metavar="STATIC")
    parser.add_argument("--folder", type=Path, required=True, help="for the index")
    options = parser.parse_args()
    began = time.monotonic()
    paragraphs, relevant = read(options.squad)
    print(f"{len(relevant):,} questions, {len(paragraphs):,} paragraphs; Python {platform.python_version()}")
    for model in (options.model, *options.beside):
        index = kb.Index.build(model, paragraphs, options.folder / "index", words=True, overwrite=True)
        print(f"{model!s:<20}{'NDCG@10':>9}{'MRR@10':>9}{'recall@10':>11}{'recall@100':>12}")
        for name, found in rankings(index, list(relevant)).items():
            named = [[str(number) for number in row] for row in found]
            values = judging.metrics(named, list(relevant.values()))
            print(
                f"{name:<20}{values['ndcg@10']:>9.4f}{values['mrr@10']:>9.4f}{values['recall@10']:>11.4f}"
                f"{values['recall@100']:>12.4f}",
                flush=True,
            )
    print(f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
