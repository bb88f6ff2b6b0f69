"""Calibration: what values the tensors of a float .tflite take on real texts."""

import dataclasses
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from kerasbert.captured_output import captured
from kerasbert.errors import InputError, no_file
from kerasbert.tasks.base import Task
from .. import samples
from ..options import Given
from ..tflite import buckets, repack
from ..tflite.repack import SubGraphT
from ..tflite.weights import grid

DEFAULT = 200  # texts: the ranges of MiniLM's tensors hardly grow after that


@dataclasses.dataclass
class Range:
    """Least and largest value of a tensor, and the mean of |x| over texts."""

    least: float = np.inf
    largest: float = -np.inf
    total: float = 0.0
    texts: int = 0

    def see(self, x: np.ndarray) -> None:
        """Take in one text's values."""
        self.least, self.largest = min(self.least, float(x.min())), max(self.largest, float(x.max()))
        self.total += float(np.abs(x).mean())
        self.texts += 1

    @property
    def fineness(self) -> float:
        """(mean |x|)^2 over the mean square of int8's rounding error, step^2 / 12.

        A normal distribution cut at 4 deviations has 7800; a tensor with rare large values has little: all the others
        share a few of the 256 steps. (The mean square would be the large values' own.)
        """
        step, _ = grid(self.least, self.largest)
        return (self.total / max(self.texts, 1)) ** 2 / (step**2 / 12)


def read(calibration: Given, task: Task | None, pair: bool) -> list:
    """The texts that were given: a list, a file with one text a line, or rows of the task (a folder: of its train file).

    Args:
        calibration: list of str or of pairs, or a path.
        task: Task or None.
        pair: bool, whether a text is two.
    Raises:
        InputError: no such file, or a line that is not a pair.
    """
    if not isinstance(calibration, str | os.PathLike):
        given = list(calibration)
        wrong = next((text for text in given if isinstance(text, str | bytes) == pair), None)
        if wrong is not None:
            what = "pairs of texts" if pair else "texts, not pairs"
            raise InputError(f"calibration holds {wrong!r:.80}, expected {what}, as the model reads")
        return given
    path = Path(calibration)
    if path.is_dir() and task is not None:
        from kerasbert.tasks.task import split_files

        file = next(iter(split_files(path, task=task).values()))
        assert isinstance(file, Path)  # of a folder
        path = file
    if not path.is_file():
        raise no_file(path, "calibration file")
    return samples.read(path, task, pair)


def choose(texts: Sequence, size: int | None, most: int | None = DEFAULT) -> list:
    """The texts to calibrate with, spread evenly over those that were given; without a size all, but at most `most`.

    Raises:
        InputError: no texts, or fewer than `size`.
    """
    if isinstance(texts, str | bytes) or not len(texts):
        raise InputError(
            "calibration holds no texts, expected real ones: a file with one text a line, or the task's data"
        )
    if size is not None and not 1 <= size <= len(texts):
        raise InputError(
            f"calibration holds {len(texts)} texts, {size} were asked for. Give more texts or a calibration size from 1 "
            f"to {len(texts)}"
        )
    count = min(most or len(texts), len(texts)) if size is None else size
    return [texts[i * len(texts) // count] for i in range(count)]


def observe(data: bytes, batches: Iterable[tuple[str, dict[str, np.ndarray]]]) -> dict[tuple[int, int], Range]:
    """Run a float file on texts and note what every computed float tensor held.

    Args:
        data: the file, its tensors named.
        batches: (signature, its inputs) of each text.
    Returns:
        dict of (subgraph, tensor) -> Range. Subgraphs that differ in their length alone share their ranges: what is
        int8 then has one scale and one bias for all lengths.
    Raises:
        InputError: a signature of its own program saw no text, or the file has a loop.
    """
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    if "WHILE" in repack.operators(data):
        raise InputError("activations within a recurrent layer's loop are not measured. Do: --quantize dynamic_int8")
    model = repack.read(data)
    subgraphs = {entry.signatureKey.decode(): entry.subgraphIndex for entry in model.signatureDefs}
    tensors = [_computed(graph) for graph in model.subgraphs]
    seen: dict[int, dict[int, Range]] = {}
    for number in sorted(subgraphs.values()):
        same = next(
            (other for other in seen if buckets.same_program(model, model.subgraphs[other], model.subgraphs[number])),
            None,
        )
        seen[number] = {index: Range() for index in tensors[number]} if same is None else seen[same]
    with captured():
        interpreter = Interpreter(
            model_content=data,
            experimental_preserve_all_tensors=True,
            experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
        )
        runners = {}
        for name, inputs in sorted(batches, key=lambda batch: batch[0]):
            if name not in runners:
                runners[name] = interpreter.get_signature_runner(name)
            runners[name](**inputs)
            for index, found in seen[subgraphs[name]].items():
                found.see(interpreter.get_tensor(index, subgraphs[name]))
    for name, number in subgraphs.items():
        if not all(found.texts for found in seen[number].values()):
            raise InputError(
                f"no calibration text fits the signature {name}: give texts of every length, or fewer --lengths"
            )
    return {(number, index): found for number in seen for index, found in seen[number].items()}


def _computed(graph: SubGraphT) -> list[int]:
    """Numbers of the float tensors that operators write."""
    s = repack.schema()
    written = [int(index) for operator in graph.operators for index in operator.outputs]
    return [index for index in written if graph.tensors[index].type == s.TensorType.FLOAT32]
