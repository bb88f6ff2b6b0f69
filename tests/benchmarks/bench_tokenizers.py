"""How fast is each tokenizer in pure Python, in the graph and beside its peers? CPU time, lines of ../shared/data/lm.

    python -m tests.benchmarks.bench_tokenizers [--lines 5120] [--keras-hub]

`cold` reads lines for the first time, `warm` the first 1,000 of them again, as a phone does with everyday words.
"""

import argparse
import platform
import random
import statistics
import time
from collections.abc import Callable
from importlib.metadata import version

import sentencepiece
import tensorflow as tf

from kerasbert.text import Tokenizer, load_tokenizer
from kerasbert.text.graph import graph_tokenizer
from kerasbert.text.sentencepiece import write_model
from tests.support import shared
from tests.text.kinds import byte_level_reference, gpt2_bpe, shared_unigram
from tests.text.strings import hugging_face
from tests.text.test_parity import corpus

BATCH, REPEATS, WARM = 512, 5, 1000


def cpu(call: Callable[[], object]) -> float:
    """CPU seconds of a call."""
    begin = time.process_time()
    call()
    return time.process_time() - begin


def peer(tokenizer: Tokenizer, lines: list[str]) -> tuple[str, Callable[[], object]]:
    """The reference's name and its run over the lines, one at a time."""
    if tokenizer.kind == "unigram":
        processor = sentencepiece.SentencePieceProcessor(model_proto=write_model(tokenizer.model))
        return "sentencepiece", lambda: [processor.encode(line) for line in lines]
    theirs = hugging_face(tokenizer) if tokenizer.kind == "wordpiece" else byte_level_reference(tokenizer)
    return "tokenizers", lambda: [theirs.encode(line, add_special_tokens=False).ids for line in lines]


def measure(tokenizer: Tokenizer, lines: list[str]) -> dict[str, float]:
    """Microseconds of CPU a line: pure Python cold and warm, graph by batches of 512, peer one by one."""
    some = lines[:WARM]
    found, other = {}, tokenizer.renumbered(range(tokenizer.size))  # with caches of its own
    found["offsets cold"] = cpu(lambda: [other.tokenize(line) for line in lines]) / len(lines)
    found["python cold"] = cpu(lambda: [tokenizer.encode(line) for line in lines]) / len(lines)
    for line in some:
        tokenizer.encode(line)
    found["python warm"] = repeated(lambda: [tokenizer.encode(line) for line in some]) / len(some)
    found["offsets warm"] = repeated(lambda: [tokenizer.tokenize(line) for line in some]) / len(some)
    encode = tf.function(graph_tokenizer(tokenizer).encode, input_signature=[tf.TensorSpec([None], tf.string)])
    batches = [tf.constant(lines[i : i + BATCH]) for i in range(0, len(lines), BATCH)]
    encode(batches[0])
    found["graph"] = repeated(lambda: [encode(batch) for batch in batches]) / len(lines)
    name, run = peer(tokenizer, lines)
    found[name] = repeated(run) / len(lines)
    return {name: seconds * 1e6 for name, seconds in found.items()}


def repeated(call: Callable[[], object]) -> float:
    """Median CPU seconds."""
    return statistics.median(cpu(call) for _ in range(REPEATS))


def keras_hub_row(lines: list[str]) -> str:
    """KerasHub's BytePairTokenizer on the same merges: speed, and how many lines have other ids."""
    import keras_hub

    ours = gpt2_bpe()
    merges = [" ".join(merge) for merge in ours.merges]
    theirs = keras_hub.tokenizers.BytePairTokenizer(vocabulary=dict(ours._ids), merges=merges)
    batches = [lines[i : i + BATCH] for i in range(0, len(lines), BATCH)]
    begin = time.process_time()
    found = [ids for batch in batches for ids in theirs(tf.constant(batch)).to_list()]
    seconds = time.process_time() - begin
    wrong = sum(ids != ours.encode(line) for ids, line in zip(found, lines))
    return f"keras_hub BytePairTokenizer: {seconds / len(lines) * 1e6:.0f} us a line, {wrong} of {len(lines)} differ"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--lines", type=int, default=5120)
    parser.add_argument("--keras-hub", action="store_true")
    options = parser.parse_args()
    lines = [line for line in corpus() if line.isascii() and 20 < len(line) < 200]
    random.Random(1).shuffle(lines)
    lines = lines[: options.lines]
    names = ("tensorflow", "tensorflow-text", "tokenizers", "sentencepiece")
    print(f"Python {platform.python_version()}", *(f"{name} {version(name)}" for name in names), sep=", ")
    print(
        f"{len(lines)} lines, {sum(map(len, lines)) / len(lines):.0f} characters each; us of CPU a line (1,000 tokens a "
        f"second), median of {REPEATS}"
    )
    for tokenizer in (
        load_tokenizer(shared("data/vocab/bert-base-uncased/vocab.txt")),
        gpt2_bpe(),
        shared_unigram("t5-base"),
    ):
        found = measure(tokenizer, lines)
        tokens = sum(len(tokenizer.encode(line)) for line in lines) / len(lines)
        row = "  ".join(f"{name} {value:.1f} ({tokens / value * 1e3:.0f}k)" for name, value in found.items())
        print(f"{tokenizer.kind:10} {tokenizer.size:6} pieces  {row}", flush=True)
    if options.keras_hub:
        print(keras_hub_row(lines))


if __name__ == "__main__":
    main()
