"""`kerasbert-mobile COMMAND`; run, benchmark and inspect of a .tflite need no TensorFlow."""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from kerasbert.cli.parser import (
    Declare,
    Parser,
    check_directories,
    check_names,
    command_line,
    commands_of,
    encoding_option,
    run,
)
from kerasbert.errors import InputError
from kerasbert.mobile import samples
from kerasbert.mobile.commands import compress, distill, prune
from kerasbert.mobile.commands import quantize_aware as aware

EXAMPLES = {
    "distill": "kerasbert-mobile distill runs/reviews --student half --data reviews --out runs/small",
    "prune": "kerasbert-mobile prune runs/reviews --heads 0.33 --data reviews --out runs/fewer-heads",
    "trim": "kerasbert-mobile trim runs/reviews --texts corpus.txt --out runs/trimmed",
    "quantize-aware": "kerasbert-mobile quantize-aware runs/reviews --data reviews --out runs/aware",
    "compress": "kerasbert-mobile compress runs/reviews --data reviews --out reviews.tflite",
    "ledger": "kerasbert-mobile ledger runs/reviews reviews.tflite --data reviews",
    "run": 'kerasbert-mobile run reviews.tflite "a gripping film"',
    "nearest": 'kerasbert-mobile nearest vectors.tflite "a gripping film" --among texts.txt',
    "verify": "kerasbert-mobile verify reviews.tflite reviews.golden",
    "benchmark": "kerasbert-mobile benchmark reviews.tflite --texts texts.txt",
    "inspect": "kerasbert-mobile inspect reviews.tflite",
}
DEVICE = ("run", "nearest", "verify", "benchmark", "inspect")  # commands that need no TensorFlow


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; its exit status is `kerasbert.cli.parser.run`'s."""
    return run(parser(), arguments, _check_names)


def _check_names(options: argparse.Namespace) -> None:
    """Refuse a mistyped name at once: what the commands import takes seconds."""
    distills = (
        options.command == "distill"
    )  # elsewhere a schedule is of the pruning, and options come before a --teacher
    check_names(options, "optimizer", "precision", *(["schedule"] if distills else ()))
    check_directories(options, "run", *(["teacher"] if distills else ()))


def parser() -> Parser:
    """The command line."""
    modules = (distill, prune, aware, compress, sys.modules[__name__])
    description = "From a fine-tuned model to a phone."
    top = command_line("kerasbert-mobile", description, EXAMPLES, modules, json_option=True)
    for name, command in commands_of(top).items():
        command.set_defaults(extra="device" if name in DEVICE else "mobile")
        if name not in DEVICE:  # these read files of texts and labels as training does
            encoding_option(command)
    return top


def add(declare: Declare) -> None:
    """Declare the commands of the device."""
    command = declare("run", _run, "texts -> answers")
    _runtime_options(command)
    command.add_argument("file", metavar="FILE")
    command.add_argument(
        "texts", nargs="*", metavar="TEXT", help="without one each line of the standard input is answered as it comes"
    )
    command.add_argument("--language", help="of the texts, for a model that reads it; that of its training by default")

    command.add_argument(
        "--top", type=int, metavar="N", help="labels, spans or tokens that an answer tells, best first"
    )
    command.add_argument("--threshold", type=float, metavar="P", help="probability that each of them has at least")

    command = declare("nearest", _nearest, "the texts whose vectors are nearest to one")
    _runtime_options(command)
    command.add_argument("file", metavar="FILE")
    command.add_argument("texts", nargs="+", metavar="TEXT")
    command.add_argument("--among", required=True, metavar="FILE", help="texts, one a line")
    command.add_argument("--top", type=int, default=5, metavar="K", help="how many of them (default: 5)")

    command = declare("verify", _verify, "replay what `compress --golden` wrote; status 1 where an answer differs")
    _runtime_options(command)
    command.add_argument("file", metavar="FILE")
    command.add_argument("golden", metavar="GOLDEN")
    command.add_argument(
        "--tolerance", type=float, metavar="X", help="by which numbers may differ; GOLDEN says its own"
    )

    command = declare("benchmark", _benchmark, "times, memory and size; of a model directory too")
    _runtime_options(command)
    command.add_argument("file", metavar="FILE")
    command.add_argument("--texts", metavar="FILE", help="one text a line; by default texts made of the vocabulary")
    command.add_argument("--rounds", type=int, default=3, metavar="N", help="times that every text is run")

    command = declare("inspect", _inspect, "what a .tflite is")
    command.add_argument("file", metavar="FILE")


def _runtime_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--threads", type=int, default=1, metavar="N", help="of the interpreter")
    command.add_argument("--cache", metavar="DIR", help="folder for packed weights (default: ~/.cache/kerasbert)")
    command.add_argument(
        "--windows", type=int, default=1024, metavar="N", help="rows that one document may take (default: 1024)"
    )
    command.add_argument("--no-cache", action="store_true", help="write no packed weights")
    command.add_argument("--pair", action="store_true", help="texts come in pairs: two arguments, or a tab in a line")


def _load(options: argparse.Namespace) -> Any:
    from kerasbert.mobile.runtime import load

    cache = False if options.no_cache else options.cache
    return load(options.file, cache=cache, threads=options.threads, plugin=options.plugin, windows=options.windows)


