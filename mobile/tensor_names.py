"""The names of a flatbuffer's tensors: what other tools (AI Edge Quantizer, Model Explorer, OpenVINO) read and want unique."""

import itertools
import os
from typing import Any

ModelT = Any  # of the schema, as `tflite.repack` has them, which imports this
TensorT = Any
SCOPES = 5  # parts of a name that are kept, from its end: `encoder_1/block_0_1/attention_1/query_1/MatMul`


def name(model: ModelT) -> None:
    """Give every tensor of a ModelT a name that no other of the file has; changes the model.

    What a signature reads and gives has its names there. The converter names other tensors by all operations that were fused into
    them: the first is kept, without what all begin with. In a file of one graph inputs and outputs keep their names: the readers
    of MediaPipe and of the Task Library go by them.
    """
    told = [_operation(tensor) for graph in model.subgraphs for tensor in graph.tensors if b"/" in (tensor.name or b"")]
    shared = len(os.path.commonpath(told).split("/")) if len(told) > 1 else 0
    entries = {entry.subgraphIndex: entry for entry in model.signatureDefs or ()}
    seen: set[str] = set()
    for number, graph in enumerate(model.subgraphs):
        entry, key = entries.get(number), _key(entries.get(number), number)
        public = (
            {part.tensorIndex: f"{key}/{part.name.decode()}" for part in (*entry.inputs, *entry.outputs)}
            if entry
            else {}
        )
        if len(model.subgraphs) == 1:
            public = {index: (graph.tensors[index].name or b"").decode() for index in (*graph.inputs, *graph.outputs)}
        for index, tensor in enumerate(graph.tensors):
            parts = _operation(tensor).split("/")
            short = "/".join(parts[shared if len(parts) > shared else 0 :][-SCOPES:]).removeprefix("arith.")
            tensor.name = _unique(public.get(index) or f"{key}/{short or 'tensor'}", seen).encode()


def complete(model: ModelT) -> None:
    """Give names to tensors that came into a named file without one, or with that of another; changes the model."""
    entries = {entry.subgraphIndex: entry for entry in model.signatureDefs or ()}
    seen: set[str] = set()
    later: list[tuple[TensorT, str]] = []
    for number, graph in enumerate(model.subgraphs):
        for tensor in graph.tensors:
            told = (tensor.name or b"").decode()
            if told and told not in seen:
                seen.add(told)
            else:
                later.append((tensor, told or f"{_key(entries.get(number), number)}/tensor"))
    for tensor, wanted in later:
        tensor.name = _unique(wanted, seen).encode()


def _key(entry: Any, number: int) -> str:
    """What the names of a graph's tensors begin with: its signature, if it has one."""
    return entry.signatureKey.decode() if entry else f"subgraph_{number}"


def _operation(tensor: TensorT) -> str:
    """The first operation of a tensor's name."""
    name = (tensor.name or b"").decode(errors="replace")
    return next((each.strip("/") for each in name.split(";") if each.strip("/")), "")


def _unique(wanted: str, seen: set[str]) -> str:
    numbered = itertools.chain([wanted], (f"{wanted}_{number}" for number in itertools.count(1)))
    found = next(each for each in numbered if each not in seen)
    seen.add(found)
    return found
