"""What the signatures of a SavedModel compute, and a user's own model as the exporter sees it."""

import functools
from collections.abc import Mapping, Sequence

import keras
import tensorflow as tf

from kerasbert.errors import InputError
from kerasbert.export import signatures
from kerasbert.inputs import NAMES as INPUT_NAMES
from kerasbert.inputs import Input, Tensor, used, with_makers
from kerasbert.layers.backend import serving
from kerasbert.spec import maybe
from kerasbert.tasks import predict
from kerasbert.tasks.base import TaskKind, kind_of
from kerasbert.tasks.exported_kind import Signature
from kerasbert.tasks.own_model import Taken, held
from kerasbert.text.base import Tokenizer
from kerasbert.text.graph import graph_tokenizer

ROWS = {"token_ids": "vocabulary", "segment_ids": "segments"}  # the field of a Spec's embeddings


class OwnModel(keras.Model):
    """A user's Keras model around an encoder, as the exporter sees a model: inputs by name, outputs by name.

    Args:
        model: a keras.Model whose inputs are named as the encoder's, or some of them.
    Call: dict of int [B, S] -> dict of the model's outputs: by their names, one `output`, or of a list `output_0`, `output_1`.
    Raises:
        InputError: other inputs, or no encoder in it.
    """

    def __init__(self, model: keras.Model) -> None:
        super().__init__(name="own_model")
        encoder = held(model)
        if encoder is None:
            raise InputError(
                f"{type(model).__name__} cannot be exported: expected a kerasbert model, or a functional Keras model that "
                f"holds an encoder and whose inputs are a dict of {', '.join(INPUT_NAMES)} or some of them"
            )
        self.taken = Taken(model, encoder)
        self.model, self.encoder, self.tokenizer, self.fixed = model, encoder, encoder.tokenizer, self.taken.fixed
        self.spec, self.built = encoder.spec, True

    def call(self, inputs: Tensor) -> dict[str, Tensor]:
        outputs = self.taken(inputs)
        if isinstance(outputs, dict):
            return outputs
        several = keras.tree.flatten(outputs)
        return {"output": several[0]} if len(several) == 1 else {f"output_{i}": each for i, each in enumerate(several)}


