"""`kerasbert-mobile COMMAND`; run, benchmark and inspect of a .tflite need no TensorFlow."""

import argparse
import json
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kerasbert.errors import InputError
from kerasbert.mobile import compress_command as compress
from kerasbert.mobile import samples
from kerasbert.mobile.distill import command as distill
from kerasbert.mobile.prune import command as prune
from kerasbert.mobile.quantize import aware_command as aware

COMMANDS = "distill | prune | trim | quantize-aware | compress | ledger | run | benchmark | inspect"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command -> exit status: 0, or 2 with one line `error: ...` on stderr."""
    options = parser().parse_args(arguments)
    try:
        options.command(options)
        sys.stdout.flush()
    except BrokenPipeError:  # `| head` has seen enough
        sys.stdout = None
    except KeyboardInterrupt as error:
        print(f"error: {error or 'interrupted'}", file=sys.stderr)
        return 130
    except (InputError, OSError, ImportError) as error:
        if options.debug:
            traceback.print_exc()
        print(f"error: {_line(error)}", file=sys.stderr)
        return getattr(error, "status", 2)
    return 0


def _line(error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError):
        extra = "device" if error.name in ("numpy", "ai_edge_litert", "tflite_runtime") else "tensorflow,mobile"
        return f"the package {error.name} is not installed. Do: pip install 'kerasbert[{extra}]'"
    return " ".join(str(error).split())


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(prog="kerasbert-mobile", description="From a fine-tuned model to a phone.")
    top.set_defaults(
        command=lambda options: top.error(f"expected one of: {COMMANDS.replace(' | ', ', ')}"),
        debug=False,
    )
    commands = top.add_subparsers(title="commands", metavar=COMMANDS)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--debug", action="store_true", help="show the traceback of an error")
    common.add_argument("--json", action="store_true", help="print json")
    runtime = argparse.ArgumentParser(add_help=False)
    runtime.add_argument("--threads", type=int, default=1)
    runtime.add_argument("--cache", metavar="DIR", help="folder for packed weights (default: ~/.cache/kerasbert)")
    runtime.add_argument("--no-cache", action="store_true", help="write no packed weights")
    runtime.add_argument("--pair", action="store_true", help="texts come in pairs: two arguments, or a tab in a line")

    distill.add(commands, common)
    prune.add_commands(commands, common)
    aware.add(commands, common)
    compress.add_commands(commands, common)
    part = commands.add_parser("run", parents=[common, runtime], help="texts -> answers")
    part.set_defaults(command=_run)
    part.add_argument("file", metavar="FILE")
    part.add_argument("texts", nargs="*", metavar="TEXT", help="from the standard input, one a line, if none is given")

    part = commands.add_parser(
        "benchmark", parents=[common, runtime], help="times, memory and size; of a model directory too"
    )
    part.set_defaults(command=_benchmark)
    part.add_argument("file", metavar="FILE")
    part.add_argument("--texts", metavar="FILE", help="one text a line; by default texts made of the vocabulary")
    part.add_argument("--rounds", type=int, default=3, metavar="N", help="times that every text is run")

    part = commands.add_parser("inspect", parents=[common], help="what a .tflite is")
    part.set_defaults(command=_inspect)
    part.add_argument("file", metavar="FILE")
    return top


def _load(options: argparse.Namespace) -> Any:
    from kerasbert.mobile.runtime import load

    return load(options.file, cache=False if options.no_cache else options.cache, threads=options.threads)


def _run(options: argparse.Namespace) -> None:
    model = _load(options)
    pair = options.pair or model.bundle.pair
    if not options.texts:
        # bytes: what is not UTF-8 becomes replacement characters, as everywhere
        texts = samples.split(sys.stdin.buffer.read().decode("utf-8", "replace"), pair)
    elif pair:
        if len(options.texts) % 2:
            raise InputError(f"received {len(options.texts)} texts, expected pairs: an even number")
        texts = list(zip(options.texts[::2], options.texts[1::2]))
    else:
        texts = options.texts
    for text in texts:
        answer = model([text])[0].to_json()
        if options.json:
            print(json.dumps(answer, ensure_ascii=False))
            continue
        shown = text if isinstance(text, str) else "\t".join(text)
        if "label" in answer:
            print(f"{answer['label']}\t{answer['score']:.4f}\t{shown}")
        elif "value" in answer:
            print(f"{answer['value']:.6g}\t{shown}")
        else:
            print("\t".join(f"{value:.6g}" for value in answer["values"]))


def _benchmark(options: argparse.Namespace) -> None:
    from kerasbert.mobile.benchmark import benchmark

    texts = None
    if options.texts:
        pair = options.pair or (Path(options.file).is_file() and _pairs(options.file))
        texts = samples.read(options.texts, pair)
    cache = False if options.no_cache else options.cache
    result = benchmark(options.file, texts, rounds=options.rounds, threads=options.threads, cache=cache)
    if options.json:
        print(json.dumps(result))
        return
    for name, value in result.items():
        print(f"{name:16} {value}")


def _pairs(file: str) -> bool:
    """Whether a .tflite reads pairs."""
    from kerasbert.export import bundle

    return bundle.read(file).pair


def _inspect(options: argparse.Namespace) -> None:
    from kerasbert.export import bundle as bundles

    bundle = bundles.read(options.file)
    result = {
        "file": str(options.file),
        "bytes": Path(options.file).stat().st_size,
        "model": bundle.model,
        "target": bundle.target,
        "kind": bundle.kind,
        "inputs": "pair" if bundle.pair else "text",
        "labels": list(bundle.labels),
        "lengths": list(bundle.lengths),
        "any_length": bundle.any_length,
        "quantization": bundle.quantization,
        "signatures": list(bundle.signatures.values()),
        "versions": bundle.versions,
        "attached": sorted(bundle.tokenizer),
    }
    try:
        from kerasbert.mobile import repack

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