def _nearest(options: argparse.Namespace) -> None:
    model = _load(options)
    index = model.index(samples.read(options.among))
    for text in options.texts:
        for hit in index.nearest(text, options.top):
            found = {"query": text, "index": hit.index, "text": hit.text, "score": hit.score}
            line = json.dumps(found, ensure_ascii=False) if options.json else f"{hit.score:.4f}\t{hit.text}\t{text}"
            print(line, flush=True)


def _verify(options: argparse.Namespace) -> int:
    from kerasbert.mobile.golden import verify

    count, found = verify(_load(options), options.golden, options.tolerance)
    if options.json:
        print(json.dumps({"texts": count, "difference": found}, ensure_ascii=False))
    else:
        print(found or f"{count} texts: the same ids, outputs and answers")
    return 1 if found else 0


def _run(options: argparse.Namespace) -> None:
    model = _load(options)
    names, pair = model.bundle.parts, options.pair or model.bundle.pair
    if len(names) > 1:
        given = enumerate(options.texts, 1) if options.texts else enumerate(_lines(False), 1)
        texts: Any = (model.kind.from_line(text, names, f"text {i}") for i, text in given)
    elif not options.texts:
        texts = _lines(pair)
    elif pair:
        if len(options.texts) % 2:
            raise InputError(f"received {len(options.texts)} texts, expected pairs: an even number")
        texts = zip(options.texts[::2], options.texts[1::2])
    else:
        texts = options.texts
    count = cut = 0
    for text in texts:
        found = model([text], language=options.language, top=options.top, threshold=options.threshold)[0]
        count, cut = count + 1, cut + found.truncated
        answer = found.to_json()
        if options.json and model.tokenizer.knowledge is not None:
            answer["triples"] = model.triples(text)
        flat = (each for part in ((text,) if isinstance(text, str) else text) for each in _texts(part))
        shown = "\t".join(flat)
        if options.json:
            line = json.dumps(answer, ensure_ascii=False)
        else:
            line = model.kind.line(answer, shown)
        print(line, flush=True)  # who writes line by line waits for it
    if cut:
        longest = model.bundle.longest
        print(f"{cut} of {count} texts have more than {longest} tokens and are truncated", file=sys.stderr)


def _texts(part: str | Sequence[str]) -> Sequence[str]:
    return (part,) if isinstance(part, str) else part


def _lines(pair: bool) -> Iterator[Any]:
    """The lines of the standard input as they come, an empty one too: the n-th answer is the n-th line's."""
    for number, line in enumerate(sys.stdin.buffer, 1):
        # what is not UTF-8 becomes replacement characters, as everywhere
        text = line.decode("utf-8", "replace").rstrip("\r\n")
        yield samples.as_pair(text, f"line {number}") if pair else text


def _benchmark(options: argparse.Namespace) -> None:
    from kerasbert.mobile.pipeline.benchmark import benchmark

    texts = None
    if options.texts:
        pair = options.pair or _pairs(Path(options.file))
        texts = samples.read(options.texts, pair)
    cache = False if options.no_cache else options.cache
    result = benchmark(
        options.file, texts, rounds=options.rounds, threads=options.threads, cache=cache, plugin=options.plugin
    )
    if options.json:
        print(json.dumps(result))
        return
    for name, value in result.items():
        shown = ", ".join(f"{key} {each}" for key, each in value.items()) if isinstance(value, dict) else value
        if name == "launch":
            for when, values in value.items():
                print(f"{'launch, ' + when:18} {', '.join(f'{key} {each}' for key, each in values.items())}")
        else:
            print(f"{name:18} {shown}")


def _pairs(path: Path) -> bool:
    """Whether a .tflite or a model directory reads pairs."""
    if not path.is_dir():
        from kerasbert.export import bundle

        return bundle.read(path).pair
    from kerasbert import checkpoints
    from kerasbert.tasks.load import task_of

    task = task_of(checkpoints.read_model_json(path))
    return bool(task and task.pair)


def _inspect(options: argparse.Namespace) -> None:
    from kerasbert.export import bundle as bundles

    bundle = bundles.read(options.file)
    result = {
        "file": str(options.file),
        "bytes": Path(options.file).stat().st_size,
        "model": bundle.model,
        "target": bundle.target,
        "kind": bundle.to_json()["kind"],
        "inputs": "pair" if bundle.pair else "text",
        "labels": list(bundle.labels),
        "lengths": list(bundle.lengths),
        "any_length": bundle.any_length,
        "quantization": bundle.quantization,
        "signatures": [each.name for each in bundle.signatures],
        "versions": bundle.versions,
        "attached": sorted(bundle.tokenizer),
    }
    try:
        from kerasbert.mobile.tflite import repack

        result["operators"] = repack.operators(Path(options.file).read_bytes())
    except ImportError:  # the schema comes with ai-edge-litert
        result["operators"] = None
    if options.json:
        print(json.dumps(result, ensure_ascii=False))
        return
    for name, value in result.items():
        shown = ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else value
        print(f"{name:14} {', '.join(map(str, shown)) if isinstance(shown, list) else shown}")


if __name__ == "__main__":
    sys.exit(main())
