"""IB-BERT and MobileBERT in numpy from the released TF1 code, under its names; no padding."""

import numpy as np

from tests.checkpoints.reference import gelu, softmax


def _dense(w, name, x):
    return x @ w[f"{name}/kernel"] + w[f"{name}/bias"]


def _norm(w, name, x):
    if f"{name}/FakeLayerNorm/gamma" in w:
        return x * w[f"{name}/FakeLayerNorm/gamma"] + w[f"{name}/FakeLayerNorm/beta"]
    x = x - x.mean(-1, keepdims=True)
    x = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-12)
    return x * w[f"{name}/LayerNorm/gamma"] + w[f"{name}/LayerNorm/beta"]


def _embedded(w, ids, segments):
    at = "bert/embeddings"
    x = w[f"{at}/word_embeddings"][ids]
    zero = np.zeros_like(x[:, :1])
    x = np.concatenate([np.concatenate([x[:, 1:], zero], 1), x, np.concatenate([zero, x[:, :-1]], 1)], axis=-1)
    x = _dense(w, f"{at}/embedding_transformation", x)
    x = x + w[f"{at}/token_type_embeddings"][segments] + w[f"{at}/position_embeddings"][: ids.shape[1]]
    return _norm(w, at, x)


def _layer(w, at, heads, before):
    fake = "bert/embeddings/FakeLayerNorm/gamma" in w
    act = (lambda x: np.maximum(x, 0)) if fake else gelu
    y = _norm(w, f"{at}/bottleneck/input", _dense(w, f"{at}/bottleneck/input/dense", before))
    query = value = before
    if f"{at}/bottleneck/attention/dense/kernel" in w:
        query = _norm(w, f"{at}/bottleneck/attention", _dense(w, f"{at}/bottleneck/attention/dense", before))
    elif w[f"{at}/attention/self/value/kernel"].shape[0] == y.shape[-1]:
        query = value = y
    q, k, v = (
        _dense(w, f"{at}/attention/self/{part}", source).reshape(*before.shape[:2], heads, -1)
        for part, source in (("query", query), ("key", query), ("value", value))
    )
    scores = np.einsum("bqnd,bknd->bnqk", q, k) / np.sqrt(q.shape[-1])
    context = np.einsum("bnqk,bknd->bqnd", softmax(scores), v).reshape(*before.shape[:2], -1)
    y = _norm(w, f"{at}/attention/output", _dense(w, f"{at}/attention/output/dense", context) + y)
    number = 0
    while (ffn := f"{at}/ffn_layer_{number}") + "/output/dense/kernel" in w:
        inner = act(_dense(w, f"{ffn}/intermediate/dense", y))
        y, number = _norm(w, f"{ffn}/output", _dense(w, f"{ffn}/output/dense", inner) + y), number + 1
    inner = act(_dense(w, f"{at}/intermediate/dense", y))
    y = _norm(w, f"{at}/output", _dense(w, f"{at}/output/dense", inner) + y)
    at += "/output/bottleneck"
    return _norm(w, at, _dense(w, f"{at}/dense", y) + before)


def reference(w, heads, ids, segments):
    """The hidden states, those of the embeddings first."""
    hidden = [_embedded(w, ids, segments)]
    while (at := f"bert/encoder/layer_{len(hidden) - 1}") + "/bottleneck/input/dense/kernel" in w:
        hidden.append(_layer(w, at, heads, hidden[-1]))
    return hidden
