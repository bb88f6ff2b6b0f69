"""Model cards in the Hugging Face hub's form: the MODEL_CARD.md of a SavedModel and of a run.

They hold file names, no paths and no dates. What is not known, such as a language, is left out; a licence is asked for.
"""

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from kerasbert import __version__
from kerasbert.errors import InputError
from kerasbert.export import signatures
from kerasbert.export.card_requests import Requests
from kerasbert.inputs import used
from kerasbert.options import checked
from kerasbert.run_report.examples import short
from kerasbert.run_report.facts import Facts, read
from kerasbert.storage import files, places
from kerasbert.tasks import predict
from kerasbert.tasks.base import kind_of
from kerasbert.tasks.task import task_with

if TYPE_CHECKING:
    import keras

    from kerasbert.tasks.base import TaskKind


NEEDS = "import tensorflow_text before tf.saved_model.load: it brings the operations of the tokenizer"


FILE = "MODEL_CARD.md"
SEAL = "<!-- as kerasbert wrote it, sha256 "  # an edited card is never replaced
HEAD = 20_000  # bytes of a README.md in which its front matter ends
HUB = re.compile(r"[\w.-]+(/[\w.-]+)?")  # a name on the hub
SETTINGS = (
    "steps",
    "batch",
    "learning_rate",
    "schedule",
    "warmup",
    "weight_decay",
    "optimizer",
    "precision",
    "seed",
    "length",
)


@checked
def write(run: str | os.PathLike) -> Path:
    """MODEL_CARD.md in the directory of a run; on the hub it is called README.md.

    Raises:
        InputError: no run there, a damaged file, or a file of that name that is not ours, or that was edited.
    """
    path = Path(run) / FILE
    places.check_file(path, True, "card")
    if path.is_file() and path.read_bytes() and not _sealed(path.read_bytes()):
        raise InputError(f"{path} was edited: it is kept. Give it another name, and the command writes a new one")
    facts = read(run)
    try:
        task = task_with(facts.task, facts.labels) if facts.task else None
        tag = "" if task is None else task.how.pipeline_tag(task)
        text = "\n".join([*front_matter(facts, tag, facts.place.resolve().name), "", *_body(facts)])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(
            f"{run}: dev.json or run.json is damaged ({type(error).__name__}: {str(error)[:80]})"
        ) from error
    files.write_atomic(path, f"{text}\n\n{SEAL}{hashlib.sha256(text.encode()).hexdigest()} -->\n")
    return path


def _sealed(card: bytes) -> bool:
    """Whether a card is as it was written: its last line holds the hash of what stands above."""
    text, _, seal = card.rpartition(f"\n\n{SEAL}".encode())
    return seal.decode(errors="replace") == f"{hashlib.sha256(text).hexdigest()} -->\n"


def _of_run(directory: str | os.PathLike | None, tag: str, name: str) -> tuple[list[str], list[str]]:
    """`front_matter` and `_made` of a model's directory; of one that holds no metrics, or damaged ones, the least."""
    with contextlib.suppress(InputError, OSError, TypeError, ValueError, AttributeError):
        if directory is not None and (Path(directory) / "dev.json").is_file():
            facts = read(directory)
            return front_matter(facts, tag, name), _made(facts)
    facts = Facts(Path(), {}, {}, {}, {})
    return front_matter(facts, tag, name), _made(facts)


def front_matter(facts: Facts, tag: str, name: str) -> list[str]:
    """The yaml before a card: strings are written as json, which yaml reads.

    Args:
        tag: str, the hub's name of the task, "" for none. name: str, of the model.
    """
    start, metrics = str(facts.run.get("start") or ""), dict(facts.dev.get("metrics", {}))
    lines = ["---", "library_name: kerasbert"]
    if HUB.fullmatch(start):  # a folder is written whole
        lines.append(f"base_model: {json.dumps(start)}")
    lines += [f"pipeline_tag: {tag}"] if tag else []
    if metrics:
        task = json.dumps(short(str(facts.task.get("name") or "dev"), 80))
        lines += ["metrics:", *(f"- {json.dumps(metric)}" for metric in metrics)]
        lines += ["model-index:", f"- name: {json.dumps(short(name, 80))}", "  results:"]
        lines += ["  - task:", f"      type: {tag or 'other'}", f"      name: {task}"]
        lines += ["    dataset:", "      type: custom", f"      name: {task}", "      split: dev", "    metrics:"]
        for metric, value in metrics.items():
            lines += [f"    - type: {json.dumps(metric)}", f"      value: {float(value):.6g}"]
    return [*lines, "---"]


