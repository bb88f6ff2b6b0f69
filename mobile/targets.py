"""The readers that a .tflite may be for (`--target`): what each of them cannot read, and what its files are like."""

from typing import TYPE_CHECKING

from kerasbert import inputs
from kerasbert.errors import InputError
from kerasbert.tasks import predict
from kerasbert.tasks.base import kind_of
from kerasbert.tasks.exported_kind import READERS
from kerasbert.text.wordpiece import TEMPLATE, WordPiece
from . import mediapipe
from .model_and_texts import is_pair

if TYPE_CHECKING:
    import keras

    from kerasbert.text.base import Tokenizer


OURS = "kerasbert"
TARGETS = (OURS, *READERS)
# BertQuestionAnswerer (bert_question_answerer.h of tflite-support 0.4.4) reads a row of so many tokens, so many of the question.
ROW, QUESTION = 384, 64
OTHERS = "Compress without --target, for kerasbert.mobile.runtime"


def check(model: "keras.Model", target: str) -> None:
    """Refuse what no file for a phone reads yet, and what the reader would open and compute wrongly.

    Raises:
        InputError: another kind of answer, other inputs, labels that are no lines, or a tokenizer that the reader lacks.
    """
    for each in inputs.used(predict.declared(model), predict.settings_of(model)):
        each.shape(1)
    if target == OURS:
        return
    kind_of(model).check_target(target)
    spans = bool(kind_of(model).reader_outputs(target))
    if is_pair(model) and not spans:
        reader, answers = READERS[target]
        raise InputError(f"the model is for pairs of texts, expected {answers}: {reader} has no other")
    _check_inputs(model, target)
    _check_labels(model, target)
    if target == "mediapipe" and mediapipe.reads_words(model.tokenizer):
        return
    _check_tokenizer(model.tokenizer, target)
    asked = kind_of(model).options["question"] if spans else QUESTION
    if asked != QUESTION:
        raise InputError(
            f"the model reads {asked} tokens of a question, expected {QUESTION}: {READERS[target][0]} reads as many, whatever a "
            f"model was trained with (finetune --set task.question={QUESTION}). {OTHERS}"
        )


def _check_inputs(model: "keras.Model", target: str) -> None:
    """Refuse inputs that the reader does not fill."""
    reads = [each.name for each in inputs.used(predict.declared(model), predict.settings_of(model))]
    if more := [name for name in reads if name not in mediapipe.INPUTS]:
        raise InputError(
            f"the model reads {', '.join(more)}, expected {', '.join(mediapipe.INPUTS)} alone: {READERS[target][0]} gives no "
            f"other. {OTHERS}"
        )


def _check_labels(model: "keras.Model", target: str) -> None:
    """Refuse labels that are no lines of a file."""
    for label in getattr(model, "labels", None) or ():
        if not label or set("\n\r\0") & set(label):
            raise InputError(
                f"label {label!r} is empty or holds a line break or a null character, expected a line of text: "
                f"{READERS[target][0]} reads labels from a file, one a line. Name the label otherwise"
            )


def _check_tokenizer(own: "Tokenizer | None", target: str) -> None:
    """Refuse a tokenizer that gives other ids than the reader's WordPiece."""
    reader = READERS[target][0]
    if not isinstance(own, WordPiece) or not own.lowercase:
        regex = ", and no regex" if target == "mediapipe" else ""
        raise InputError(
            f"the model's tokenizer is not an uncased WordPiece, which comes nearest to what {reader} applies to every BERT"
            f"{regex}: it would see other ids. {OTHERS}"
        )
    if own.template != TEMPLATE:
        raise InputError(
            f"the model's tokenizer packs texts as {' | '.join(own.template)}, expected {' | '.join(TEMPLATE)}: {reader} puts "
            f"[CLS] and [SEP] around every BERT's. {OTHERS}"
        )


def length_of(model: "keras.Model", target: str, length: int | None) -> int | None:
    """Tokens of the one row that a reader gives, where it does not leave them to the file.

    Args:
        length: int, what the caller asked for, or None.
    Raises:
        InputError: the reader or the model reads another number.
    """
    positions = predict.positions(model)
    if target == "mediapipe" and mediapipe.reads_words(model.tokenizer):
        return min(mediapipe.REGEX_LENGTH, positions or mediapipe.REGEX_LENGTH) if length is None else length
    if not kind_of(model).reader_outputs(target):
        return length
    if length not in (None, ROW):
        raise InputError(
            f"length is {length}, expected {ROW}: the Task Library's BertQuestionAnswerer reads as many (leave --length out)"
        )
    if positions and positions < ROW:
        raise InputError(
            f"the model has {positions} positions, expected at least {ROW}: the Task Library's BertQuestionAnswerer gives as "
            f"many tokens. {OTHERS}"
        )
    return ROW
