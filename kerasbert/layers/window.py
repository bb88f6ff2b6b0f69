"""Attention within a sliding window, with a few global tokens (Beltagy et al., 2020, section 3.1).

Two forms compute the same: the mask form, full scores and-ed with a visibility, is the reference; the banded form cuts a row
into chunks of half a window, whose queries see their own chunk and both neighbours, so that time and memory grow with the
length and not with its square. It is made of pad, reshape and concat: no gather, no scatter, no shape that depends on values.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from keras import ops
from keras.backend import standardize_dtype

from kerasbert.inputs import Shape, Tensor
from kerasbert.layers import visibility
from kerasbert.layers.attention import Attention, attention_weights
from kerasbert.layers.backend import choose, pick, project, reshape
from kerasbert.layers.feedforward import Linear
from kerasbert.layers.readout import Queries
from kerasbert.storage.json_view import Json

LOCAL = ("query", "key", "value")
GLOBAL = ("query_global", "key_global", "value_global")


def window(rows: Tensor, length: Tensor, width: int, dilation: int = 1) -> Tensor:
    """A token sees those within its window: -> [B or 1, Q, K] bool.

    Args:
        rows: int [B or 1, Q], where the queries stand.
        length: int K.
        width: int w, even: w/2 tokens to each side, and itself.
        dilation: int d, sees every d-th token alone (section 3.1, "Dilated Sliding Window").

    >>> window(ops.array([[0, 3]]), 5, 2).numpy().astype(int).tolist()
    [[[1, 1, 0, 0, 0], [0, 0, 1, 1, 1]]]
    """
    distance = ops.abs(ops.expand_dims(rows, 2) - ops.expand_dims(ops.expand_dims(ops.arange(length), 0), 0))
    near = ops.less_equal(distance, width // 2 * dilation)
    return near if dilation == 1 else ops.logical_and(near, ops.equal(distance % dilation, 0))


@dataclasses.dataclass(frozen=True, eq=False)
class Pattern:
    """Who may look at whom, all but the window: what a WindowAttention is told as `scoring`, the same for all layers.

    A global token sees all that `real`, `pieces`, `causal` and `matrix` allow; any other sees the window and the global ones
    of it. Padding sees nothing.

    Args:
        length: int S, or a scalar tensor.
        real: bool [B, S], True = a real token; None where all are.
        pieces: int [B, S], of packed rows: tokens of one number see each other alone, 0 is padding.
        marked: bool [B, S], the global tokens; None for the first `most`.
        most: int G: the first G tokens alone may be global.
        causal: bool, whether a token sees only itself and those before it.
        matrix: bool [B, S, S], True = may look.
        dense: bool, whether the mask form is asked for.
    `kept` holds what layers of equal windows share.
    """

    length: int | Tensor
    real: Tensor | None = None
    pieces: Tensor | None = None
    marked: Tensor | None = None
    most: int = 0
    causal: bool = False
    matrix: Tensor | None = None
    dense: bool = False
    kept: dict = dataclasses.field(default_factory=dict)

    def once(self, make: Callable[..., Tensor], *key: Queries | int) -> Tensor:
        """`make(*key)`, one for all layers that ask alike."""
        if any(map(_positions, key)):
            return make(*key)
        name = (make.__name__, *key)
        if name not in self.kept:
            self.kept[name] = make(*key)
        return self.kept[name]

    @property
    def globals(self) -> Tensor:
        """The global tokens: bool [B or 1, S]."""
        marked = ops.expand_dims(ops.less(ops.arange(self.length), self.most), 0)
        if self.marked is not None:
            marked = ops.logical_and(marked, self.marked)
        return marked if self.real is None else ops.logical_and(marked, self.real)

    def allowed(self, queries: Queries | int) -> Tensor:
        """bool [B or 1, Q or 1, S]: what a global token may look at; None where that is everything.

        Args:
            queries: which rows: None for all, int for the first ones, "first" or int [B, P].
        """
        real = None if self.real is None else visibility.padding(self.real)
        pieces = None
        if self.pieces is not None:
            pieces = ops.equal(ops.expand_dims(rows_of(self.pieces, queries), 2), ops.expand_dims(self.pieces, 1))
        earlier = None
        if self.causal:
            place = ops.expand_dims(ops.expand_dims(ops.arange(self.length), 0), 0)
            earlier = ops.less_equal(place, ops.expand_dims(self.places(queries), 2))
        matrix = None if self.matrix is None else rows_of(self.matrix, queries)
        return visibility.both(real, pieces, earlier, matrix)

    def places(self, queries: Queries | int) -> Tensor:
        """Where the queries stand: int [B or 1, Q]."""
        return queries if _positions(queries) else rows_of(ops.expand_dims(ops.arange(self.length), 0), queries)

    def rows(self, queries: Queries | int, width: int | None = None, dilation: int = 1) -> tuple[Tensor, Tensor]:
        """What the mask form needs of some rows: the additive bias, and which of them see something.

        Args:
            queries: as of `allowed`.
            width: int w of rows that see their window and the global tokens; None of those that are global.

        Returns:
            float32 [B or 1, 1, Q or 1, S] or None, bool [B or 1, Q] or None where all do.
        """
        near = None
        if width is not None:
            near = window(self.places(queries), self.length, width, dilation)
            near = ops.logical_or(near, ops.expand_dims(self.globals, 1)) if self.most else near
        visible = visibility.both(near, self.allowed(queries))
        there = None if self.real is None else rows_of(self.real, queries)
        if self.matrix is not None:  # a real token sees itself, unless a matrix says otherwise
            some = ops.any(visible, axis=-1)
            there = some if there is None else ops.logical_and(there, some)
        return None if visible is None else visibility.bias(visible), there

    def band(self, width: int) -> Tensor:
        """The additive bias of the banded form: float32 [B or 1, n, 1, c, 3c + G], c = w/2.

        A global token in the window is hidden there: it is seen once, among the G columns at the end.
        """
        size = width // 2
        row, column = np.arange(size)[:, None] + size, np.arange(3 * size)[None]
        near = np.abs(row - column) <= size
        visible = ops.convert_to_tensor((near & (column <= row) if self.causal else near).astype("float32"))
        is_global = ops.cast(self.globals, "float32")
        seen = ops.ones_like(is_global) if self.real is None else ops.cast(self.real, "float32")
        seen = seen - is_global if self.most else seen
        visible = visible * ops.expand_dims(three(chunks(seen, size, 1)), 2)
        columns = ops.expand_dims(ops.expand_dims(is_global[:, : self.most], 1), 1)  # [B, 1, 1, G]
        if self.pieces is not None:
            own = ops.expand_dims(chunks(self.pieces, size, 0), 3)  # [B, n, c, 1]
            visible = visible * _same(own, ops.expand_dims(three(chunks(self.pieces, size, 1)), 2))
            columns = columns * _same(own, ops.expand_dims(ops.expand_dims(self.pieces[:, : self.most], 1), 1))
        if self.causal and self.most:
            place = ops.expand_dims(chunks(self.places(None), size, 0), 3)
            columns = columns * ops.cast(ops.less_equal(ops.arange(self.most), place), "float32")
        if self.most:
            every = columns * ops.ones_like(visible[..., :1])
            visible = ops.concatenate([visible, every], axis=-1)
        return ops.expand_dims((1.0 - visible) * visibility.HIDDEN, 2)


class WindowAttention(Attention):
    """Multi-head attention within a window, with G global tokens at the beginning of a row.

    What a global token asks has projections of its own, and it sees the whole row through them; any other token sees those of
    its window and the global tokens, these by the ordinary keys and values, once.

    Args:
        heads, head_size, dropout, initializer, output_initializer, use_bias: of Attention.
        window: int w, even.
        dilation: int d; above 1 there is the mask form alone, as no released model has it.
    Call: as Attention's, with `scoring` a Pattern; `bias` is not read. The probabilities are [B, N, Q, K] in the mask form
        alone, of the banded form [B, n, N, c, 3c + G].
    Trainable weights: 7*H*N*D + 6*N*D + H.
    """

    def __init__(self, *args: Any, window: int = 512, dilation: int = 1, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.window, self.dilation = window, dilation

    def build(self, shape: Shape) -> None:
        super().build(shape)
        kwargs = {"use_bias": self.use_bias, "dtype": self.dtype_policy}
        *deviations, _ = self.deviations(shape)
        for name, deviation in zip(GLOBAL, deviations):
            setattr(self, name, Linear(self.heads * self.head_size, deviation, name=name, **kwargs))
            getattr(self, name).build(shape)

    def call(
        self,
        x: Tensor,
        bias: Tensor = None,
        source: Tensor = None,
        value: Tensor = None,
        training: bool = False,
        scoring: Any = None,
        queries: Queries = None,
        **at: Any,
    ) -> tuple[Tensor, Tensor]:
        pattern = Pattern(ops.shape(x)[1]) if scoring is None else scoring
        source, most = x if source is None else source, pattern.most
        dense = self.in_full(pattern, queries)
        if dense and queries is not None and not _positions(queries) and most and pattern.marked is None:
            y, probabilities = self.full(x, source, GLOBAL, pattern.once(pattern.rows, 1), self.drawn(x, training))
            return self.output_projection(y), probabilities
        if dense:
            told = pattern.once(pattern.rows, queries, self.window, self.dilation)
            y, probabilities = self.full(x, source, LOCAL, told, self.drawn(x, training))
        else:
            y, probabilities = self.banded(source, pattern, self.drawn(x, training))
        if most:  # the first tokens once more, as global ones: their dropout is the layer's second
            alone = dense and queries is not None
            first, rows = (x, queries) if alone else (source[:, :most], most)
            told = pattern.once(pattern.rows, rows)
            theirs, weights = self.full(first, source, GLOBAL, told, self.drawn(x, training))
            chosen = None if pattern.marked is None and not _positions(rows) else rows_of(pattern.globals, rows)
            y = _merged(y, theirs, chosen, 1, alone)
            probabilities = _merged(probabilities, weights, chosen, 2, alone) if dense else probabilities
        return self.output_projection(y if dense else rows_of(y, queries)), probabilities

    def drawn(self, x: Tensor, training: bool) -> Tensor:
        """The key of the next dropout."""
        return self.dropout.key(x, training)

    def in_full(self, pattern: Pattern, queries: Queries) -> bool:
        """Whether the mask form is taken: it is asked for, alone possible, or not dearer."""
        if pattern.dense or pattern.matrix is not None or self.dilation > 1 or isinstance(queries, str):
            return True
        length, size = pattern.length, self.window // 2
        rows = length if queries is None else queries.shape[1]
        if not isinstance(length, int) or rows is None:
            return queries is not None
        return rows * length <= -(-length // size) * size * 3 * size

    def full(self, x: Tensor, source: Tensor, maps: tuple[str, ...], told: tuple, key: Tensor) -> tuple[Tensor, Tensor]:
        """The mask form by three of the layer's maps.

        Args:
            x, source: [B, Q, H] and [B, S, H].
            told: the bias, and which rows see something, as `Pattern.rows` gives them.
            key: of dropout.

        Returns:
            y [B, Q, N*D], probabilities [B, N, Q, S] float32.
        """
        bias, there = told
        query, key_map, value_map = (getattr(self, name) for name in maps)
        query, dtype = self.split(query(x)), standardize_dtype(x.dtype)
        few = self.few(x, key_map, value_map)
        value = None if few else self.split(value_map(source))
        scores = self.scores_of_few(query, source, key_map) if few else self.scores(query, self.split(key_map(source)))
        weights = attention_weights(scores, bias, key, rate=self.rate, dtype=dtype)
        plain = weights if key is None else attention_weights(scores, bias, None, rate=0.0, dtype=dtype)
        y = self.values_of_few(weights, source, value_map) if few else ops.matmul(weights, value)
        y = ops.transpose(y, (0, 2, 1, 3))
        y = reshape(y, (*ops.shape(y)[:2], self.heads * self.head_size))
        plain = ops.cast(plain, "float32")
        if there is None:
            return y, plain
        return y * _spread(there, y, 1), plain * _spread(there, plain, 2)

    def few(self, x: Tensor, *maps: Linear) -> bool:
        """Whether the queries are so few that the maps of keys and values cost less at their side: q (x W)^T = (q W^T) x^T."""
        rows = x.shape[1]
        quantized = any(each.quantizer is not None for each in maps)  # it knows products with x alone
        return rows is not None and not quantized and 2 * rows * self.heads <= x.shape[2]

    def scores_of_few(self, query: Tensor, source: Tensor, key: Linear) -> Tensor:
        """`scores` of few queries: [B, N, Q, D], [B, S, H] -> [B, N, Q, S]."""
        query = query * ops.cast(self.head_size**-0.5, query.dtype)
        count, units = query.shape[2], self.heads * self.head_size
        tiled = ops.tile(
            query, (1, 1, 1, self.heads)
        )  # of each head its D numbers N times, of which one place is its own
        own = ops.reshape(self.own(query.dtype), (self.heads, 1, units))
        apart = ops.reshape(tiled * own, (-1, self.heads * count, units))
        turned = project(apart, ops.transpose(ops.cast(key.merged(), query.dtype)))  # [B, N*Q, H]
        scores = ops.transpose(ops.matmul(source, ops.transpose(turned, (0, 2, 1))), (0, 2, 1))
        if key.bias is not None:  # one number for all keys of a query
            scores = scores + ops.matmul(apart, ops.expand_dims(ops.cast(key.bias, query.dtype), 1))
        return reshape(scores, (ops.shape(scores)[0], self.heads, count, ops.shape(source)[1]))

    def values_of_few(self, weights: Tensor, source: Tensor, value: Linear) -> Tensor:
        """What few queries get: weights [B, N, Q, S], [B, S, H] -> [B, N, Q, D]."""
        count = weights.shape[2]
        flat = reshape(weights, (ops.shape(weights)[0], self.heads * count, ops.shape(weights)[3]))
        mixed = project(ops.matmul(flat, source), ops.cast(value.merged(), source.dtype))  # [B, N*Q, N*D]
        if value.bias is not None:
            mixed = mixed + ops.sum(flat, axis=-1, keepdims=True) * ops.cast(value.bias, mixed.dtype)
        mixed = ops.reshape(mixed, (-1, self.heads, count, self.heads, self.head_size))
        own = ops.reshape(self.own(mixed.dtype), (self.heads, 1, self.heads, self.head_size))
        return ops.sum(mixed * own, axis=3)

    def own(self, dtype: str) -> Tensor:
        """Which of N*D numbers are of each head: 0 or 1 [N, N*D]."""
        return ops.convert_to_tensor(np.kron(np.eye(self.heads), np.ones(self.head_size)), dtype)

    def banded(self, x: Tensor, pattern: Pattern, key: Tensor) -> tuple[Tensor, Tensor]:
        """The banded form: x [B, S, H] -> (y [B, S, N*D], probabilities [B, n, N, c, 3c + G])."""
        size, most = self.window // 2, pattern.most
        scale = ops.cast(self.head_size**-0.5, self.compute_dtype)
        query = self.parts(self.query(x) * scale, size, 0, (0, 1, 3, 2, 4))  # [B, n, N, c, D]
        keys, value = self.key(x), self.value(x)
        n, beside = ops.shape(query)[1], {}
        if most:
            beside = {
                "key": self.repeated(keys[:, :most], n, (0, 2, 3, 1)),
                "value": self.repeated(value[:, :most], n, (0, 2, 1, 3)),
            }
        key_columns = three(self.parts(keys, size, 1, (0, 1, 3, 4, 2)), 4, beside.get("key"))  # [B, n, N, D, 3c + G]
        value_rows = three(self.parts(value, size, 1, (0, 1, 3, 2, 4)), 3, beside.get("value"))  # [B, n, N, 3c + G, D]
        scores = ops.matmul(query, key_columns)
        bias = pattern.once(pattern.band, self.window)
        weights = attention_weights(scores, bias, key, rate=self.rate, dtype=standardize_dtype(value.dtype))
        y = ops.transpose(ops.matmul(weights, value_rows), (0, 1, 3, 2, 4))
        shape = ops.shape(y)
        y = ops.reshape(y, (shape[0], shape[1] * size, self.heads * self.head_size))[:, : pattern.length]
        if pattern.real is not None:
            y = y * _spread(pattern.real, y, 1)
        return y, weights

    def parts(self, x: Tensor, size: int, beside: int, order: tuple[int, ...]) -> Tensor:
        """[B, S, N*D] -> chunks with their heads, [B, n, c, N, D] in another order of axes."""
        x = chunks(x, size, beside)
        shape = (*ops.shape(x)[:3], self.heads, self.head_size)
        return ops.transpose(reshape(x, shape), order)

    def repeated(self, x: Tensor, count: int | Tensor, order: tuple[int, ...]) -> Tensor:
        """[B, G, N*D] -> the same for each of `count` chunks, [B, n, ...] with [B, G, N, D] in another order of axes."""
        x = ops.transpose(reshape(x, (*ops.shape(x)[:2], self.heads, self.head_size)), order)
        # a product, for XNNPACK has no broadcast: the graph would fall in two
        return ops.expand_dims(x, 1) * ops.ones((count, 1, 1, 1), x.dtype)

    def get_config(self) -> Json:
        return {**super().get_config(), "window": self.window, "dilation": self.dilation}


def chunks(x: Tensor, size: int, beside: int) -> Tensor:
    """[B, S, ...] -> [B, n, c, ...], n = ceil(S/c) chunks filled up with zeros, and `beside` chunks of zeros at each end."""
    length, rest = ops.shape(x)[1], x.shape[2:]
    known, edges = isinstance(length, int), [[0, 0]] * len(rest)
    n = -(-length // size) if known else (length + size - 1) // size
    # a length that is not known yet: as much as it may take, then cut
    behind = n * size - length if known else size - 1
    x = ops.pad(x, [[0, 0], [beside * size, beside * size + behind], *edges])
    x = x if known else x[:, : (n + 2 * beside) * size]
    return reshape(x, (ops.shape(x)[0], n + 2 * beside, size, *rest))


def three(x: Tensor, axis: int = 2, beside: Tensor | None = None) -> Tensor:
    """Chunks [B, n + 2, ...] -> each between its neighbours, side by side on `axis` (as it is in x): n of them.

    Args:
        beside: what stands behind each, [B, n, ...].
    """
    more = [] if beside is None else [beside]
    return ops.concatenate([x[:, :-2], x[:, 1:-1], x[:, 2:], *more], axis=axis)


def rows_of(x: Tensor, queries: Queries | int) -> Tensor:
    """Rows of [B or 1, S, ...]: all for None, the first ones for an int, the first for "first", those of int [B, P]."""
    if queries is None:
        return x
    if not _positions(queries):
        return x[:, : 1 if isinstance(queries, str) else queries]
    if len(x.shape) == 3 and x.dtype != "bool":
        return pick(x, queries)
    return choose(ops.broadcast_to(x, (ops.shape(queries)[0], *ops.shape(x)[1:])), queries)


def _positions(queries: Queries | int) -> bool:
    return not (queries is None or isinstance(queries, str | int))


def _same(one: Tensor, other: Tensor) -> Tensor:
    return ops.cast(ops.equal(one, other), "float32")


def _spread(rows: Tensor, x: Tensor, axis: int) -> Tensor:
    """bool [B, Q] -> 0 or 1, what multiplies x, whose queries are on `axis`."""
    rows = ops.cast(rows, x.dtype)
    for _ in range(len(x.shape) - axis - 1):
        rows = ops.expand_dims(rows, -1)
    for _ in range(axis - 1):
        rows = ops.expand_dims(rows, 1)
    return rows


def _merged(y: Tensor, theirs: Tensor, chosen: Tensor, axis: int, whole: bool) -> Tensor:
    """y with rows of global tokens in the place of those that they have as others.

    Args:
        y: of all queries, on `axis`. theirs: of them (`whole`), or of the first ones.
        chosen: bool [B or 1, as theirs], which are global; None for all of theirs.
    """
    head, tail = y, None
    if not whole and (count := ops.shape(theirs)[axis]) != y.shape[axis]:
        head, tail = (y[:, :count], y[:, count:]) if axis == 1 else (y[:, :, :count], y[:, :, count:])
    if chosen is not None:
        share = _spread(chosen, y, axis)
        theirs = head * (1 - share) + theirs * share
    return theirs if tail is None else ops.concatenate([theirs, tail], axis=axis)
