"""Attention by groups of heads, where the scores of all heads are more than a core's cache holds.

XNNPACK computes one operator after the other: of 12 heads and 512 tokens each of product, mask, softmax and product reads and
writes 12 MB. The 2 MB of two heads stay in the cache, and the numbers are the same.
"""

import copy
from collections.abc import Sequence

import numpy as np

from ... import tensor_names
from .. import repack
from ..repack import ModelT, OperatorT, SubGraphT, builtin, inputs_of

# Bytes of a group's scores, as a large second-level cache holds them. Half of it takes 3% less of 512 tokens, and 13 ms more to
# open a file of them: LiteRT's time for a graph grows with the square of its tensors.
GROUP = 2 << 20


def apart(blob: bytes) -> bytes:
    """A file whose graphs compute large attentions by groups of heads; the file itself where none is large."""
    model = repack.read(blob)
    if not sum([_Graph(model, graph).split() for graph in model.subgraphs]):
        return blob
    tensor_names.complete(model)
    return repack.write(model)


class _Graph:
    """A subgraph that is changed, with what makes and what reads its tensors."""

    def __init__(self, model: ModelT, graph: SubGraphT) -> None:
        self.model, self.graph, self.kinds = model, graph, repack.schema().BuiltinOperator
        self.source = {int(index): operator for operator in graph.operators for index in operator.outputs}
        self.readers: dict[int, list[OperatorT]] = {int(index): [] for index in graph.outputs}
        for operator in graph.operators:
            for index in inputs_of(operator):
                self.readers.setdefault(index, []).append(operator)
        self.axis = -1  # the constant that says where heads are

    def split(self) -> int:
        """Replace what is large; how many attentions that were."""
        found = [chain for operator in self.graph.operators if (chain := self._attention(operator))]
        replaced = {id(operator) for chain in found for operator in chain[:-1]}
        last = {id(chain[-1]): chain for chain in found}
        operators = []
        for operator in self.graph.operators:
            if id(operator) in last:
                operators += self._apart(last[id(operator)])
            elif id(operator) not in replaced:
                operators.append(operator)
        self.graph.operators = operators
        return len(found)

    def _shape(self, index: int) -> list[int]:
        return repack._sizes(self.graph.tensors[index])

    def _attention(self, softmax: OperatorT) -> list[OperatorT]:
        """Product, what is added to it or multiplied with it, softmax, product: large, of one head size; else nothing."""
        if builtin(self.model, softmax) != self.kinds.SOFTMAX:
            return []
        shape, chain = self._shape(inputs_of(softmax)[0]), [softmax]
        floats = self.graph.tensors[inputs_of(softmax)[0]].type == repack.schema().TensorType.FLOAT32
        if len(shape) != 4 or shape[0] != 1 or min(shape) < 1 or not floats:
            return []
        if groups(shape[1], 4 * shape[2] * shape[3]) < 2:
            return []
        while builtin(self.model, chain[0]) != self.kinds.BATCH_MATMUL:
            before = [self.source.get(index) for index in inputs_of(chain[0])]
            scores = [o for o in before if o is not None and self._shape(int(o.outputs[0])) == shape]
            if len(scores) != 1 or builtin(self.model, scores[0]) not in (
                self.kinds.ADD,
                self.kinds.MUL,
                self.kinds.BATCH_MATMUL,
            ):
                return []
            chain.insert(0, scores[0])
        chain += self.readers.get(int(softmax.outputs[0]), [])
        values = builtin(self.model, chain[-1]) == self.kinds.BATCH_MATMUL and chain[-1] is not chain[0]
        private = all(len(self.readers.get(int(o.outputs[0]), [])) == 1 for o in chain[:-1])
        outside = any(int(o.outputs[0]) in map(int, self.graph.outputs) for o in chain[:-1])
        products = [*inputs_of(chain[0]), *inputs_of(chain[-1])]
        each = all(len(self._shape(index)) == 4 and self._shape(index)[:2] == shape[:2] for index in products)
        return chain if values and private and each and not outside else []

    def _apart(self, chain: Sequence[OperatorT]) -> list[OperatorT]:
        """The operators of a chain for each group of heads, and those that put the groups together."""
        scores, final = self._shape(int(chain[0].outputs[0])), int(chain[-1].outputs[0])
        heads, operators = scores[1], []
        count = groups(heads, 4 * scores[2] * scores[3])
        made = {int(operator.outputs[0]) for operator in chain}
        read = {index for operator in chain for index in inputs_of(operator)} - made
        # what all heads share, such as a mask, stays whole
        cut = {index for index in read if self._shape(index)[1:2] == [heads] and len(self._shape(index)) == 4}
        of_group = {
            index: self._cut(operators, index, count) if index in cut else [index] * count for index in sorted(read)
        }
        of_group |= {index: [self._part(index, heads // count) for _ in range(count)] for index in sorted(made)}
        for group in range(count):
            for operator in chain:
                one = copy.copy(operator)
                one.inputs = np.asarray([of_group[index][group] for index in inputs_of(operator)], np.int32)
                one.outputs = np.asarray([of_group[int(operator.outputs[0])][group]], np.int32)
                operators.append(one)
        self._together(operators, of_group[final], final)
        return operators

    def _part(self, index: int, heads: int) -> int:
        """A tensor as another one, of so many heads."""
        made = repack._computed(self.graph, index, [1, heads, *self._shape(index)[2:]])
        self.graph.tensors[made].buffer = 0  # a bias may be a constant
        return made

    def _cut(self, operators: list[OperatorT], index: int, count: int) -> list[int]:
        """A tensor in so many parts of equal heads."""
        if count == 1:
            return [index]
        parts, options = _step(count), repack.schema().SplitOptionsT()
        options.numSplits = parts
        found = [self._part(index, self._shape(index)[1] // parts) for _ in range(parts)]
        operators.append(repack.new_operator(self.model, "SPLIT", [self._axis(), index], found, options))
        return [each for part in found for each in self._cut(operators, part, count // parts)]

    def _axis(self) -> int:
        if self.axis < 0:
            self.axis = repack._constant(self.model, self.graph, np.asarray([1]))
        return self.axis

    def _together(self, operators: list[OperatorT], parts: list[int], final: int) -> None:
        """Concatenate groups."""
        while len(parts) > 1:
            step, options = _step(len(parts)), repack.schema().ConcatenationOptionsT()
            options.axis, wholes = 1, []
            for begin in range(0, len(parts), step):
                some = parts[begin : begin + step]
                whole = final if step == len(parts) else self._part(some[0], step * self._shape(some[0])[1])
                operators.append(repack.new_operator(self.model, "CONCATENATION", some, [whole], options))
                wholes.append(whole)
            parts = wholes


def groups(heads: int, size: int) -> int:
    """Into how many groups heads go, so that the scores of one are at most GROUP: a divisor of theirs.

    Args:
        size: int, bytes of a head's scores.

    >>> groups(12, 128 * 128 * 4), groups(12, 320 * 320 * 4), groups(12, 512 * 512 * 4), groups(10, 1 << 21), groups(5, 1 << 21)
    (1, 3, 6, 2, 1)
    """
    counts = [count for count in range(1, heads + 1) if heads % count == 0 and _steps(count)]
    return next((count for count in counts if heads // count * size <= GROUP), counts[-1])


def _step(count: int) -> int:
    """How many parts XNNPACK cuts into, or puts together, at once: 4 at most."""
    return next((step for step in (4, 3, 2) if count % step == 0), 0)


def _steps(count: int) -> bool:
    """Whether a number is a product of steps."""
    return count == 1 or (bool(_step(count)) and _steps(count // _step(count)))
