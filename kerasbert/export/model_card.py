"""The README.md that lies beside a SavedModel: what it takes, what it gives, and the import without which it cannot be loaded."""

from collections.abc import Sequence
from typing import Any

from kerasbert.inputs import used
from kerasbert.layers.sentence_encoder import SentenceEncoder
from kerasbert.tasks import predict
from kerasbert.tasks.base import kind_of

NEEDS = "import tensorflow_text before tf.saved_model.load: it brings the operations of the tokenizer"


def card(model: Any, longest: int, strings: Sequence[str], outputs: str | None = None) -> str:
    """The text of the card; it holds no paths and no dates.

    Args:
        model: what was exported.
        longest: int, tokens of the longest text.
        strings: names of the texts that it takes.
        outputs: str, names of the outputs where the model is the user's own.
    """
    task = getattr(model, "task", None)
    inputs = [*strings, *(task.settings if task is not None else ())]
    call = ", ".join(f'{name}=tf.constant(["..."])' for name in inputs)
    labels = f"\nLabels: {', '.join(model.labels)}.\n" if task is not None and model.labels else ""
    reads = used(predict.declared(model), predict.settings_of(model))
    *before, last = [f"`{each.name}`" for each in reads]
    listed = f"{', '.join(before)} and {last}"
    axes = "int32 [B, S]" if {each.axes for each in reads} == {"BS"} else "by their axes"
    gives = outputs or kind_of(model).described()
    if task is None and isinstance(model, SentenceEncoder):
        gives = "`vector` [B, H] float32: the sentence's, as it was learned"
    return f"""# {task.name if task is not None else "Encoder"}

A TensorFlow SavedModel written by kerasbert. It takes text: the tokenizer is part of the graph.

```python
import tensorflow as tf
import tensorflow_text  # needed, although no line names it: it brings the operations of the tokenizer

model = tf.saved_model.load("DIR")
model.signatures["serving_default"]({call})
```

`serving_default` returns {gives}.
The signature `ids` takes {listed}, {axes}, instead of text.
{kind_of(model).longer(longest)}

Calls of one text are answered soonest with one thread an operator (`tf.config.threading.set_intra_op_parallelism_threads(1)`
before loading, `--tensorflow_intra_op_parallelism=1` of TF Serving), calls of many texts with all cores.
{labels}"""
