"""Which real texts a compression takes ranges of activations and counts of pieces from."""

import os
from typing import TYPE_CHECKING

import numpy as np

from kerasbert.errors import InputError
from kerasbert.training.splits import training_texts
from ..options import Given
from ..tflite.tables import product
from . import aware_training, ranges
from .schemes import SCHEMES

if TYPE_CHECKING:
    import keras


def real_texts(
    run: str | os.PathLike,
    model: "keras.Model",
    pair: bool,
    quantize: str,
    calibration: Given | None,
    size: int | None,
    embedding_codes: int | None,
    max_drop: float | None,
) -> tuple[dict[str, np.ndarray] | None, list, np.ndarray | None]:
    """What real texts are for.

    Returns:
        ranges that the model was trained with, or None; texts to take ranges from; the pieces' counts float [V], or None.
    """
    scheme, learned, frequencies = SCHEMES[quantize], None, None
    directory = isinstance(run, str | os.PathLike)

    def known() -> list | None:
        """The training texts of the run; its files are hashed, so asked for only where they are needed."""
        return training_texts(run, getattr(model, "task", None)) if directory else None

    if scheme.activations == "static" and calibration is None and directory:
        learned = aware_training.read_ranges(run)
    if scheme.calibrated and calibration is None and not learned:
        calibration = known()
    if embedding_codes is not None:
        if "table" not in scheme.kinds or max_drop is not None:
            other = quantize if max_drop is None else "max_drop"
            names = " or ".join(name for name, scheme in SCHEMES.items() if "table" in scheme.kinds)
            raise InputError(f"embedding_codes is given with {other}, expected with {names} alone")
        frequencies = _frequencies(model, pair, known() if calibration is None else calibration, size)
    counts_alone = embedding_codes is not None  # then calibration is for the pieces, not for ranges
    drawn = [] if learned or counts_alone else _calibration(model, pair, quantize, calibration, size)
    return learned, drawn, frequencies


def _calibration(model: "keras.Model", pair: bool, quantize: str, given: Given | None, size: int | None) -> list:
    """The texts that ranges are taken from; none where nothing is calibrated."""
    if not SCHEMES[quantize].calibrated:
        if given is not None or size is not None:
            names = " and ".join(name for name, scheme in SCHEMES.items() if scheme.calibrated)
            raise InputError(f"calibration is given with {quantize}, expected with {names}: leave it out")
        return []
    if given is None:
        raise InputError(
            f"{quantize} needs calibration: real texts, a file with one a line (a tab within a pair) or the task's data"
        )
    return ranges.choose(ranges.read(given, getattr(model, "task", None), pair), size)


def _frequencies(model: "keras.Model", pair: bool, given: Given | None, size: int | None) -> np.ndarray | None:
    """How often the pieces occur in real texts: float [V], None without texts."""
    if given is None:
        if size is not None:
            raise InputError("calibration_size is given without calibration, expected both: which texts?")
        return None
    counted = ranges.choose(ranges.read(given, getattr(model, "task", None), pair), size, most=None)
    return product.frequencies(model.tokenizer, counted)
