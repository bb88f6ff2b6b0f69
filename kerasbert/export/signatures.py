"""What a signature of a SavedModel takes: inputs by name, checked so that a wrong call is told in a sentence, and rows."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf

from kerasbert.inputs import PAD, Input
from kerasbert.tasks.base import TaskKind
from kerasbert.text import graph
from kerasbert.text.base import Tokenizer

ROWS = 64  # that the graph runs at once, where an input is several
GROUP = 16  # of like length, where an input is a row
AXES = {1: "[B]", 2: "[B, C]"}
ConcreteFunction = tf.types.experimental.ConcreteFunction
Signatures = Mapping[str, ConcreteFunction]  # of a SavedModel, by their names: called with the inputs by theirs


def traced(function: Callable[[dict], dict], specs: Mapping[str, tf.TensorSpec]) -> ConcreteFunction:
    """A function of a dict as a graph of arguments with the names of the dict, after which a signature names its inputs."""
    names = list(specs)

    def called(*values: tf.Tensor) -> dict[str, tf.Tensor]:
        return function(dict(zip(names, values)))

    positional = inspect.Parameter.POSITIONAL_OR_KEYWORD
    called.__signature__ = inspect.Signature([inspect.Parameter(name, positional) for name in names])
    return tf.function(called, list(specs.values()), autograph=False).get_concrete_function()


def checked(inputs: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """The inputs of a call, each with the number of axes of its spec, all of as many rows: else INVALID_ARGUMENT, a sentence.

    A server hands over whatever it got. Its shape is asked for behind an operator whose own shape is unknown, or TensorFlow
    would answer with that of the spec.
    """
    shapes = {
        name: tf.shape(tf.raw_ops.PlaceholderWithDefault(input=each, shape=None)) for name, each in inputs.items()
    }
    ranks = [
        tf.debugging.Assert(
            tf.equal(tf.size(shape), len(inputs[name].shape)),
            [
                f"the input {name} is {_kind(inputs[name])} {AXES.get(len(inputs[name].shape), '')}. Received the shape",
                shape,
            ],
        )
        for name, shape in shapes.items()
    ]
    (first, rows), *others = [(name, tf.gather(tf.concat([shape, [0]], 0), 0)) for name, shape in shapes.items()]
    with tf.control_dependencies(ranks):
        counts = [
            tf.debugging.Assert(
                tf.equal(rows, count),
                [f"the inputs {first} and {name} have as many rows in a call. Received", rows, count],
            )
            for name, count in others
        ]
    with tf.control_dependencies([*ranks, *counts]):
        return {name: tf.identity(each) for name, each in inputs.items()}


def checked_options(kind: TaskKind, inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """The same inputs where each option of a call fits: else INVALID_ARGUMENT, a sentence that names it."""
    checks = [
        tf.debugging.Assert(
            tf.reduce_all(option.fits(inputs[name])), [f"the input {name} is {option.expected}. Received", inputs[name]]
        )
        for name, option in kind.call_options.items()
    ]
    with tf.control_dependencies(checks):
        return {name: tf.identity(each) for name, each in inputs.items()}


def own_options(kind: TaskKind, rows: tf.Tensor) -> dict[str, tf.Tensor]:
    """The options of a call as the model has them, for so many rows."""
    return {name: tf.fill([rows], tf.constant(each.own)) for name, each in kind.call_options.items()}


def examples(inputs: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """The rows of inputs, strings [B] by name, as serialized tf.Examples [B]."""
    rows = []
    for values in zip(*(each.numpy() for each in inputs.values())):
        features = {
            name: tf.train.Feature(bytes_list=tf.train.BytesList(value=[value])) for name, value in zip(inputs, values)
        }
        example = tf.train.Example(features=tf.train.Features(feature=features))
        rows.append(example.SerializeToString(deterministic=True))
    return tf.constant(rows, tf.string)


def given(kind: TaskKind, names: Sequence[str], texts: Sequence[object]) -> dict[str, tf.Tensor]:
    """What `serving_default` takes of inputs as `kb.predict` takes them: strings [B] of each part, [B, C] of lists; numbers."""
    texts = [text if isinstance(text, tuple) else (text,) for text in texts]
    found = {}
    for name, column in zip(names, zip(*texts)):
        lists = [len(value) for value in column if isinstance(value, list | tuple)]
        if lists and len(names) == 1:  # a list of words: a raw text in the graph
            column = [" ".join(value) if isinstance(value, list | tuple) else value for value in column]
        elif lists:
            column = [(*value, *[""] * (max(lists) - len(value))) for value in column]
        found[name] = tf.constant(list(column))
    numbers = kind.numbers(texts)
    return found | {name: tf.constant(each, tf.int32) for name, each in numbers.items()}


def _kind(value: tf.Tensor) -> str:
    return "a list of strings" if value.dtype == tf.string else f"a list of {value.dtype.name}"


def counted(reads: Sequence[Input]) -> list[Input]:
    """What signature `ids` takes beside `lengths`: what packing, settings and kinds fill, and characters of words.

    The graph makes the others of the ids, which do not tell how a word that is not known is written.
    """
    return [each for each in reads if each.name != "padding_mask" and (each.filled_by != "maker" or "W" in each.axes)]


class Bounds(NamedTuple):
    """What the tables of a network hold.

    Args:
        numbers: input name -> how many numbers it knows, 0, 1, ... tokens: int, most of a row; None without a bound.
    """

    numbers: Mapping[str, int]
    tokens: int | None


def masked(taken: Sequence[Input], inputs: dict[str, tf.Tensor], pad_id: int, bounds: Bounds) -> dict[str, tf.Tensor]:
    """What a network reads of the first `lengths` [B] tokens of each row: whatever a batcher pads with stands behind them.

    What its tables do not hold is refused: on a GPU it would be read as zeros.

    Args:
        taken: of `counted`. inputs: by name, and `lengths`.
    """
    width = tf.shape(inputs["token_ids"])[1]
    mask, found = graph.counted("lengths", inputs["lengths"], width, "token_ids", least=1), {}
    for each in taken:
        value = inputs[each.name]
        pad = tf.constant(pad_id if each.pad == PAD else each.pad, value.dtype)
        if each.axes in ("BS", "BSW"):
            value = tf.where(mask if each.axes == "BS" else mask[..., None], value, pad)
        found[each.name] = value
    checks = [_within(name, found[name], count) for name, count in bounds.numbers.items() if name in found]
    if bounds.tokens is not None:
        message = f"the input token_ids has at most {bounds.tokens} tokens a row. Received"
        checks.append(tf.debugging.Assert(width <= bounds.tokens, [message, width]))
    with tf.control_dependencies(checks):
        return {name: tf.identity(each) for name, each in found.items()} | {"padding_mask": tf.cast(mask, tf.int32)}


def _within(name: str, value: tf.Tensor, count: int) -> tf.Operation:
    fits = tf.reduce_all((value >= 0) & (value < count))
    message = f"the input {name} holds numbers of 0 to {count - 1}. Received"
    return tf.debugging.Assert(fits, [message, tf.reduce_min(value), "to", tf.reduce_max(value)])


class Choices(tf.Module):
    """Names of a setting [B] -> its numbers at the real tokens [B, S] int32; a name that is not known is an error."""

    def __init__(self, declared: Input, tokenizer: Tokenizer) -> None:
        super().__init__(name=declared.name)
        self.setting = declared.setting
        self.declared = declared.name
        self.known = dict(declared.choices(tokenizer)) if declared.choices else {}
        keys, values = list(self.known), [int(value) for value in self.known.values()]
        initializer = tf.lookup.KeyValueTensorInitializer(keys, values, tf.string, tf.int32)
        self.table = tf.lookup.StaticHashTable(initializer, -1)

    def __call__(self, names: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        numbers = self.table.lookup(names)
        message = f"{self.setting}: expected one of {', '.join(self.known)}"
        with tf.control_dependencies([tf.debugging.assert_non_negative(numbers, message)]):
            return mask * tf.expand_dims(numbers, 1)


class Prompts(tf.Module):
    """Names of prompts [B], texts [B] -> the texts with the prompts before them; a name that is not known is an error."""

    def __init__(self, prompts: Mapping[str, str]) -> None:
        super().__init__(name="prompts")
        self.known = {"": "", **prompts}
        keys, values = list(self.known), list(range(len(self.known)))
        self.table = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(keys, values, tf.string, tf.int32), -1
        )

    def __call__(self, names: tf.Tensor, texts: tf.Tensor) -> tf.Tensor:
        numbers = self.table.lookup(names)
        message = f"prompt_name: expected one of {', '.join(filter(None, self.known))}, or none of them"
        with tf.control_dependencies([tf.debugging.assert_non_negative(numbers, message)]):
            return tf.strings.join([tf.gather(list(self.known.values()), tf.maximum(numbers, 0)), texts])


def trimmed(packed: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Packed rows [R, W] as long as the longest of them, not as the longest there may be; a row of one token for none.

    What is a number a row, [R], gets a row as well.
    """
    count = tf.shape(packed["padding_mask"])[0]
    added = [[0, tf.maximum(0, 1 - count)], [0, tf.maximum(0, 1 - tf.shape(packed["padding_mask"])[1])]]
    width = tf.reduce_max(tf.concat([[1], tf.reduce_sum(packed["padding_mask"], axis=1)], axis=0))
    filling = {"padding_mask": 1}  # a row that sees nothing has no softmax
    found = {}
    for name, each in packed.items():
        axes = len(each.shape)
        padded = tf.pad(each, added[:axes] + [[0, 0]] * (axes - 2), constant_values=filling.get(name, 0))
        found[name] = padded[:, :width] if axes > 1 else padded
    return found


