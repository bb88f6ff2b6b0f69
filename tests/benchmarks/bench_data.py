"""How many tokens per CPU-second from text, and from records, to masked batches, against Hugging Face's way?

    python -m tests.benchmarks.bench_data [--repeat 3] [--megabytes 20] [--length 128] [--batch 256]

English text of ../shared/data/lm (repeated with another word in every line up to the size), uncased, with the exact
normaliser. CPU-seconds count all threads; tokens are those of the batches, padding left out. Ours: `write_records` (best
fit) and one epoch of masked batches; from records: epochs alone. The peer, in the same process and in turns with ours:
`encode_batch` of `tokenizers`, rows of full length, and transformers' DataCollatorForLanguageModeling. Everything is
warmed up before it is timed; the spread is over the repeats.
"""

import argparse
import importlib.metadata
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"

from tests.benchmarks.bench_corpus import SHARED, perturbed

TEXTS = (
    *(
        f"gutenberg/{name}.txt"
        for name in ("moby_dick", "pride_and_prejudice", "tale_of_two_cities", "huckleberry_finn")
    ),
    "gutenberg/sherlock_holmes.txt",
    "inaugural/inaugural_train.txt",
    "state_union/state_union_train.txt",
    "wikitext-2/wiki.valid.tokens",
)


def ours(files: list[Path], length: int, batch: int, work: Path) -> tuple[Callable[[], int], Callable[[], int]]:
    """(text -> batches, records -> batches); each returns its number of tokens."""
    from kerasbert.data import Records, write_records
    from kerasbert.objectives.masked_lm import MaskedLM, masker
    from kerasbert.text import load_tokenizer

    tokenizer = load_tokenizer(SHARED / "vocab" / "bert-base-uncased")
    prepare = masker(MaskedLM(), tokenizer=tokenizer, seed=0)

    def write() -> Records:
        return write_records(files, tokenizer, work / "records", length=length, packing="packed", overwrite=True)

    def epoch(records: Records, steps: int) -> int:
        stream = records.dataset(batch, seed=0, prepare=prepare).take(steps)
        return sum(int(item["padding_mask"].numpy().sum()) for item in stream)

    def from_text() -> int:
        records = write()
        return epoch(records, records.examples // batch)

    made = write()
    # several epochs, so that building the pipeline's graph is not what is timed
    return from_text, lambda: epoch(Records(made.directory), 10 * (made.examples // batch))


def theirs(files: list[Path], length: int, batch: int) -> Callable[[], int]:
    """Text -> batches with tokenizers and transformers' collator."""
    from tokenizers import BertWordPieceTokenizer
    from transformers import BertTokenizerFast, DataCollatorForLanguageModeling

    vocabulary = str(SHARED / "vocab" / "bert-base-uncased" / "vocab.txt")
    tokenizer = BertWordPieceTokenizer(vocabulary, lowercase=True)
    collate = DataCollatorForLanguageModeling(BertTokenizerFast(vocabulary, do_lower_case=True))
    first, last, room = tokenizer.token_to_id("[CLS]"), tokenizer.token_to_id("[SEP]"), length - 2

    def run() -> int:
        lines = [line for file in files for line in file.read_text(errors="replace").splitlines() if line.strip()]
        tokens, rows, waiting = 0, [], []
        for begin in range(0, len(lines), 4096):
            for encoding in tokenizer.encode_batch(lines[begin : begin + 4096], add_special_tokens=False):
                waiting += encoding.ids
            full = len(waiting) // room * room
            rows += [[first, *waiting[i : i + room], last] for i in range(0, full, room)]
            waiting = waiting[full:]
            while len(rows) >= batch:
                tokens += collate([{"input_ids": row} for row in rows[:batch]])["input_ids"].numel()
                rows = rows[batch:]
        return tokens

    return run


def main() -> None:
    """Print one line per way."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=20)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--batch", type=int, default=256)
    options = parser.parse_args()
    lines = [
        line
        for name in TEXTS
        for line in [*(SHARED / "lm" / name).read_text(errors="replace").splitlines(keepends=True), "\n"]
    ]
    with tempfile.TemporaryDirectory() as work:
        files = [Path(work) / "text.txt"]
        files[0].write_text("".join(perturbed(lines, options.megabytes * 10**6)))
        from_text, from_records = ours(files, options.length, options.batch, Path(work))
        ways = {
            "text to batches": from_text,
            "records to batches": from_records,
            "tokenizers + collator": theirs(files, options.length, options.batch),
        }
        rates: dict[str, list[float]] = {name: [] for name in ways}
        for turn in range(options.repeat + 1):
            for name, way in ways.items():
                start = time.process_time()
                tokens = way()
                if turn:
                    rates[name].append(tokens / (time.process_time() - start) / 1e6)
    versions = ", ".join(
        f"{name} {importlib.metadata.version(name)}" for name in ("tensorflow", "tokenizers", "transformers", "torch")
    )
    print(f"{versions}; {options.megabytes} MB, length {options.length}, batch {options.batch}, n = {options.repeat}")
    print(f"{'':24}{'M tokens per CPU-second':>24}{'least':>8}{'most':>8}{'x peer':>8}")
    peer = statistics.median(rates["tokenizers + collator"])
    for name, found in rates.items():
        middle = statistics.median(found)
        print(f"{name:24}{middle:24.2f}{min(found):8.2f}{max(found):8.2f}{middle / peer:8.1f}")


if __name__ == "__main__":
    main()
