"""Transformer-XL in float64 numpy, from the equations of the paper (sections 3.2, 3.3) and of Grave et al. (2017, section 3).

Weights go by the names of transformers' TransfoXLLMHeadModel, in whose layout checkpoints are released. Nothing of ours is
imported.
"""

import itertools

import numpy as np


def weights(config, seed=0, scale=0.3):
    """Random weights of a configuration: name -> float32 array, as a file of theirs holds them, copies of tied ones too."""
    draw = np.random.default_rng(seed)
    hidden, width, heads, size = (config[key] for key in ("d_model", "d_embed", "n_head", "d_head"))
    div, borders = config["div_val"], list_of_borders(config)
    found = {}

    def add(name, *shape):
        found[name] = draw.normal(0, scale, shape).astype("float32")

    word, crit = "transformer.word_emb", "crit"
    for i, (begin, end) in enumerate(borders if div > 1 else [(0, config["vocab_size"])]):
        add(f"{word}.emb_layers.{i}.weight", end - begin, width // div**i)
        add(f"{crit}.out_layers.{i}.bias", end - begin)
        found[f"{crit}.out_layers.{i}.weight"] = found[f"{word}.emb_layers.{i}.weight"]
        if div > 1 or width != hidden:
            add(f"{word}.emb_projs.{i}", hidden, width // div**i)
            found[f"{crit}.out_projs.{i}"] = found[f"{word}.emb_projs.{i}"]
    if f"{crit}.out_projs.0" in found:
        add(f"{crit}.out_projs.0", hidden, width)  # the head's is its own
        if div == 1:
            found |= {f"{crit}.out_projs.{i}": found[f"{word}.emb_projs.0"] for i in range(1, len(borders))}
    if len(borders) > 1:
        add(f"{crit}.cluster_weight", len(borders) - 1, width)
        add(f"{crit}.cluster_bias", len(borders) - 1)
    for i in range(config["n_layer"]):
        attention, forward = f"transformer.layers.{i}.dec_attn", f"transformer.layers.{i}.pos_ff"
        add(f"{attention}.qkv_net.weight", 3 * heads * size, hidden)
        add(f"{attention}.r_net.weight", heads * size, hidden)
        add(f"{attention}.o_net.weight", hidden, heads * size)
        add(f"{attention}.r_w_bias", heads, size)
        add(f"{attention}.r_r_bias", heads, size)
        add(f"{forward}.CoreNet.0.weight", config["d_inner"], hidden)
        add(f"{forward}.CoreNet.0.bias", config["d_inner"])
        add(f"{forward}.CoreNet.3.weight", hidden, config["d_inner"])
        add(f"{forward}.CoreNet.3.bias", hidden)
        for norm in (attention, forward):
            add(f"{norm}.layer_norm.weight", hidden)
            add(f"{norm}.layer_norm.bias", hidden)
    found["transformer.pos_emb.inv_freq"] = (1 / 10000 ** (np.arange(0, hidden, 2) / hidden)).astype("float32")
    return found


def list_of_borders(config):
    return list(itertools.pairwise([0, *config["cutoffs"], config["vocab_size"]]))


def norm(x, gamma, beta, epsilon):
    mean = x.mean(-1, keepdims=True)
    return (x - mean) / np.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + epsilon) * gamma + beta


def log_softmax(x):
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


class Reference:
    """A model of these weights.

    Args:
        config: their configuration.
        found: as `weights` gives them.
    """

    def __init__(self, config, found):
        self.config, self.w = config, {name: value.astype("float64") for name, value in found.items()}

    def embed(self, ids):
        config, vectors = self.config, np.zeros((*np.shape(ids), self.config["d_model"]))
        for place in np.ndindex(*np.shape(ids)):
            token, part = ids[place], 0
            if config["div_val"] > 1:
                part = next(i for i, (begin, end) in enumerate(list_of_borders(config)) if begin <= token < end)
                token = token - list_of_borders(config)[part][0]
            vector = self.w[f"transformer.word_emb.emb_layers.{part}.weight"][token]
            projection = self.w.get(f"transformer.word_emb.emb_projs.{part}")
            vectors[place] = vector if projection is None else projection @ vector
        return vectors * np.sqrt(config["d_model"])

    def layer(self, i, x, memory):
        """x [S, H], memory [M, H] -> [S, H], by loops over the pairs of query and key."""
        config, at = self.config, f"transformer.layers.{i}."
        heads, size, hidden = config["n_head"], config["d_head"], config["d_model"]
        both = np.concatenate([memory, x])
        q, k, v = np.split(both @ self.w[at + "dec_attn.qkv_net.weight"].T, 3, axis=1)
        q, k, v = (part.reshape(-1, heads, size) for part in (q, k, v))
        frequencies = 1 / 10000 ** (np.arange(0, hidden, 2) / hidden)
        u, w = self.w[at + "dec_attn.r_w_bias"], self.w[at + "dec_attn.r_r_bias"]
        out = np.zeros((len(x), heads, size))
        for row in range(len(x)):
            query, place = q[len(memory) + row], len(memory) + row
            seen = [j for j in range(place + 1) if not config["same_length"] or place - j < config["mem_len"]]
            for head in range(heads):
                scores = []
                for j in seen:
                    apart = place - j if config["clamp_len"] <= 0 else min(place - j, config["clamp_len"])
                    sinusoid = np.concatenate([np.sin(apart * frequencies), np.cos(apart * frequencies)])
                    relative = (self.w[at + "dec_attn.r_net.weight"] @ sinusoid).reshape(heads, size)[head]
                    score = (query[head] + u[head]) @ k[j, head] + (query[head] + w[head]) @ relative
                    scores.append(score / np.sqrt(size))
                probabilities = np.exp(log_softmax(np.array(scores)))
                out[row, head] = probabilities @ v[seen, head]
        y = x + out.reshape(len(x), -1) @ self.w[at + "dec_attn.o_net.weight"].T
        names = [at + "dec_attn.layer_norm." + leaf for leaf in ("weight", "bias")]
        y = norm(y, *(self.w[name] for name in names), config["layer_norm_epsilon"])
        inner = np.maximum(y @ self.w[at + "pos_ff.CoreNet.0.weight"].T + self.w[at + "pos_ff.CoreNet.0.bias"], 0)
        z = y + inner @ self.w[at + "pos_ff.CoreNet.3.weight"].T + self.w[at + "pos_ff.CoreNet.3.bias"]
        names = [at + "pos_ff.layer_norm." + leaf for leaf in ("weight", "bias")]
        return norm(z, *(self.w[name] for name in names), config["layer_norm_epsilon"])

    def segment(self, ids, memories=None):
        """ids [S], memories of each layer [M, H] (none at first) -> vectors [S, H], memories after the segment."""
        config = self.config
        memories = memories or [np.zeros((0, config["d_model"]))] * config["n_layer"]
        x, after = self.embed(ids), []
        for i, memory in enumerate(memories):
            whole = np.concatenate([memory, x])
            after.append(whole[len(whole) - min(config["mem_len"], len(whole)) :])
            x = self.layer(i, x, memory)
        return x, after

    def log_probabilities(self, x):
        """Of the token that follows: [S, H] -> [S, V]."""
        config, borders = self.config, list_of_borders(self.config)
        logits = []
        for i, (begin, end) in enumerate(borders):
            part = i if config["div_val"] > 1 else 0
            table, bias = self.w[f"crit.out_layers.{part}.weight"], self.w[f"crit.out_layers.{part}.bias"]
            if config["div_val"] == 1:
                table, bias = table[begin:end], bias[begin:end]
            if i == 0 and len(borders) > 1:
                table = np.concatenate([table, self.w["crit.cluster_weight"]])
                bias = np.concatenate([bias, self.w["crit.cluster_bias"]])
            projection = self.w.get(f"crit.out_projs.{i}")
            logits.append((x if projection is None else x @ projection) @ table.T + bias)
        head, *tails = map(log_softmax, logits)
        shortlist = borders[0][1]
        parts = [head[:, shortlist + i, None] + tail for i, tail in enumerate(tails)]
        return np.concatenate([head[:, :shortlist], *parts], axis=1)
