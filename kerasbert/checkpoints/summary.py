"""What a model directory holds, in two lines: its family and size, its task and labels; its tokenizer, or how to give it one."""

import math
import os

from kerasbert import registry
from kerasbert import spec as specs
from kerasbert.checkpoints.directory import WEIGHTS, ModelInfo, head_names, read_model_json
from kerasbert.checkpoints.safetensors import Safetensors
from kerasbert.text.files import held_tokenizer

LISTED = 10  # labels of which a line has room
KINDS = {"encoder": "an encoder", "decoder": "a decoder", "seq2seq": "an encoder and a decoder"}  # of a family


def parameters(directory: str | os.PathLike) -> int:
    """How many numbers the weights of a model directory have, those of its heads left out."""
    tensors = Safetensors(os.path.join(directory, WEIGHTS))
    return sum(math.prod(tensors.shape(name)) for name in tensors.names() if not name.startswith("heads/"))


def lines(directory: str | os.PathLike) -> list[str]:
    """What a user should know of a model directory before the first command that takes it."""
    info, tensors = read_model_json(directory), Safetensors(os.path.join(directory, WEIGHTS))
    layers, hidden = specs.maybe(info.spec, "blocks.layers"), specs.maybe(info.spec, "hidden")
    size = [f"{layers} layers" if layers else "", f"width {hidden}" if hidden else ""]
    shown = ", ".join([*filter(None, size), f"{parameters(directory):,} parameters"])
    tokenizer = held_tokenizer(directory)
    read = "no tokenizer, so that it reads no text: name the folder or the file of one with --tokenizer"
    if tokenizer is not None:
        read = f"tokenizer: {tokenizer.kind}, {tokenizer.size:,} tokens"
    return [f"{info.name}: {shown}; {_task(info, head_names(tensors))}", read]


def _task(info: ModelInfo, heads: list[str]) -> str:
    """What the model answers."""
    if info.task is None:
        with_heads = f" and with the heads of its pretraining ({', '.join(heads)})" if heads else ""
        return f"{KINDS[registry.family(info.family).kind]} without a task{with_heads}: finetune teaches it one"
    kind, labels = info.task.get("kind"), info.labels or ()
    said = f"task {info.task.get('name', kind)}"
    if info.task.get("inputs") == "pair" or "text_b" in info.task:
        said += " of two texts"
    if not labels:
        return said
    more = f" and {len(labels) - LISTED} more" if len(labels) > LISTED else ""
    return f"{said}, {len(labels)} labels: {', '.join(labels[:LISTED])}{more}"
