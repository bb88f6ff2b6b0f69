"""A reader of AllenNLP's ELMo files that follows TensorFlow 1 in float64, and files to read. It imports nothing of ours.

The cell is LSTMCell of TensorFlow 1 (tensorflow/python/ops/rnn_cell_impl.py, `LSTMCell.call`; its weights were called W_0, B and
W_P_0 when bilm-tf was trained): gates i, j, f, o of [inputs, state] @ W_0 + B; c = sigmoid(f + 1) c + sigmoid(i) tanh(j) and
m = sigmoid(o) tanh(c) @ W_P_0, both clipped. What stands below it is bilm-tf's model.py (`_build_word_char_embeddings`), what
joins the layers its ResidualWrapper from the second layer on.
"""

import json

import h5py
import numpy as np

OPTIONS = {
    "lstm": {
        "use_skip_connections": True,
        "projection_dim": 5,
        "cell_clip": 3,
        "proj_clip": 3,
        "dim": 7,
        "n_layers": 2,
    },
    "char_cnn": {
        "activation": "relu",
        "filters": [[1, 3], [2, 4], [3, 6]],
        "n_highway": 2,
        "embedding": {"dim": 4},
        "n_characters": 262,
        "max_characters_per_token": 50,
    },
}


def write(folder, options=OPTIONS, seed=0, change=None):
    """Random files of the layout; `change` edits the open hdf5."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tiny_options.json").write_text(json.dumps(options))
    draw = np.random.default_rng(seed)
    cnn, lstm = options["char_cnn"], options["lstm"]
    total, width, units = sum(n for _, n in cnn["filters"]), lstm["projection_dim"], lstm["dim"]
    with h5py.File(folder / "tiny_weights.hdf5", "w") as file:

        def put(name, *shape, scale=0.5):
            file.create_dataset(name, data=draw.normal(0, scale, shape).astype("float32"))

        put("char_embed", 261, cnn["embedding"]["dim"], scale=1.0)
        for number, (size, count) in enumerate(cnn["filters"]):
            put(f"CNN/W_cnn_{number}", 1, size, cnn["embedding"]["dim"], count)
            put(f"CNN/b_cnn_{number}", count)
        for number in range(cnn["n_highway"]):
            for part in ("carry", "transform"):
                put(f"CNN_high_{number}/W_{part}", total, total)
                put(f"CNN_high_{number}/b_{part}", total)
        put("CNN_proj/W_proj", total, width)
        put("CNN_proj/b_proj", width)
        for way in range(2):
            for layer in range(lstm["n_layers"]):
                cell = f"RNN_{way}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
                put(f"{cell}/W_0", 2 * width, 4 * units)
                put(f"{cell}/B", 4 * units, scale=2.0)
                put(f"{cell}/W_P_0", units, width, scale=2.0)
        if change:
            change(file)
    return folder


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def characters(word):
    """A word's 50 ids; <S> and </S> are a sentence's begin and end."""
    inner = {"<S>": [256], "</S>": [257]}.get(word) or list(word.encode()[:48])
    ids = [258, *inner, 259]
    return ids + [260] * (50 - len(ids))


def states(folder, words):
    """The three layers of <S> words </S>, each [words + 2, 2 * projection], words' vectors twice; and what was clipped."""
    options = json.loads((folder / "tiny_options.json").read_text())
    cnn, lstm = options["char_cnn"], options["lstm"]
    with h5py.File(folder / "tiny_weights.hdf5") as file:
        found = {}
        file.visititems(
            lambda name, each: found.update({name: each[...].astype("float64")}) if hasattr(each, "shape") else None
        )
    x = found["char_embed"][np.array([characters(word) for word in ["<S>", *words, "</S>"]])]  # [N, 50, C]
    parts = []
    for number, (size, _) in enumerate(cnn["filters"]):
        kernel, places = found[f"CNN/W_cnn_{number}"][0], 50 - size + 1
        conv = sum(x[:, first : first + places] @ kernel[first] for first in range(size)) + found[f"CNN/b_cnn_{number}"]
        parts.append({"relu": lambda y: np.maximum(y, 0), "tanh": np.tanh}[cnn["activation"]](conv.max(axis=1)))
    x = np.concatenate(parts, axis=-1)
    for number in range(cnn["n_highway"]):
        at = f"CNN_high_{number}"
        gate = sigmoid(x @ found[f"{at}/W_carry"] + found[f"{at}/b_carry"])
        inner = np.maximum(x @ found[f"{at}/W_transform"] + found[f"{at}/b_transform"], 0)
        x = gate * inner + (1 - gate) * x
    x = x @ found["CNN_proj/W_proj"] + found["CNN_proj/b_proj"]
    ways, clipped = [], [0, 0]
    for way in range(2):
        layers, told = [x], x[::-1] if way else x
        for layer in range(lstm["n_layers"]):
            at = f"RNN_{way}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
            c, m = np.zeros(lstm["dim"]), np.zeros(lstm["projection_dim"])
            given = []
            for row in told:
                i, j, f, o = np.split(np.concatenate([row, m]) @ found[f"{at}/W_0"] + found[f"{at}/B"], 4)
                c = sigmoid(f + 1.0) * c + sigmoid(i) * np.tanh(j)
                clipped[0] += int((np.abs(c) > lstm["cell_clip"]).sum())
                c = np.clip(c, -lstm["cell_clip"], lstm["cell_clip"])
                m = (sigmoid(o) * np.tanh(c)) @ found[f"{at}/W_P_0"]
                clipped[1] += int((np.abs(m) > lstm["proj_clip"]).sum())
                m = np.clip(m, -lstm["proj_clip"], lstm["proj_clip"])
                given.append(m + row if layer else m)
            told = np.array(given)
            layers.append(told[::-1] if way else told)
        ways.append(layers)
    return [np.concatenate(pair, axis=-1) for pair in zip(*ways)], clipped
