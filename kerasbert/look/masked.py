"""How sure a masked language model is of each token of the sentences (Salazar et al., 2020, section 2.1)."""

import contextlib
import math
import os
from collections.abc import Sequence

import keras
import numpy as np

from kerasbert.answers.tokens import POSITIONS, spelled
from kerasbert.errors import InputError
from kerasbert.look.reading import begin_of
from kerasbert.storage.json_view import Json
from kerasbert.tasks import load, predict
from kerasbert.tasks.tokens import TASK, Tokens

ROWS = 32  # masked copies of a sentence at once: the numbers of a batch are [B, V]


def masked(model: keras.Model, sentences: Sequence[str], directory: str | os.PathLike | None = None) -> Json | None:
    """The log-probability of each token where it alone is masked; None of a model without a head for them.

    Args:
        model: one that fills masks, or whose heads that do lie in the `directory` that it was loaded from.

    Returns:
        `sentences`: of each a list of tokens: `piece`, `log_probability` in nats, the `best` token and its `best_probability`;
        `perplexity`: exp of minus the mean over all tokens (equation 4).
    """
    if not _fills(model) and directory is not None:
        with contextlib.suppress(InputError):  # it has no such heads
            model = load.with_heads(getattr(model, "encoder", model), directory, TASK)
    if not _fills(model):
        return None
    encoded, most = predict.encoded_for(model.encoder, list(sentences), None), predict.longest(model, None)
    found = []
    for sentence, at in zip(sentences, encoded.of()):
        row = encoded.rows[at][0]
        ids = np.array(row.token_ids[: row.length])
        own = model.tokenizer.tokenize(sentence).ids
        begin = begin_of(own, ids.tolist())
        places = np.arange(len(own) if begin is not None else 0) + (begin or 0)
        batch = encoded.arrays([at.start], most)
        found.append(_of(model, batch, ids, places))
    every = [token["log_probability"] for tokens in found for token in tokens]
    return {"sentences": found, "perplexity": math.exp(-float(np.mean(every))) if every else None}


def _fills(model: keras.Model) -> bool:
    """Whether a model fills masks."""
    return isinstance(getattr(getattr(model, "task", None), "how", None), Tokens)


def _of(model: keras.Model, batch: dict[str, np.ndarray], ids: np.ndarray, places: np.ndarray) -> list[Json]:
    import tensorflow as tf

    tokenizer, found = model.tokenizer, []
    for first in range(0, len(places), ROWS):
        some = places[first : first + ROWS]
        inputs = {name: np.repeat(value, len(some), axis=0) for name, value in batch.items()}
        inputs["token_ids"][np.arange(len(some)), some] = tokenizer.mask_id
        inputs[POSITIONS.name] = some[:, None].astype("int32")
        logits = model({name: tf.convert_to_tensor(value) for name, value in inputs.items()})["logits"]
        known = tf.nn.log_softmax(tf.cast(logits, "float32")[:, : tokenizer.size]).numpy()
        for place, scores in zip(some, known):
            best = int(scores.argmax())
            found.append(
                {
                    "piece": tokenizer.vocabulary[int(ids[place])],
                    "log_probability": float(scores[ids[place]]),
                    "best": spelled(tokenizer, best),
                    "best_probability": float(np.exp(scores[best])),
                }
            )
    return found
