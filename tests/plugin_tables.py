"""A third party's file with one row of each table that is not a model's: see tests/test_tables.py."""

import dataclasses
from pathlib import Path

import keras
import tensorflow as tf

from kerasbert import registry
from kerasbert.storage.files import write_atomic, write_json
from kerasbert.text.base import Tokenizer
from kerasbert.text.kinds import Kind
from kerasbert.training.optimizers import ByPath
from kerasbert.training.schedules import Schedule


class Characters(Tokenizer):
    """A token is a character; those of no piece are [UNK]."""

    kind = "characters"

    def __init__(self, vocabulary):
        specials = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
        super().__init__(vocabulary, specials, ("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1"))

    def settings(self):
        return {}

    def save(self, directory):
        write_atomic(Path(directory) / "characters.txt", "\n".join(self.vocabulary))
        write_json(Path(directory) / "tokenizer.json", {"kind": self.kind, "settings": {}})

    def encode_plain(self, text):
        return self.tokenize_plain(text)[0]

    def tokenize_plain(self, text, first=True):
        starts = [i for i, letter in enumerate(text) if not letter.isspace()]
        return [self._ids.get(text[i], self.unk_id) for i in starts], starts, [i + 1 for i in starts]

    def decode(self, ids, **_):
        return "".join(self.vocabulary[i] for i in ids if i not in self.special_ids)

    def continues(self, i):
        return False


def learn(lines, size, lowercase=False):
    """The characters in the order of their code points, at most `size` pieces."""
    letters = sorted({letter for line in lines for letter in line if not letter.isspace()})
    return Characters([*"[PAD] [UNK] [CLS] [SEP] [MASK]".split(), *letters][:size])


registry.register_tokenizer(
    "characters",
    Kind(Characters, lambda folder: ((folder / "characters.txt").read_bytes().decode().split("\n"),), learn),
)


def blanks(text):
    """Words are what stands between blanks."""
    ends = [i for i, c in enumerate(text + " ") if c == " "]
    return [(begin, end) for begin, end in zip([0, *(end + 1 for end in ends)], ends) if end > begin]


registry.register_segmenter("between_blanks", blanks)
registry.register_packing("own_doc", dataclasses.replace(registry.PACKINGS["doc"], shortest=8), "own_documents")


def leading(key, eligible, count, predictions, begins=None):
    """The first tokens of a row, as many as are asked for."""
    _, positions = tf.math.top_k(tf.cast(eligible, tf.int32), predictions)
    chosen = (tf.range(predictions) < count[:, None]) & tf.gather(eligible, positions, batch_dims=1)
    return positions, chosen, tf.broadcast_to(tf.range(predictions), tf.shape(positions))


registry.register_selection("leading", leading)


class Sign(ByPath, keras.optimizers.SGD):
    """x -= rate * sign(gradient) * scale."""

    defaults = {"scale": 1.0}  # noqa: RUF012

    def __init__(self, learning_rate, *, scale, **options):
        super().__init__(learning_rate, **options)
        self.scale = scale

    def update_step(self, gradient, variable, learning_rate):
        rate, _ = self._rules(variable, learning_rate)
        self.assign_sub(variable, rate * self.scale * keras.ops.sign(gradient))


class Steps(Schedule):
    """The peak, then `low` of it in the second half."""

    def __init__(self, peak, steps, warmup=0, low=0.1):
        super().__init__(peak, steps, warmup)
        self.low = low

    def after(self, update):
        return keras.ops.where(update <= self.steps / 2, 1.0, self.low)


registry.register_optimizer("sign", Sign)
registry.register_schedule("steps", Steps)
