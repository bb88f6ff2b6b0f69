"""How many tokens a second do the portable core, pure Python and `tokenizers` make on one core? CPU time, real lines.

    python -m tests.benchmarks.bench_native [--lines 3000]

`core` is kb_encode alone, its ids left in C; `lists` the same through ctypes, with a Python list of each line as the runtime has
it; `offsets` as `lists`, with offsets. `first`: a fresh tokenizer reads every line for the first time, as an app does that meets
new text; `again`: the lines once more, where Python and `tokenizers` find each word in a cache.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import sentencepiece

from kerasbert.mobile.native import build
from kerasbert.mobile.runtime import native
from kerasbert.text import Tokenizer, Unigram, load_tokenizer
from kerasbert.text.sentencepiece import write_model
from tests.mobile.native.tokenizers import files
from tests.support import shared
from tests.text.kinds import byte_level_reference, gpt2_bpe, shared_unigram
from tests.text.strings import hugging_face

REPEATS = 5


def rates(make: Callable[[], Callable[[], object]], tokens: int) -> tuple[float, float]:
    """k tokens a second of CPU time, the medians of some rounds: on the first pass of what `make` gives, and on the second."""
    seconds: list[list[float]] = [[], []]
    for _ in range(REPEATS):
        call = make()
        for each in seconds:
            begin = time.process_time()
            call()
            each.append(time.process_time() - begin)
    first, again = (tokens / statistics.median(each) / 1e3 for each in seconds)
    return first, again


def in_c(fast: native.NativeTokenizer, lines: list[str]) -> Callable[[], object]:
    """kb_encode of each line."""
    texts, encode = [native._text(line) for line in lines], fast._library.kb_encode

    def call() -> None:
        handle, tokens, said = fast._handle, fast._tokens, fast._said  # `fast` closes them when nothing holds it
        for text in texts:
            encode(handle, text, tokens, said)

    return call


def readers(ours: Tokenizer, lines: list[str]) -> dict[str, Callable[[], Callable[[], object]]]:
    """Name -> what makes a fresh tokenizer, as a call that reads all lines."""
    content = files(ours)

    def lists(name: str) -> Callable[[], object]:
        call = getattr(native.NativeTokenizer(content), name)
        return lambda: [call(line) for line in lines]

    def python() -> Callable[[], object]:
        fresh = load_tokenizer(content)
        return lambda: [fresh.encode(line) for line in lines]

    def peer() -> Callable[[], object]:
        if isinstance(ours, Unigram):
            processor = sentencepiece.SentencePieceProcessor(model_proto=write_model(ours.model))
            return lambda: [processor.encode(line) for line in lines]
        theirs = hugging_face(ours) if ours.kind == "wordpiece" else byte_level_reference(ours)
        return lambda: [theirs.encode(line, add_special_tokens=False).ids for line in lines]

    return {
        "core": lambda: in_c(native.NativeTokenizer(content), lines),
        "lists": lambda: lists("encode"),
        "offsets": lambda: lists("offsets"),
        "Python": python,
        "sentencepiece" if isinstance(ours, Unigram) else "tokenizers": peer,
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=3000)
    count = parser.parse_args().lines
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    text = shared("data/lm/wikitext-2/wiki.valid.tokens").read_text(encoding="utf-8")
    lines = [line for line in text.split("\n") if line.strip()][:count]
    with tempfile.TemporaryDirectory() as folder:
        os.environ[native.VARIABLE] = str(build.build(Path(folder) / build.NAME))
        for ours in (load_tokenizer(shared("data/vocab/bert-base-uncased")), gpt2_bpe(), shared_unigram("t5-base")):
            tokens = sum(len(ours.encode(line)) for line in lines)
            print(
                f"{ours.kind}: {len(lines)} lines, {tokens} tokens; k tokens/s, and how many times the core's are theirs"
            )
            found = {name: rates(make, tokens) for name, make in readers(ours, lines).items()}
            for name, (first, again) in found.items():
                times = "  ".join(f"x{ours / theirs:.1f}" for ours, theirs in zip(found["core"], (first, again)))
                print(f"  {name:14} first {first:7.0f}  again {again:7.0f}  {times}", flush=True)


if __name__ == "__main__":
    main()
