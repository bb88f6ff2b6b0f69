"""How many tokens a second do the portable core, pure Python and `tokenizers` make on one core? CPU time, real lines.

    python -m tests.benchmarks.bench_native [--lines 3000]

Each reads all lines once before it is timed, so that caches are warm; the core is called through ctypes, as the runtime does.
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
from kerasbert.text import load_tokenizer
from kerasbert.text.sentencepiece import write_model
from tests.mobile.native.tokenizers import files
from tests.support import shared
from tests.text.kinds import byte_level_reference, gpt2_bpe, shared_unigram
from tests.text.strings import hugging_face

REPEATS = 5


def rate(call: Callable[[], object], tokens: int) -> float:
    """Tokens a second of CPU time, the median of some rounds."""
    call()
    seconds = []
    for _ in range(REPEATS):
        begin = time.process_time()
        call()
        seconds.append(time.process_time() - begin)
    return tokens / statistics.median(seconds)


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
            fast = native.NativeTokenizer(files(ours))
            if ours.kind == "unigram":
                processor = sentencepiece.SentencePieceProcessor(model_proto=write_model(ours.model))
                peer = "sentencepiece", lambda processor=processor: [processor.encode(line) for line in lines]
            else:
                theirs = hugging_face(ours) if ours.kind == "wordpiece" else byte_level_reference(ours)
                peer = (
                    "tokenizers",
                    lambda theirs=theirs: [theirs.encode(line, add_special_tokens=False).ids for line in lines],
                )
            tokens = sum(len(ours.encode(line)) for line in lines)
            core = rate(lambda fast=fast: [fast.encode(line) for line in lines], tokens)
            placed = rate(lambda fast=fast: [fast.offsets(line) for line in lines], tokens)
            python = rate(lambda ours=ours: [ours.encode(line) for line in lines], tokens)
            other = rate(peer[1], tokens)
            print(
                f"{ours.kind}: {len(lines)} lines, {tokens} tokens; k tokens/s: core {core / 1e3:.0f}, with offsets "
                f"{placed / 1e3:.0f}, Python {python / 1e3:.0f} (x{core / python:.1f}), {peer[0]} {other / 1e3:.0f} "
                f"(x{core / other:.1f})",
                flush=True,
            )


if __name__ == "__main__":
    main()