def _body(facts: Facts) -> list[str]:
    """What a reader is told: what it is, how good, how it was made, how it is used."""
    task = facts.task
    lines = [f"# {_plain(facts.place.resolve().name)}", ""]
    lines.append(
        f"A model for the task {_plain(task.get('name', task.get('kind')))}, made with kerasbert {__version__}."
        if task
        else "An encoder."
    )
    if facts.labels:
        lines += [
            "",
            f"Labels: {', '.join(_plain(label) for label in facts.labels[:50])}{', ...' * (len(facts.labels) > 50)}.",
        ]
    lines += [line for remark in facts.dev.get("remarks", ()) for line in ("", f"> {_plain(remark, 1000)}")]
    lines += _made(facts)
    call = 'kb.predict("DIR", ["..."])' if task else 'kb.encode("DIR", ["..."])'
    return [*lines, "", "## Use", "", "```python", "import kerasbert as kb", "", call, "```"]


def _made(facts: Facts) -> list[str]:
    """How good it is, how it was made, and its licence."""
    metrics, lines = facts.dev.get("metrics", {}), ["", "## Results", ""]
    lines += ["| metric | value | 95% interval |", "| --- | --- | --- |"] if metrics else ["None are recorded."]
    for name, value in metrics.items():
        low, high = facts.dev.get("intervals", {}).get(name, (None, None))
        lines.append(f"| {_plain(name)} | {value:.4f} | {'' if low is None else f'{low:.4f} to {high:.4f}'} |")
    if metrics:
        rows = facts.dev.get("rows")
        where = f"{rows:,} dev inputs" if rows else "the dev rows"
        lines += ["", f"Measured on {where}, which also chose the best weights."]
    known = {"base model": facts.base, **{f"data, {split}": name for split, name in facts.data.items()}}
    known |= {name: facts.settings[name] for name in SETTINGS if facts.settings.get(name) is not None}
    told = [f"- {name}: {_plain(value)}" for name, value in known.items() if value != ""]
    said = licence(facts) or "not known: write it here"
    lines += ["", "## Training", "", *(told or ["Nothing is recorded."])]
    return [*lines, "", "## Licence", "", f"- base model: {_plain(said)}", "- data: not known: write it here"]


def licence(facts: Facts) -> str:
    """Of the base model, where that is a folder whose README.md names one as those of the hub do; "" where it is not known."""
    start = str(facts.run.get("start") or "")
    readme = Path(start) / "README.md"
    if not os.path.isabs(start) or not readme.is_file():
        return ""
    head = readme.read_bytes()[:HEAD].decode("utf-8", "replace").partition("\n---")[0]
    found = re.search(r"^license:[ \t]*['\"]?([\w.+-]+)", head, re.MULTILINE) if head.startswith("---") else None
    return found[1] if found else ""


def _plain(value: object, most: int = 120) -> str:
    r"""A text of others in Markdown, as it is: no html, no links, no columns of a table.

    >>> print(_plain("a|b <script> [x](y)"))
    a\|b &lt;script&gt; \[x\](y)
    """
    text = re.sub(r"([\\`*_{}\[\]#|~])", r"\\\1", short(str(value), most))
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _of_ids(model: "keras.Model") -> str:
    """What the signature `ids` takes beside the lengths."""
    taken = signatures.counted(used(predict.declared(model), predict.settings_of(model)))
    listed = ", ".join(f"`{each.name}`" for each in taken)
    return f"{listed}, {'int32 [B, S]' if {each.axes for each in taken} == {'BS'} else 'by their axes'}"


def _of_options(kind: "TaskKind") -> str:
    """What the signature `options` takes, a line; nothing where there is none."""
    if not kind.call_options:
        return ""
    listed = ", ".join(
        f"`{name}` {'float32' if isinstance(each.own, float) else 'int32'} [B] ({each.own:g})"
        for name, each in kind.call_options.items()
    )
    return (
        f"\nThe signature `options` takes, beside what `serving_default` takes, {listed}: in brackets the model's own."
    )


