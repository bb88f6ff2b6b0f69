"""A file that writes beside its Keras model: the next tokens of both along the model's own greedy answers."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, cast

import numpy as np

from kerasbert import inputs
from kerasbert.answers import nearness
from kerasbert.answers.base import softmax
from kerasbert.answers.decoding import Decoding
from kerasbert.answers.generation import PLACE, WRITTEN
from kerasbert.errors import InputError
from kerasbert.inputs import Tensor
from kerasbert.storage.json_view import Json, JsonMap
from kerasbert.tasks import predict
from kerasbert.tasks.base import kind_of
from ..judging import verdict
from ..model_and_texts import read_of_texts
from ..quantize.schemes import SCHEMES

if TYPE_CHECKING:
    import keras

    from kerasbert.answers.base import Text
    from kerasbert.answers.generation import GenerationKind
    from ..runtime import Runner

BATCH = 8


def compare(model: "keras.Model", runner: "Runner", texts: Sequence["Text"], ties: bool = False) -> Json:
    """How far a file's steps are the model's.

    Args:
        model: TaskModel. runner: mobile.runtime.Runner of the file. ties: as of `answers.Kind.agreement`.

    Returns:
        agreement (share of equal next tokens, ties within the file's rounding aside), fidelity and offset of the logs of their
        probabilities (`answers.nearness`), max_difference and mean_difference of these, cut (texts that lose their end).
    """
    count, most, total, signals = 0, 0.0, 0.0, ([], [])
    rows = [kind_of(model).answers.rows(model.tokenizer, (text,), runner.bundle.longest)[0] for text in texts]
    for row, ids, expected in greedy(model, rows, runner.lengths[-1]):
        received = runner.follow(row, ids)
        if not np.isfinite(received).all():
            raise InputError(
                "the file's logits are not finite, expected numbers. Nothing was written; please report the model"
            )
        both = softmax(expected), softmax(received)
        difference = np.abs(both[1] - both[0])
        for kept, values in zip(signals, both):
            kept.append(nearness.logs(values))
        count += len(ids)
        most, total = max(most, float(difference.max())), total + float(difference.mean()) * len(ids)
    own, theirs = map(np.concatenate, signals)
    known = (own > nearness.LEAST).any(0) | (theirs > nearness.LEAST).any(
        0
    )  # of thousands: no other is ever in question
    own, theirs = own[:, known], theirs[:, known]
    found = {"agreement": nearness.same_best(own, theirs, ties), "fidelity": nearness.fidelity(own, theirs)}
    found |= {"offset": nearness.offset(own, theirs), "max_difference": most, "mean_difference": total / count}
    return found | {"cut": sum(row.truncated for row in rows)}


def greedy(
    model: "keras.Model", rows: Sequence[inputs.Row], length: int
) -> Iterator[tuple[inputs.Row, list[int], np.ndarray]]:
    """What the Keras model writes greedily for each row: the row, ids with the end, and the logits in front of each, [T, V].

    Args:
        length: int, most tokens of a row.
    """
    import tensorflow as tf

    from kerasbert.layers.beam_search import generate

    kind = cast("GenerationKind", kind_of(model).answers)
    tokenizer, network = model.tokenizer, model.network
    end, most, alone = tokenizer.sep_id, kind.target_length, kind.one_row
    start = end if alone else kind.start_of(tokenizer)
    decoding = Decoding(max_new_tokens=most)
    declared, settings = read_of_texts(model), predict.settings_of(model)

    @tf.function
    def write(batch: Mapping[str, Tensor]) -> Tensor:
        return generate(network, batch, decoding, start_id=start, end_id=end)["token_ids"]

    @tf.function
    def read(batch: Mapping[str, Tensor], places: Tensor) -> Tensor:
        return network.logits(tf.gather(network(batch)["sequence"], places, batch_dims=1))

    for first in range(0, len(rows), BATCH):
        some = rows[first : first + BATCH]
        batch = inputs.arrays(declared, some, length, pad_id=tokenizer.pad_id, count=BATCH, settings=settings)
        written = [_ended(ids, end) for ids in write(batch).numpy()[: len(some)].tolist()]
        prompts = [list(row.token_ids) if alone else [start] for row in some]
        ids = np.full((BATCH, (length if alone else 0) + most), tokenizer.pad_id, "int32")
        places = np.zeros((BATCH, most), "int32")
        for i, (prompt, new) in enumerate(zip(prompts, written)):
            ids[i, : len(prompt) + len(new) - 1] = [*prompt, *new[:-1]]
            places[i] = np.minimum(len(prompt) - 1 + np.arange(most), ids.shape[1] - 1)
        told = {"token_ids": ids, "padding_mask": np.ones_like(ids)} if alone else {**batch, WRITTEN.name: ids}
        if kind.masked:
            begins = np.array([len(prompt) for prompt in prompts] + [1] * (BATCH - len(prompts)), "int32")
            told |= {WRITTEN.name: np.full_like(places, tokenizer.mask_id), PLACE.name: begins}
            places = np.tile(np.arange(most, dtype="int32"), (BATCH, 1))
        for row, new, logits in zip(some, written, read(told, places).numpy()):
            yield row, new, logits[: len(new)]


def _ended(ids: list[int], end: int) -> list[int]:
    return ids[: ids.index(end) + 1] if end in ids else ids


def check(report: JsonMap, min_agreement: float | None) -> None:
    """Refuse a file that computes other numbers, or whose next tokens are too often others.

    Args:
        report: of `compress`. min_agreement: as of `verdict.check`.
    """
    scheme = SCHEMES[report["quantize"]]
    if scheme.tolerance is None:
        verdict.check(report, None, min_agreement, None)
    elif not report["max_difference"] <= scheme.tolerance:
        raise InputError(
            f"the {report['quantize']} file differs from the Keras model by {report['max_difference']:.2g} of a probability on "
            f"{report['texts']} texts, expected at most {scheme.tolerance:g}. Nothing was written; please report the model"
        )
