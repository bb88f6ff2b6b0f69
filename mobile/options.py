"""The options of `compress`, each once: the function takes them as keyword arguments, a plan as keys, the command as options.

No TensorFlow.
"""

import dataclasses
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence

from kerasbert.errors import InputError
from kerasbert.options import check_ranges, option
from kerasbert.storage.json_view import JsonMap
from .samples import Sample

Texts = Sequence[Sample]
Given = Texts | str | os.PathLike  # texts, or a file of them


def _lengths(text: str) -> list[int] | str:
    """`8,16,32` or `any`."""
    return text if text == "any" else [int(part) for part in text.split(",")]


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompressConfig:
    """The options of `compress`; those of one file alone no plan may say (`recipe`)."""

    task: str | None = option(None, "what a pretrained model answers without fine-tuning: fill-mask", recipe=False)
    options: JsonMap | None = option(
        None,
        "of the task's kind, over those of its training",
        flag=False,
        python='Such as {"beams": 4} of a model that writes',
    )
    target: str | None = option(
        None,
        "what reads the file",
        metavar="kerasbert|mediapipe|task_library",
        python='"kerasbert" (default: buckets of several lengths for `kerasbert.mobile.runtime`), "mediapipe" (one length, for '
        "MediaPipe's TextClassifier and TextEmbedder) or \"task_library\" (likewise, for the Task Library's BertNLClassifier, "
        "TextEmbedder and BertQuestionAnswerer, which reads 384 tokens); our runtime reads these too",
    )
    length: int | None = option(
        None,
        "longest text; longer texts are truncated",
        least=3,
        metavar="TOKENS",
        python="[CLS] and [SEP] included. By default what the task was trained with, else 128 at most",
    )
    lengths: Sequence[int] | str | None = option(
        None,
        "the length buckets, or `any`: one for all, least memory",
        metavar="8,16,32",
        read=_lengths,
        python="By default those that suit the rows that it was trained with, or 100 `texts` or more, and where nothing is known "
        'of them those of `buckets.LENGTHS`. "any": one signature that takes every length up to `length`',
    )
    min_agreement: float | None = option(
        None,
        "of answers that are the same, ties aside; default: 0.985, static 0.95; 0: no judging",
        least=(0, 1),
        metavar="SHARE",
        python="Of decisions (labels, words' labels, labels of a set, choices, the overlap of spans, next tokens along the "
        "model's own greedy answers; for regression the correlation, for vectors the mean cosine) the share that an int8 file "
        "and the Keras model must have in common, ties within the file's rounding aside; the static schemes are static_int8 and "
        "full_int8. Where it is given fidelity need not be more; 0 writes the file whatever it is worth",
    )
    data: str | os.PathLike | Mapping[str, object] | Iterable[object] | None = option(
        None,
        "rows of the task to judge the file by (default: RUN's dev rows)",
        metavar="PATH",
        recipe=False,
        python="In the place of `texts`, as `evaluate` takes them. On labelled rows a file is refused whose metric falls by more "
        "than chance (`judging.verdict`)",
    )
    texts: Texts | os.PathLike | None = option(
        None,
        "the same, one text a line (a tab within a pair)",
        metavar="FILE",
        recipe=False,
        read=str,
        python="What the two are compared on: a list of str or of pairs, or a Path of such a file. By default the run's dev "
        "rows, at most 1,000, if they still lie where run.json says and are the same, else texts made of the vocabulary, which "
        "is a weaker test",
    )
    calibration: Given | None = option(
        None,
        "real texts for static_int8 and --embedding-codes: one a line, or rows",
        metavar="FILE",
        read=str,
        python="A list, a file with one text a line (a tab within a pair) or a .tsv, .csv or .jsonl of the task. static_int8 and "
        "full_int8 take the ranges of activations from it; by default from what the run was trained on, if it still lies there",
    )
    calibration_size: int | None = option(
        None, "how many of them (default: at most 200)", least=1, metavar="N", python="All if there are fewer"
    )
    embedding_codes: int | None = option(
        None,
        "bytes per row of a large embedding table, instead of one byte per value (product quantization)",
        least=1,
        metavar="BYTES",
        python="As in `tflite.tables.product`: a quarter of its width makes it a quarter of int8's size. With dynamic_int8 and "
        "int8_embeddings. The pieces of `calibration`, here all of it, come out best; without it all count alike",
    )
    max_drop: float | None = option(
        None,
        "of the metric on --data; what costs most stays float",
        least=0,
        metavar="POINTS",
        python="Points (hundredths) of the task's metric that the file may lose on `data` (by default the run's dev rows): the "
        "weights that cost most stay float until it loses no more. On 100 rows or more that alone decides then",
    )
    recipe: JsonMap | None = option(
        None, "how the model was made, json without paths; travels in the file", flag=False, recipe=False
    )
    golden: str | os.PathLike | None = option(
        None,
        "write texts with their ids, outputs and answers, for `verify`",
        flag=False,
        python="Path of a second file, by which an app checks itself (`mobile.golden`)",
    )
    overwrite: bool = option(False, "replace FILE", recipe=False, python="And the golden file")

    def __post_init__(self) -> None:
        for name in ("lengths", "texts", "calibration", "data"):
            value = getattr(self, name)
            if isinstance(value, Iterator):  # each is read more than once
                object.__setattr__(self, name, list(value))
            if isinstance(value, set | frozenset) and name != "lengths":
                raise InputError(f"{name} is a set, which has no order: give a list, sorted({name})")
        if self.lengths is not None and not self.lengths:
            raise InputError("lengths is empty: leave it out, or name some, such as [16, 64]")
        check_ranges(self)
