"""Where a student starts: from the teacher's layers, and from its embeddings where they are as wide or wider."""

import re

import numpy as np

from kerasbert.errors import InputError
from kerasbert.layers.encoder import Encoder
from kerasbert.layers.naming import names, values

TABLES = ("tokens", "positions", "segments")
PLACES = 32  # positions that the tokens of a vocabulary are put at, in turn, to see what the embeddings give


def copy_encoder(student: Encoder, teacher: Encoder, layers: tuple[int, ...]) -> None:
    """Give an encoder the teacher's weights: embeddings and pooler as they are, block i from the block layers[i].

    Embeddings narrower than the teacher's (`embeddings.width`) are factorised, see `narrowed`.

    Raises:
        InputError: a weight that the teacher does not have in this shape; nothing was copied then.
    """
    theirs, mine = values(teacher), names(student)
    width = student.spec.embeddings.width or student.spec.hidden
    if _can_narrow(student, teacher):
        theirs |= narrowed(theirs, width, teacher.spec.epsilon)

    def origin(name: str) -> str:
        return re.sub(r"^block_(\d+)/", lambda found: f"block_{layers[int(found[1])]}/", name)

    wrong = [
        f"{name} {list(variable.shape)}"
        for name, variable in mine.items()
        if origin(name) not in theirs or theirs[origin(name)].shape != tuple(variable.shape)
    ]
    if wrong:
        raise InputError(
            f"the teacher has no weights for {len(wrong)} of the student's: {', '.join(wrong[:3])}"
            f"{', ...' if len(wrong) > 3 else ''}. Copy layers into a student of the teacher's shape"
        )
    for name, variable in mine.items():
        variable.assign(theirs[origin(name)])


def _can_narrow(student: Encoder, teacher: Encoder) -> bool:
    """Whether the student has the same embeddings as the teacher but for a width below H."""
    same = type(student.embeddings) is type(teacher.embeddings) and teacher.spec.blocks.norm == "post"
    wide = teacher.spec.embeddings.width or teacher.spec.hidden
    narrow = student.spec.embeddings.width or student.spec.hidden
    return same and teacher.spec.hidden == student.spec.hidden == wide > narrow


def narrowed(weights: dict[str, np.ndarray], width: int, epsilon: float) -> dict[str, np.ndarray]:
    """Embeddings of another width that give about the same: tables in a basis of `width`, and a projection back to H.

    The basis are the principal axes of what the embeddings give for every token of the vocabulary (a truncated SVD, as
    Acharya et al., 2019, begin with); the projection is the least-squares fit behind the narrow norm.

    Args:
        epsilon: float, of the norm.

    Returns:
        weights by name, float32: embeddings/<table>/table [rows, E], norm [E], projection [E, H].
    """
    tables = {name: weights[f"embeddings/{name}/table"] for name in TABLES if f"embeddings/{name}/table" in weights}
    tables = {name: table.astype("float64") for name, table in tables.items()}
    places = np.arange(len(tables["tokens"])) % min(PLACES, len(tables["positions"]))
    sums = tables["tokens"] + tables["positions"][places] + (tables["segments"][0] if "segments" in tables else 0)
    outputs = _normalised(sums, epsilon) * weights["embeddings/norm/gamma"] + weights["embeddings/norm/beta"]
    centred = outputs - outputs.mean(0)
    basis = np.linalg.eigh(centred.T @ centred)[1][:, ::-1][:, :width]
    inputs = np.column_stack([_normalised(sums @ basis, epsilon), np.ones(len(sums))])
    kernel = np.linalg.lstsq(inputs, outputs, rcond=None)[0]
    found = {f"embeddings/{name}/table": table @ basis for name, table in tables.items()}
    found |= {"embeddings/norm/gamma": np.ones(width), "embeddings/norm/beta": np.zeros(width)}
    found |= {"embeddings/projection/kernel": kernel[:-1], "embeddings/projection/bias": kernel[-1]}
    return {name: value.astype("float32") for name, value in found.items()}


def _normalised(x: np.ndarray, epsilon: float) -> np.ndarray:
    x = x - x.mean(-1, keepdims=True)
    return x / np.sqrt(np.square(x).mean(-1, keepdims=True) + epsilon)
