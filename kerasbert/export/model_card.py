"""The README.md that lies beside a SavedModel: what it takes, what it gives, and the import without which it cannot be loaded."""

from typing import Any

NEEDS = "import tensorflow_text before tf.saved_model.load: it brings the operations of the tokenizer"
OUTPUTS = {
    "classification": "`probabilities` [B, L] float32, `label_ids` [B] int32, `labels` [B] string",
    "regression": "`value` [B] float32",
    None: "`vector` [B, H] float32: the mean over the tokens",
}


def card(model: Any, longest: int, outputs: str | None = None) -> str:
    """The text of the card; it holds no paths and no dates.

    Args:
        model: what was exported.
        longest: int, tokens of the longest text.
        outputs: str, names of the outputs where the model is the user's own.
    """
    task = getattr(model, "task", None)
    inputs = ("text_a", "text_b") if task is not None and task.text_b else ("text",)
    call = ", ".join(f'{name}=tf.constant(["..."])' for name in inputs)
    labels = f"\nLabels: {', '.join(model.labels)}.\n" if task is not None and model.labels else ""
    return f"""# {task.name if task is not None else "Encoder"}

A TensorFlow SavedModel written by kerasbert. It takes text: the tokenizer is part of the graph.

```python
import tensorflow as tf
import tensorflow_text  # needed, although no line names it: it brings the operations of the tokenizer

model = tf.saved_model.load("DIR")
model.signatures["serving_default"]({call})
```

`serving_default` returns {outputs or OUTPUTS[task.kind if task is not None else None]}.
The signature `ids` takes `token_ids`, `padding_mask` and `segment_ids`, int32 [B, S], instead of text.
Texts are truncated after {longest} tokens.
{labels}"""