def one_or_more(some: Callable, packed: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """What `some` gives of rows, those of like length together; a single one is read by a branch of its own."""
    one = tf.equal(tf.shape(packed["token_ids"])[0], 1)
    return tf.cond(one, lambda: some(_of_one_row(packed)), lambda: by_length(some, packed))


def by_length(some: Callable[[dict], dict], packed: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """What `some` gives of rows, GROUP at once in the order of their lengths: a short text is not padded to a long stranger's."""
    longest_first = tf.argsort(tf.reduce_sum(packed["padding_mask"], axis=1), direction="DESCENDING", stable=True)
    ordered = {name: tf.gather(value, longest_first) for name, value in packed.items()}
    whole = in_chunks(lambda rows: some(trimmed(rows)), ordered, GROUP)
    places = tf.math.invert_permutation(longest_first)
    return {name: tf.gather(value, places) for name, value in whole.items()}


def _of_one_row(packed: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """The same with shapes that say B = 1: with the length alone unknown, no operator computes the shapes of reshapes.

    Not by `tf.ensure_shape`, of which Grappler learns that the other branch has one row too, and folds its shapes.
    """
    sizes = {name: [1] + [-1] * (len(each.shape) - 1) for name, each in packed.items()}
    return {name: tf.slice(each, [0] * len(each.shape), sizes[name]) for name, each in packed.items()}


def in_chunks(run: Callable[[dict], dict], packed: dict[str, tf.Tensor], most: int = ROWS) -> dict[str, tf.Tensor]:
    """`run` on at most so many rows at once: memory does not grow with the length of a document.

    What is wider in some rows than in others, as a list of labels, is filled up with 0 or empty texts.

    Args:
        packed: [R, W], R at least 1.
    """
    chunks = (tf.shape(packed["token_ids"])[0] + most - 1) // most

    def chunk(number: tf.Tensor) -> dict[str, tf.Tensor]:
        return run({name: value[number * most : (number + 1) * most] for name, value in packed.items()})

    first = chunk(tf.constant(0))
    names = sorted(first)

    def body(number: tf.Tensor, *done: tf.Tensor) -> list[tf.Tensor]:
        outputs = chunk(number)
        return [number + 1, *(_joined(each, outputs[name]) for name, each in zip(names, done))]

    shapes = [tf.TensorShape([]), *(tf.TensorShape([None, *first[name].shape[1:]]) for name in names)]
    state: list[tf.Tensor] = [tf.constant(1), *(first[name] for name in names)]
    _, *whole = tf.while_loop(lambda number, *_: number < chunks, body, state, shapes)
    return dict(zip(names, whole))


def _joined(first: tf.Tensor, second: tf.Tensor) -> tf.Tensor:
    """Rows [A, ...] and [B, ...], one behind the other, each as wide as the wider."""
    known = first.shape[1:]
    if None in known:
        widths = tf.maximum(tf.shape(first), tf.shape(second))[1:]
        first, second = (
            tf.pad(each, tf.pad((widths - tf.shape(each)[1:])[:, None], [[1, 0], [1, 0]])) for each in (first, second)
        )
    rows = tf.concat([first, second], axis=0)
    rows.set_shape([None, *known])
    return rows