def _others(model: "keras.Model", signed: Collection[str], rest: str) -> str:
    """The signatures beside those of texts and ids, a line for each that is there."""
    api = kind_of(model).examples
    request = {"signature_name": api, "examples": json.loads(rest)["instances"]}
    lines = {
        "tokenize": "`tokenize` takes `text` [B] string and returns `token_ids`, `starts`, `ends` [B, T] int32 and `pieces` "
        "[B, T] string, the first `lengths` [B] int32 of each: tokens without the special ones, and their characters.",
        api: f"`{api}` is of TF Serving's API by tf.Example: `{json.dumps(request)}` to .../v1/models/NAME:{api}.",
    }
    return "".join(f"\nThe signature {line}" for name, line in lines.items() if name in signed)


def _returned(model: "keras.Model") -> str:
    """The outputs of a model of ours."""
    if getattr(model, "task", None) is None and getattr(model, "learned_vector", False):
        return "`vector` [B, H] float32: the sentence's, as it was learned"
    return kind_of(model).described()


def _of_requests(asked: Requests) -> str:
    """The same row by REST and by gRPC."""
    return f"""## Requests

Under TF Serving or `kerasbert serve`, with the folder at NAME/1. Both bodies were read and answered when the model was exported:

```json
{asked.answer}
```

REST:

```sh
curl -d '{asked.rest}' http://localhost:8501/v1/models/NAME:predict
```

gRPC from Python (kerasbert's extra `serving`; tensorflow-serving-api and ovmsclient work too), and by grpcurl, beside clones of
the repositories tensorflow/serving and tensorflow/tensorflow, whose .proto files it reads:

```python
from kerasbert.export.client import Client

with Client("grpc://localhost:8500", "NAME") as client:
    print(client.predict({asked.inputs}))
```

```sh
grpcurl -plaintext -import-path serving -import-path tensorflow -proto tensorflow_serving/apis/prediction_service.proto \\
    -d '{asked.grpc}' localhost:8500 tensorflow.serving.PredictionService/Predict
```

`kerasbert serve-check DIR` loads it as a server would, without kerasbert, and compares its answers with those of its export."""


def card(
    model: "keras.Model",
    longest: int,
    asked: Requests,
    signed: Collection[str] = (),
    outputs: str = "",
    remark: str = "",
) -> str:
    """The text of the card; it holds no paths and no dates.

    Args:
        model: what was exported.
        longest: int, tokens of the longest text.
        asked: Requests of `serving_default`, which were answered.
        signed: names of the signatures.
        outputs: str, names of the outputs where the model is the user's own.
        remark: str, how it differs from float32.
    """
    task = getattr(model, "task", None)
    call = ", ".join(f"{name}=tf.constant({json.dumps(value)})" for name, value in json.loads(asked.inputs).items())
    labels = f"\nLabels: {', '.join(model.labels)}.\n" if task is not None and model.labels else ""
    options = _of_options(kind_of(model)) + _others(model, signed, asked.rest)
    tag, name = ("", "encoder") if task is None else (task.how.pipeline_tag(task), task.name)
    if remark:
        remark = f"\n\nWeights and products are bfloat16, for processors with AVX512-BF16 or AMX; {remark}."
    front, made = _of_run(getattr(model, "directory", None), tag, name)
    return f"""{chr(10).join(front)}

# {task.name if task is not None else "Encoder"}

A TensorFlow SavedModel written by kerasbert. It takes text: the tokenizer is part of the graph.{remark}

```python
import tensorflow as tf
import tensorflow_text  # needed, although no line names it: it brings the operations of the tokenizer

model = tf.saved_model.load("DIR")
model.signatures["serving_default"]({call})
```

`serving_default` returns {outputs or _returned(model)}.
The signature `ids` takes {_of_ids(model)}, and `lengths`, int32 [B], how many of each row count, instead of text.{options}
{kind_of(model).longer(longest)}
{labels}
{_of_requests(asked)}

All inputs and outputs have one row for each text, whatever other calls a batcher joins them with.

Calls of one text are answered soonest with one thread an operator (`tf.config.threading.set_intra_op_parallelism_threads(1)`
before loading, `--tensorflow_intra_op_parallelism=1` of TF Serving), calls of many texts with all cores.
{chr(10).join(made)}
"""
