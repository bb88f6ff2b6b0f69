"""What a bundle says of a graph's signatures, compared with the graph before it is run."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from kerasbert import answers
from kerasbert.errors import InputError
from kerasbert.export.bundle import MAX_WIDTH, Bundle, Reads
from kerasbert.inputs import size_of
from ..writing.programs import check_programs

if TYPE_CHECKING:
    from ai_edge_litert.interpreter import Interpreter


def output_of(bundle: Bundle) -> str:
    """The answering signatures' name of the output that the kind decodes; empty of a file that writes."""
    if not bundle.answering:
        return ""
    return bundle.output(answers.find(bundle.kind).configured(bundle.options).output)


def shape_of(each: Reads, length: int) -> tuple[int, ...]:
    return tuple(size_of(axis, length, each.places) for axis in each.axes)


def check(model: "Interpreter", bundle: Bundle, path: Path) -> None:
    """Compare the signatures of a graph with what its bundle says about them.

    Args:
        model: an Interpreter whose tensors are not allocated yet.
        bundle: Bundle.
        path: the file, for the error.
    Raises:
        InputError: a signature, input or output is not there or has another shape or type.
    """
    if not bundle.answering:
        check_programs(model, bundle, path)
        return
    found, kind = model.get_signature_list(), answers.find(bundle.kind).configured(bundle.options)
    for length, signature in bundle.answering.items():
        name, output = signature.name, signature.outputs.get(kind.output, "")
        if name not in found:
            raise InputError(f"{path} has no signature {name!r:.40}, which its bundle names. Write the file again")
        runner, tokens = model.get_signature_runner(name), -1 if bundle.any_length else length
        inputs, outputs = runner.get_input_details(), runner.get_output_details()
        wanted = {each.signature: (shape_of(each, tokens), np.dtype(each.dtype).type) for each in bundle.inputs}
        _compare(path, name, inputs, wanted)
        shown = {
            key: details for key, details in outputs.items() if key not in set(signature.outputs.values()) - {output}
        }
        width = kind.width(bundle.labels)
        if width is None and output in outputs:
            width = int(outputs[output]["shape"][-1])
        if width is not None and not 1 <= width <= MAX_WIDTH:
            raise InputError(f"{path}: the output of {name!r:.40} has {width} values, expected 1 to {MAX_WIDTH}")
        shape = (1, tokens, width) if kind.per_token else (1, width)
        _compare(path, name, shown, {output: (shape, np.float32)})


def _compare(path: Path, name: str, found: dict[str, dict], wanted: dict[str, tuple]) -> None:
    """The tensors of one side of a signature: name -> (shape, type)."""
    given = {key: (tuple(map(int, one["shape_signature"])), one["dtype"]) for key, one in found.items()}
    if given != wanted:
        raise InputError(
            f"{path}: the signature {name!r:.40} has {_shown(given)}, its bundle says {_shown(wanted)}. Write the file again"
        )


def _shown(tensors: dict[str, tuple]) -> str:
    said = [f"{key!r:.30} {np.dtype(kind).name}{list(shape)}" for key, (shape, kind) in sorted(tensors.items())]
    return ", ".join(said)[:200] or "nothing"
