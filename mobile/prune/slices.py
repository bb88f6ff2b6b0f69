"""Take heads, feed-forward neurons and layers out of a model: a smaller Spec and the weights that are left. Numpy alone."""

import dataclasses
import re
from collections.abc import Mapping, Sequence

import numpy as np

from kerasbert import spec as specs
from kerasbert.errors import InputError
from kerasbert.spec import Spec

Tensors = dict[str, np.ndarray]
BLOCK = re.compile(r"^block_(\d+)/")
INNER = "inner", "gate", "linear"  # of a feed-forward network: the maps whose columns are its neurons
MIX = "heads/mix/scalars"


def _layer(name: str) -> int:
    """The number in `block_N/...`."""
    found = BLOCK.match(name)
    assert found is not None
    return int(found[1])


@dataclasses.dataclass(frozen=True)
class Cut:
    """A Spec and tensors by name that fit each other."""

    spec: Spec
    tensors: Tensors

    def attention_layers(self) -> list[int]:
        """Layers that have attention weights of their own; only the first where they are shared."""
        return [i for i in range(self.spec.blocks.layers) if f"block_{i}/attention/output/kernel" in self.tensors]

    def networks(self) -> list[str]:
        """Feed-forward networks, such as `block_0/feedforward`."""
        found = [name.removesuffix("/outer/kernel") for name in self.tensors if name.endswith("/outer/kernel")]
        return sorted(
            (name for name in found if re.fullmatch(r"block_\d+/feedforward[^/]*", name)),
            key=lambda name: (_layer(name + "/"), name),
        )

    def without_heads(self, removed: Mapping[int, Sequence[int]]) -> "Cut":
        """Layer -> heads (0 to N-1) to take out.

        Raises:
            InputError: no such layer or head, all heads of a layer, heads that share keys, layers of one attention that differ.
        """
        spec, tensors = self.spec, dict(self.tensors)
        own, size = self.attention_layers(), spec.head_size
        counts = [spec.per_layer(spec.attention.heads, i) for i in range(spec.blocks.layers)]
        for layer, heads in removed.items():
            if layer not in own:
                expected = "0: all layers share it" if own == [0] else f"0 to {spec.blocks.layers - 1}"
                raise InputError(f"no attention of its own in layer {layer}, expected {expected}")
            _check(f"head of layer {layer}", heads, counts[layer])
            kept = [head for head in range(counts[layer]) if head not in set(heads)]
            if not kept:
                raise InputError(f"layer {layer} would lose all of its {counts[layer]} heads: keep at least one")
            rows = np.concatenate([np.arange(head * size, (head + 1) * size) for head in kept])
            block = f"block_{layer}/attention"
            output = tensors[f"{block}/output/kernel"]
            if tensors.get(f"{block}/key/kernel", output.T).shape[-1] < len(output):
                raise InputError(f"heads of layer {layer} share keys and values: take out neurons or layers")
            for name in [name for name in tensors if name.startswith(f"{block}/")]:
                part, _, leaf = name.removeprefix(f"{block}/").partition("/")
                if part != "output" and leaf in ("kernel", "bias"):
                    tensors[name] = tensors[name][..., rows]
                elif not leaf:  # what heads have of their own, such as u and v [N, D]
                    tensors[name] = tensors[name][..., kept, :]
            tensors[f"{block}/output/kernel"] = output[rows]
            counts[layer] = len(kept)
        counts = [counts[0]] * spec.blocks.layers if spec.blocks.share in ("all", "attention") else counts
        heads = self._per_layer(counts, "heads")
        return Cut(spec.derive({"attention.head_size": size, "attention.heads": heads}), tensors)

    def without_neurons(self, removed: Mapping[str, Sequence[int]]) -> "Cut":
        """Network -> neurons (0 to F-1) to take out; the networks of a layer lose equally many.

        Raises:
            InputError: a network or neuron that is not there, all of them, or networks of a layer that would differ.
        """
        spec, tensors = self.spec, dict(self.tensors)
        counts = [spec.per_layer(spec.feedforward.width, i) for i in range(spec.blocks.layers)]
        known = self.networks()
        left: dict[int, set[int]] = {}
        for network in known:
            layer = _layer(network)
            neurons = removed.get(network, ())
            _check(f"neuron of {network}", neurons, counts[layer])
            kept = np.setdiff1d(np.arange(counts[layer]), np.asarray(neurons, int))
            if not kept.size:
                raise InputError(f"{network} would lose all of its {counts[layer]} neurons: keep at least one")
            for name in (f"{network}/{part}/{leaf}" for part in INNER for leaf in ("kernel", "bias")):
                if name in tensors:
                    tensors[name] = tensors[name][..., kept]
            tensors[f"{network}/outer/kernel"] = tensors[f"{network}/outer/kernel"][kept]
            left.setdefault(layer, set()).add(len(kept))
        if unknown := sorted(set(removed) - set(known)):
            raise InputError(f"no feed-forward network {unknown[0]!r}, expected one of {', '.join(known)}")
        for layer, sizes in left.items():
            if len(sizes) > 1:
                raise InputError(f"the networks of layer {layer} would differ in width: take equally many out of each")
            counts[layer] = sizes.pop()
        if spec.blocks.share in ("all", "ffn"):
            counts = [counts[0]] * spec.blocks.layers
        return Cut(spec.derive({"feedforward.width": self._per_layer(counts, "neurons")}), tensors)

    def with_layers(self, kept: Sequence[int]) -> "Cut":
        """Only these layers (0 to L-1), in ascending order; what they share with the first stays.

        Raises:
            InputError: a layer that is not there, none, or one twice.
        """
        spec, total = self.spec, self.spec.blocks.layers
        _check("layer", kept, total)
        kept = sorted(kept)
        if not kept:
            raise InputError(f"all {total} layers would go: keep at least one")
        changes: dict[str, object] = {"blocks.layers": len(kept), "attention.head_size": spec.head_size}
        changes |= {path: tuple(value[i] for i in kept) for path, value in specs.by_layer(spec).items()}
        tensors = {name: value for name, value in self.tensors.items() if not BLOCK.match(name)}
        for name, value in self.tensors.items():
            if match := BLOCK.match(name):
                rest, layer = name[match.end() :], int(match[1])
                if layer in kept:
                    tensors[f"block_{kept.index(layer)}/{rest}"] = value
                elif layer == 0 and not any(f"block_{i}/{rest}" in self.tensors for i in kept):
                    tensors[name] = value  # shared: stored with the first layer
        if MIX in tensors:  # of the embeddings and of every layer
            tensors[MIX] = tensors[MIX][[0, *(i + 1 for i in kept)]]
        return Cut(spec.derive(changes), tensors)

    def _per_layer(self, counts: list[int], what: str) -> int | tuple[int, ...]:
        if len(set(counts)) == 1:
            return counts[0]
        if self.spec.blocks.share != "none":
            raise InputError(
                f"layers would keep {counts} {what}, expected one number: they share weights (blocks.share "
                f"{self.spec.blocks.share!r})"
            )
        return tuple(counts)


def _check(what: str, given: Sequence[int], total: int) -> None:
    for i in given:
        if not isinstance(i, int | np.integer) or not 0 <= i < total:
            raise InputError(f"no {what} has number {i}, expected 0 to {total - 1}")
    if len(set(given)) < len(given):
        raise InputError(f"a {what} is given twice: {', '.join(map(str, sorted(given)))}")
