"""A BERT in numpy, written from the paper and Google's TF1 code, and random checkpoints under others' names."""

import json
import math
from pathlib import Path

import numpy as np

from kerasbert.checkpoints.formats import ImportOptions, find
from kerasbert.checkpoints.safetensors import write_safetensors

_erf = np.vectorize(math.erf)


def open_checkpoint(path, source):
    """The reader of a checkpoint and the folder of its configuration."""
    opened = find(Path(path), source).open(Path(path), ImportOptions())
    return opened.tensors, opened.folder


def gelu(x):
    return x * 0.5 * (1 + _erf(x / math.sqrt(2)))


def norm(x, gamma, beta, epsilon=1e-12):
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + epsilon) * gamma + beta


def softmax(x):
    x = np.exp(x - x.max(-1, keepdims=True))
    return x / x.sum(-1, keepdims=True)


def bert(w, heads, token_ids, padding_mask, segment_ids):
    """Hidden states (L+1 arrays [B, S, H]) and pooled [B, H] of a TF1 checkpoint `w` (name -> array), in float64."""
    w = {name: value.astype(np.float64) for name, value in w.items()}

    def dense(name, x):
        return x @ w[f"{name}/kernel"] + w[f"{name}/bias"]

    def layer_norm(name, x):
        return norm(x, w[f"{name}/LayerNorm/gamma"], w[f"{name}/LayerNorm/beta"])

    batch, length = token_ids.shape
    tables = {kind: w[f"bert/embeddings/{kind}_embeddings"] for kind in ("word", "token_type", "position")}
    x = tables["word"][token_ids] + tables["token_type"][segment_ids] + tables["position"][:length]
    hidden = [layer_norm("bert/embeddings", x)]
    for layer in range(sum(name.endswith("/intermediate/dense/kernel") for name in w)):
        at, x = f"bert/encoder/layer_{layer}", hidden[-1]
        split = [
            dense(f"{at}/attention/self/{part}", x).reshape(batch, length, heads, -1)
            for part in ("query", "key", "value")
        ]
        scores = np.einsum("bqnd,bknd->bnqk", split[0], split[1]) / math.sqrt(split[0].shape[-1])
        scores = np.where(padding_mask[:, None, None, :] > 0, scores, -np.inf)
        context = np.einsum("bnqk,bknd->bqnd", softmax(scores), split[2]).reshape(batch, length, -1)
        x = layer_norm(f"{at}/attention/output", x + dense(f"{at}/attention/output/dense", context))
        inner = gelu(dense(f"{at}/intermediate/dense", x))
        hidden.append(layer_norm(f"{at}/output", x + dense(f"{at}/output/dense", inner)))
    return hidden, np.tanh(dense("bert/pooler/dense", hidden[-1][:, 0]))


def mlm_logits(head, table, sequence):
    """[B, S, V] of an imported masked-LM head ({weight: array})."""
    x = norm(gelu(sequence @ head["transform/kernel"] + head["transform/bias"]), head["norm/gamma"], head["norm/beta"])
    return x @ table.T + head["bias"]


def batch(vocabulary, length=9, rows=3, seed=0):
    """Random ids, segments and padding; row i has i padded places at the end."""
    rng = np.random.default_rng(seed)
    mask = np.ones((rows, length), np.int32)
    for row in range(rows):
        mask[row, length - row :] = 0
    return {
        "token_ids": rng.integers(0, vocabulary, (rows, length)).astype(np.int32),
        "padding_mask": mask,
        "segment_ids": np.sort(rng.integers(0, 2, (rows, length)), axis=1).astype(np.int32),
    }


CONFIG = {
    "architectures": ["BertForPreTraining"],
    "model_type": "bert",
    "vocab_size": 13,
    "hidden_size": 6,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 7,
    "max_position_embeddings": 10,
    "type_vocab_size": 2,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "initializer_range": 0.02,
    "layer_norm_eps": 1e-12,
}
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh"]


def hf_shapes(labels=0):
    """Names and shapes of transformers' BertForPreTraining (or, with labels, of a sequence classifier) of CONFIG."""
    hidden, inner, vocabulary = CONFIG["hidden_size"], CONFIG["intermediate_size"], CONFIG["vocab_size"]
    shapes = {
        "bert.embeddings.word_embeddings.weight": (vocabulary, hidden),
        "bert.embeddings.position_embeddings.weight": (CONFIG["max_position_embeddings"], hidden),
        "bert.embeddings.token_type_embeddings.weight": (2, hidden),
    }

    def dense(name, inputs, outputs):
        shapes.update({f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)})

    def layer_norm(name):
        shapes.update({f"{name}.LayerNorm.weight": (hidden,), f"{name}.LayerNorm.bias": (hidden,)})

    layer_norm("bert.embeddings")
    for layer in range(CONFIG["num_hidden_layers"]):
        at = f"bert.encoder.layer.{layer}"
        for part in ("self.query", "self.key", "self.value", "output.dense"):
            dense(f"{at}.attention.{part}", hidden, hidden)
        layer_norm(f"{at}.attention.output")
        dense(f"{at}.intermediate.dense", hidden, inner)
        dense(f"{at}.output.dense", inner, hidden)
        layer_norm(f"{at}.output")
    dense("bert.pooler.dense", hidden, hidden)
    if labels:
        dense("classifier", hidden, labels)
        return shapes
    dense("cls.predictions.transform.dense", hidden, hidden)
    layer_norm("cls.predictions.transform")
    dense("cls.seq_relationship", hidden, 2)
    return shapes | {"cls.predictions.bias": (vocabulary,)}


def random_tensors(shapes, seed=0):
    """Normal values for every name, in its order."""
    rng = np.random.default_rng(seed)
    return {name: rng.normal(0, 0.3, shape).astype(np.float32) for name, shape in sorted(shapes.items())}


def write_hf(folder: Path, tensors, config=CONFIG, vocabulary=VOCABULARY):
    """A Hugging Face folder with these tensors; returns it."""
    folder.mkdir(parents=True, exist_ok=True)
    shapes = {name: value.shape for name, value in tensors.items()}
    write_safetensors(folder / "model.safetensors", shapes, tensors.__getitem__, {"format": "pt"})
    if config:
        (folder / "config.json").write_text(json.dumps(config))
    if vocabulary:
        (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    return folder