def answers(model: keras.Model, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """The exported outputs of a batch."""
    with serving():
        return model(inputs) if isinstance(model, OwnModel) else kind_of(model).answered(model, inputs)


def text_names(model: keras.Model) -> tuple[str, ...]:
    """Names of the texts that `serving_default` takes."""
    task = getattr(model, "task", None)
    return ("text",) if task is None else task.how.strings(task)


def specs_of(model: keras.Model, settings: Sequence[str]) -> dict[str, tf.TensorSpec]:
    """Of each input of `serving_default`: texts, settings of a call, and the numbers of the model's kind."""
    names, kind = text_names(model), kind_of(model)
    lists = {names[i] for i in kind.answers.lists if len(names) > 1}
    specs = {name: tf.TensorSpec([None, None] if name in lists else [None], tf.string) for name in names}
    specs |= {name: tf.TensorSpec([None], tf.string) for name in settings}
    return specs | {name: tf.TensorSpec([None], tf.int32) for name in kind.numbers(())}


class Graph:
    """What the signatures of a SavedModel compute: functions of dicts of their inputs.

    Args:
        model: a kerasbert model, or an OwnModel. longest: int, most tokens of a row.
    """

    def __init__(self, model: keras.Model, longest: int) -> None:
        self.model, self.longest, self.kind = model, longest, kind_of(model)
        self.names, self.tokenizer = text_names(model), graph_tokenizer(model.tokenizer)
        self.labels = tuple(getattr(model, "labels", None) or ())
        self.reads = used(predict.declared(model), predict.settings_of(model))
        self.taken = signatures.counted(self.reads)
        settings = (each for each in self.reads if each.filled_by == "setting")
        self.choices = [signatures.Choices(each, model.tokenizer) for each in settings]
        self.prompts = [signatures.Prompts(known)] if (known := prompts_of(self.kind)) else []
        # a function for several signatures, so that the file holds it once
        self.shared = tf.function(lambda given: self.served(given, self.kind), autograph=False)
        # not inlined: a process compiles a network once, when the first rows of its sort come, whichever branch calls it
        self.network = tf.function(self.answers, autograph=False, experimental_attributes={"_noinline": True})
        self.one_row = type(self.kind).served is TaskKind.served
        if self.one_row:
            _check_filled(self.kind, self.reads)

    def answers(self, packed: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """The outputs of packed rows; of bfloat16 in float32, which servers' clients know."""
        found = answers(self.model, with_makers(self.reads, packed, self.model.tokenizer))
        return {name: tf.cast(each, tf.float32) if each.dtype == tf.bfloat16 else each for name, each in found.items()}

    def run(self, given: Mapping[str, tf.Tensor], packed: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """The same with the settings of the call, on a limited number of rows at once; also of no row."""
        owners = packed.pop("owners", None)
        for table in self.choices:
            setting = given[table.setting]
            setting = setting if owners is None else tf.gather(setting, owners)
            packed[table.declared] = table(setting, packed["padding_mask"])
        count = tf.shape(packed["token_ids"])[0]
        packed = signatures.trimmed(packed)
        numbers = tf.range(tf.shape(packed["token_ids"])[0])
        packed = {
            each.name: numbers for each in self.reads if each.axes == "B"
        } | packed  # which text of the call it is
        every = signatures.one_or_more if self.one_row else signatures.in_chunks
        return {name: value[:count] for name, value in every(self.network, packed).items()}

    def serving_default(self, given: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Of texts."""
        given = signatures.checked(given)
        return self.shared(given | signatures.own_options(self.kind, tf.shape(given[self.names[0]])[0]))

    def options(self, given: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Of texts, and the options of a call for each."""
        return self.shared(signatures.checked_options(self.kind, signatures.checked(given)))

    def served(self, given: dict[str, tf.Tensor], kind: TaskKind) -> dict[str, tf.Tensor]:
        """What the kind answers of texts that were checked."""
        taken = (*self.names, *kind.numbers(()), *kind.call_options)
        texts = {name: given[name] for name in taken if name in given}
        return kind.served(lambda packed: self.run(given, packed), self.tokenizer, texts, self.longest, self.labels)

    def of_examples(self, given: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Of serialized tf.Examples, whose features are named as the inputs of `serving_default`."""
        serialized = signatures.checked(given)["inputs"]
        features = {name: tf.io.FixedLenFeature([], tf.string) for name in self.names}
        for table in self.choices:
            features[table.setting] = tf.io.FixedLenFeature([], tf.string, self.model.task.settings.get(table.setting))
        return self.kind.of_examples(self.shared(tf.io.parse_example(serialized, features)), self.model.labels)

    def tokenize(self, given: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Of texts, their tokens as `Tokenizer.tokenize` gives them."""
        ids, starts, ends = self.tokenizer.tokenize(signatures.checked(given)["text"])
        pieces = tf.gather(tf.constant(list(self.model.tokenizer.vocabulary)), ids)
        listed = {"starts": starts, "ends": ends, "pieces": pieces}
        found = {"token_ids": ids.to_tensor(self.model.tokenizer.pad_id)}
        found |= {name: each.to_tensor() for name, each in listed.items()}
        return found | {"lengths": tf.cast(ids.row_lengths(), tf.int32)}

    def of_kind(self, signature: Signature, given: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Of a signature that the kind alone has."""
        given = signatures.checked(given)
        return signature.served(
            lambda packed: self.run(given, packed), self.tokenizer, given, self.longest, self.labels
        )

    def prompted(self, given: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Of texts, each with the prompt of its name before it."""
        given, first = signatures.checked(given), self.names[0]
        text = self.prompts[0](given.pop("prompt_name"), given[first])
        bare = self.kind.configured({**self.kind.options, "prompt_name": ""})
        return self.served({**given, first: text}, bare)

    def ids(self, given: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Of tokens."""
        pad_id = self.model.tokenizer.pad_id
        return self.network(signatures.masked(self.taken, signatures.checked(given), pad_id, bounds(self.model)))

    def traced(self) -> dict[str, signatures.ConcreteFunction]:
        """The concrete function of each signature."""
        texts = specs_of(self.model, [table.setting for table in self.choices])
        ids = {each.name: tf.TensorSpec(each.open_shape, each.dtype) for each in self.taken}
        ids["lengths"] = tf.TensorSpec([None], tf.int32)
        found = {
            "serving_default": signatures.traced(self.serving_default, texts),
            "ids": signatures.traced(self.ids, ids),
        }
        if self.kind.call_options:
            options = {
                name: tf.TensorSpec([None], tf.constant(each.own).dtype)
                for name, each in self.kind.call_options.items()
            }
            found["options"] = signatures.traced(self.options, texts | options)
        if self.kind.examples:
            found[self.kind.examples] = signatures.traced(
                self.of_examples, {"inputs": tf.TensorSpec([None], tf.string)}
            )
        if type(self.model.tokenizer).of_words is Tokenizer.of_words:  # else its tokens are words and have no pieces
            found["tokenize"] = signatures.traced(self.tokenize, {"text": tf.TensorSpec([None], tf.string)})
        settings = {table.setting: tf.TensorSpec([None], tf.string) for table in self.choices}
        for name, signature in self.kind.signatures(self.model.tokenizer).items():
            inputs = {each: tf.TensorSpec([None] * axes, dtype) for each, (dtype, axes) in signature.inputs.items()}
            found[name] = signatures.traced(functools.partial(self.of_kind, signature), inputs | settings)
        if self.prompts:
            named = {**texts, "prompt_name": tf.TensorSpec([None], tf.string)}
            found["prompted"] = signatures.traced(self.prompted, named)
        return found


def bounds(model: keras.Model) -> signatures.Bounds:
    """What the tables of a model hold; of segments nothing where all tokens have one vector, or none."""
    known = {name: maybe(model.spec, f"embeddings.{rows}", 0) for name, rows in ROWS.items()}
    numbers = {name: count for name, count in known.items() if count > 1}
    positions = predict.positions(model)
    return signatures.Bounds(numbers, positions and positions - kind_of(model).written_behind)


def prompts_of(kind: TaskKind) -> Mapping[str, str]:
    """The prompts of which a call may choose; none where they are left out of the pooling, each with another length."""
    return kind.options.get("prompts", {}) if kind.options.get("include_prompt", True) else {}


def _check_filled(kind: TaskKind, reads: Sequence[Input]) -> None:
    """Refuse inputs that a kind fills in Python alone; the number of a text in its call is counted."""
    bare = [each.name for each in reads if each.filled_by == "kind" and each.graph is None and each.axes != "B"]
    if bare:
        raise InputError(
            f"nothing fills {', '.join(bare)} in a graph, which a {kind.name} reads: give its Input a graph, or the kind a served"
        )
