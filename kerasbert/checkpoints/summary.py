"""What a model directory holds, in two lines: its family and size, its task and labels; its tokenizer, or how to give it one."""

import math
import os

from kerasbert import registry
from kerasbert import spec as specs
from kerasbert.checkpoints.directory import WEIGHTS, ModelInfo, head_names, read_model_json
from kerasbert.checkpoints.safetensors import Safetensors
from kerasbert.family import KINDS
from kerasbert.storage.json_view import Json
from kerasbert.text.files import held_tokenizer

LISTED = 10  # labels of which a line has room


def about(directory: str | os.PathLike) -> Json:
    """A model directory: {"kind", "parameters": of the weights without heads, "spec", "told": the two lines}.

    Raises:
        InputError: no model directory, or a damaged one.
    """
    info, tensors = read_model_json(directory), Safetensors(os.path.join(directory, WEIGHTS))
    count = sum(math.prod(tensors.shape(name)) for name in tensors.names() if not name.startswith("heads/"))
    kind = registry.family(info.family).kind
    layers, hidden = specs.maybe(info.spec, "blocks.layers"), specs.maybe(info.spec, "hidden")
    size = [f"{layers} layers" if layers else "", f"width {hidden}" if hidden else ""]
    shown = ", ".join([*filter(None, size), f"{count:,} parameters"])
    tokenizer = held_tokenizer(directory)
    read = "no tokenizer, so that it reads no text: name the folder or the file of one with --tokenizer"
    if tokenizer is not None:
        read = f"tokenizer: {tokenizer.kind}, {tokenizer.size:,} tokens"
    told = [f"{info.name}: {shown}; {_task(info, kind, head_names(tensors))}", read]
    return {"kind": kind, "parameters": count, "spec": specs.to_dict(info.spec), "told": told}


def _task(info: ModelInfo, kind: str, heads: list[str]) -> str:
    """What the model answers."""
    if info.task is None:
        with_heads = f" and with the heads of its pretraining ({', '.join(heads)})" if heads else ""
        return f"{KINDS[kind]} without a task{with_heads}: finetune teaches it one"
    labels = info.labels or ()
    said = f"task {info.task.get('name', info.task.get('kind'))}"
    if info.task.get("inputs") == "pair" or "text_b" in info.task:
        said += " of two texts"
    if not labels:
        return said
    more = f" and {len(labels) - LISTED} more" if len(labels) > LISTED else ""
    return f"{said}, {len(labels)} labels: {', '.join(labels[:LISTED])}{more}"
