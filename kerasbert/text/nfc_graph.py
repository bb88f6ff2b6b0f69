"""`nfc` in the graph: code points of texts -> composed ones, and the characters in which each begins and ends."""

import numpy as np
import tensorflow as tf

from kerasbert.text.graph import lookup
from kerasbert.text.nfc import STABLE, compositions, decompositions, joining
from kerasbert.text.normalize import TABLES

BITS = 21  # of a code point
MANY = 1 << 20  # more than classes


class Composer(tf.Module):
    """NFC; most texts have no character that it changes, which is looked at first."""

    def __init__(self) -> None:
        super().__init__(name="composer")
        apart, pairs = decompositions(), compositions()
        rows = np.full([len(apart), 4], -1, np.int32)
        for row, parts in zip(rows, apart.values()):
            row[: len(parts)] = parts
        keys = np.array([(first << BITS) + second for first, second in pairs], np.int64)
        codes = np.array([*apart], np.int64)
        with tf.init_scope():
            self._apart, self._rows = lookup(codes, np.arange(len(codes)), -1), tf.constant(rows)
            self._pairs = lookup(keys, [*pairs.values()], -1)
            self._classes = lookup(np.array([*TABLES.classes], np.int64), [*TABLES.classes.values()], 0)
            joins = [*joining()]
            self._joins = lookup(np.array(joins, np.int64), np.ones(len(joins), np.int32), 0)

    def __call__(self, codes: tf.RaggedTensor) -> tuple[tf.RaggedTensor, tf.Tensor, tf.Tensor]:
        """Code points [T, (characters)] int32 -> [T, (n)] int32; starts and ends [n] int64 in the row."""
        flat = codes.flat_values
        splits, rows = codes.row_splits, codes.value_rowids()
        places = tf.range(tf.size(flat, tf.int64)) - tf.gather(splits, rows)
        form, new_splits, starts, ends = tf.cond(
            tf.reduce_any(flat >= STABLE),
            lambda: self._composed(flat, rows, splits, places),
            lambda: (flat, splits, places, places + 1),
        )
        return tf.RaggedTensor.from_row_splits(form, new_splits, validate=False), starts, ends

    def _composed(self, flat: tf.Tensor, rows: tf.Tensor, splits: tf.Tensor, places: tf.Tensor) -> tuple:
        count = tf.size(flat)
        joins = self._joins.lookup(tf.cast(flat, tf.int64)) > 0
        new_row = tf.concat([[True], rows[1:] != rows[:-1]], 0)[:count]
        cluster = tf.cumsum(tf.cast(~joins | new_row, tf.int32)) - 1
        # where each cluster begins and ends
        low, high = tf.math.segment_min(places, cluster), tf.math.segment_max(places, cluster) + 1
        codes, owner = self._sorted(flat, cluster)
        codes, owner = self._pairs_joined(codes, owner)
        # a cluster that stays as it is keeps its places
        firsts = tf.math.segment_min(tf.range(count), cluster)
        sizes = tf.math.segment_sum(tf.ones_like(owner), owner)
        own = tf.math.segment_sum(tf.ones_like(cluster), cluster)
        begin = tf.math.segment_min(tf.range(tf.size(codes)), owner)
        offset = tf.range(tf.size(codes)) - tf.gather(begin, owner)
        old = tf.gather(flat, tf.minimum(tf.gather(firsts, owner) + offset, count - 1))
        same = tf.math.segment_min(tf.cast(old == codes, tf.int32), owner) * tf.cast(sizes == own, tf.int32) > 0
        kept = tf.gather(same, owner)
        starts = tf.where(kept, tf.gather(low, owner) + tf.cast(offset, tf.int64), tf.gather(low, owner))
        ends = tf.where(kept, starts + 1, tf.gather(high, owner))
        row = tf.gather(tf.math.segment_min(rows, cluster), owner)
        return codes, tf.searchsorted(row, tf.range(tf.size(splits, splits.dtype)), out_type=tf.int64), starts, ends

    def _class(self, codes: tf.Tensor) -> tf.Tensor:
        return self._classes.lookup(tf.cast(codes, tf.int64))

    def _sorted(self, flat: tf.Tensor, cluster: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Decomposed, runs of marks by their classes; and the cluster of each."""
        row = self._apart.lookup(tf.cast(flat, tf.int64))[:, None]
        whole = tf.concat([flat[:, None], tf.fill([tf.size(flat), 3], -1)], 1)
        parts = tf.where(row >= 0, tf.gather(self._rows, tf.maximum(row[:, 0], 0)), whole)
        owner = tf.boolean_mask(tf.repeat(cluster, 4), tf.reshape(parts, [-1]) >= 0)
        codes = tf.boolean_mask(tf.reshape(parts, [-1]), tf.reshape(parts, [-1]) >= 0)
        number = self._class(codes)
        first = tf.concat([[True], owner[1:] != owner[:-1]], 0)[: tf.size(owner)]
        run = tf.cumsum(tf.cast((number == 0) | first, tf.int32))
        order = tf.argsort(tf.cast(run, tf.int64) * MANY + tf.cast(number, tf.int64), stable=True)
        return tf.gather(codes, order), owner

    def _pairs_joined(self, codes: tf.Tensor, owner: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Each mark with the character before its run: in rounds, one of each character's."""

        def step(codes: tf.Tensor, owner: tf.Tensor, _: tf.Tensor) -> tuple:
            count, number = tf.size(codes), self._class(codes)
            place = tf.range(count)
            new = tf.concat([[True], owner[1:] != owner[:-1]], 0)[:count]
            starts = (number == 0) | new
            run = tf.cumsum(tf.cast(starts, tf.int32)) - 1
            starter = tf.gather(tf.where(starts)[:, 0], run)
            starter = tf.cast(starter, tf.int32)
            before = tf.concat([[-1], number[:-1]], 0)[:count]
            # a mark behind its character or behind marks of lower classes; a character right behind another
            behind = tf.where(starts, place - 1, starter)
            near = tf.where(starts, (place > 0) & ~new & (before == 0), (place == starter + 1) | (before < number))
            bare = self._class(tf.gather(codes, tf.maximum(behind, 0))) == 0
            key = tf.bitwise.left_shift(tf.cast(tf.gather(codes, tf.maximum(behind, 0)), tf.int64), BITS)
            made = self._pairs.lookup(key + tf.cast(codes, tf.int64))
            fits = near & bare & (made >= 0)
            # the first of each cluster
            first = tf.math.segment_min(tf.where(fits, place, count), owner)
            fits &= place == tf.gather(first, owner)
            targets, taken = tf.boolean_mask(behind, fits), tf.boolean_mask(made, fits)
            codes = tf.tensor_scatter_nd_update(codes, targets[:, None], taken)
            return tf.boolean_mask(codes, ~fits), tf.boolean_mask(owner, ~fits), tf.reduce_any(fits)

        flat = tf.TensorShape([None])
        codes, owner, _ = tf.while_loop(
            lambda _, __, more: more, step, (codes, owner, tf.constant(True)), (flat, flat, tf.TensorShape([]))
        )
        return codes, owner
