"""What every graph form of a tokenizer must do: save, and load where kerasbert cannot be imported."""

import tensorflow as tf

from tests.support import python


def assert_it_loads_without_kerasbert(tokenizer, graph, texts, folder):
    """Ids, offsets and packed rows of a SavedModel of `graph`, in another process, are those of `tokenizer`."""

    class Model(tf.Module):
        def __init__(self):
            super().__init__()
            self.tokenizer = graph

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
        def __call__(self, text):
            ids, starts, ends = graph.tokenize(text)
            offsets = {"starts": starts.to_tensor(-1), "ends": ends.to_tensor(-1), "ids": ids.to_tensor(-1)}
            return graph.pack(text, length=8) | offsets

    tf.saved_model.save(Model(), str(folder / "model"))
    code = f"""
import sys
sys.modules["kerasbert"] = None
import tensorflow as tf, tensorflow_text
found = tf.saved_model.load({str(folder / "model")!r})(tf.constant({texts!r}))
print({{name: value.numpy().tolist() for name, value in found.items()}})
"""
    found = eval(python("-c", code).stdout.strip().splitlines()[-1])
    for row, text in enumerate(texts):
        tokens = tokenizer.tokenize(text)
        token_ids, _ = tokenizer.pack(text, length=8)
        assert found["token_ids"][row] == token_ids + [tokenizer.pad_id] * (8 - len(token_ids))
        for name in ("ids", "starts", "ends"):
            assert [x for x in found[name][row] if x >= 0] == getattr(tokens, name)
