"""`tree` as TensorFlow operations, for SavedModels: the same entities, the same branches, the same numbers.

The subjects are a trie whose edges, (node, character), are one sorted list of numbers; all places of all texts walk down it at
once. What is found from left to right is what a chain of jumps from the first character reaches; twice as many of its links are
known after each round.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from kerasbert.inputs import Tensor
from kerasbert.text.lexicon import FIRST_WITHOUT_BLANKS, IN_WORD
from kerasbert.text.tree import NONE, Knowledge

BITS = 21  # of a code point


class Belongs(NamedTuple):
    """Of each token the entity in which it begins.

    Args:
        entities: int64, ragged as the tokens; NONE where there is none. numbers: int64 [entities], of each its subject.
    """

    entities: tf.RaggedTensor
    numbers: tf.Tensor


class Hung(NamedTuple):
    """Branches of all rows, and what they hang on.

    Args:
        last: int64 [runs], the last token of each run of an entity's tokens.
        of: int64 [branches], the run of each branch. branch: its number in the graph. sizes: its tokens. row: its row.
    """

    last: tf.Tensor
    of: tf.Tensor
    branch: tf.Tensor
    sizes: tf.Tensor
    row: tf.Tensor


class Grown(NamedTuple):
    """Rows of trees.

    Args:
        packed: name -> int32 [R, W]. places: int32, ragged as the trunks: where each token of a trunk stands in its row.
    """

    packed: dict[str, tf.Tensor]
    places: tf.RaggedTensor


class TreeGraph(tf.Module):
    """The branches of a tokenizer's graph.

    Args:
        knowledge: Knowledge.
    """

    def __init__(self, knowledge: Knowledge) -> None:
        super().__init__(name="trees")
        folded = sorted(knowledge.folded.items())
        self.folded = np.array(folded or [(NONE, NONE)], "int32").T  # code points, and what they count as
        subjects = [subject.translate(knowledge.folded) for subject in knowledge.graph.subjects]
        edges, children, self.ends = _trie(subjects)
        self.edges, self.children = edges, children
        self.longest = max(map(len, subjects), default=0)
        spelled = [knowledge.branches(number) for number in range(len(subjects))]
        branches = [ids for own in spelled for ids, _ in own]
        self.branch_splits = _splits(map(len, spelled))
        self.token_splits = _splits(map(len, branches))
        self.tokens = np.array([i for ids in branches for i in ids], "int32")
        self.in_word = np.array([IN_WORD[chr(code)] for code in range(FIRST_WITHOUT_BLANKS)])

    def belongs(self, codes: tf.RaggedTensor, starts: tf.RaggedTensor) -> Belongs:
        """What `Entities.of` gives of each text.

        Args:
            codes: code points [B, (characters)] int32. starts: of each token its first character, [B, (tokens)].
        """
        begins, ends, numbers = self._find(codes)
        numbers = tf.cast(numbers, tf.int64)
        counts = tf.gather(self.branch_splits, numbers + 1) - tf.gather(self.branch_splits, numbers)
        begins, ends, numbers = (tf.boolean_mask(each, counts > 0) for each in (begins, ends, numbers))
        texts = starts.value_rowids()
        at = tf.cast(starts.flat_values, tf.int64) + tf.gather(codes.row_splits, texts)
        place = tf.searchsorted(begins, at, side="right", out_type=tf.int64) - 1
        known = tf.concat([ends, [0]], 0)  # of none, where there are no entities at all
        inside = (place >= 0) & (at < tf.gather(known, tf.maximum(place, 0)))
        # a token behind a text's last character begins in no other text
        inside &= at < tf.gather(codes.row_splits, texts + 1)
        entities = starts.with_flat_values(tf.where(inside, place, NONE))
        return Belongs(entities.with_row_splits_dtype(tf.int64), numbers)

    def _find(self, codes: tf.RaggedTensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Begins and ends of all entities, int64 characters of all texts counted through, and the numbers of their subjects."""
        flat, splits = codes.flat_values, codes.row_splits
        size = tf.size(flat, tf.int64)
        places = tf.range(size)
        row_ends = tf.gather(splits, codes.value_rowids() + 1)
        inner = tf.concat([self._in_word(flat), [False]], 0)
        # whether a name may begin or end before each character
        first = tf.scatter_nd(splits[:, None], tf.ones_like(splits, tf.bool), [size + 1])
        apart = first | ~(inner & tf.concat([[False], inner[:-1]], 0))
        sources, targets = self.folded
        at = tf.minimum(tf.searchsorted(sources, flat), len(sources) - 1)
        folded = tf.where(tf.gather(sources, at) == flat, tf.gather(targets, at), flat)
        ends, numbers = self._longest(folded, places, row_ends, apart)
        jump = tf.concat([tf.where(numbers >= 0, ends, places + 1), [size]], 0)
        reached = tf.concat([[True], tf.zeros([size], tf.bool)], 0)
        _, reached, _ = tf.while_loop(
            lambda known, _reached, _jump: known <= size,
            lambda known, reached, jump: (2 * known, reached | _moved(reached, jump), tf.gather(jump, jump)),
            (tf.constant(1, tf.int64), reached, jump),
            shape_invariants=(tf.TensorShape([]), tf.TensorShape([None]), tf.TensorShape([None])),
        )
        chosen = reached[:-1] & (numbers >= 0)
        return tf.boolean_mask(places, chosen), tf.boolean_mask(ends, chosen), tf.boolean_mask(numbers, chosen)

    def _in_word(self, flat: tf.Tensor) -> tf.Tensor:
        return tf.gather(self.in_word, tf.minimum(flat, len(self.in_word) - 1)) & (flat < len(self.in_word))

    def _longest(
        self, flat: tf.Tensor, places: tf.Tensor, row_ends: tf.Tensor, apart: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """The end and the subject of the longest name that begins at each character; NONE where none does."""
        starting = tf.boolean_mask(places, apart[:-1])
        none = tf.fill(tf.shape(places), tf.constant(NONE, tf.int32))
        edges = tf.constant(self.edges)

        def deeper(depth: Tensor, begins: Tensor, nodes: Tensor, ends: Tensor, numbers: Tensor) -> tuple:
            here = begins + depth
            there = here < tf.gather(row_ends, begins)
            begins, nodes, here = (tf.boolean_mask(each, there) for each in (begins, nodes, here))
            wanted = tf.bitwise.left_shift(nodes, tf.constant(BITS, tf.int64)) + tf.cast(
                tf.gather(flat, here), tf.int64
            )
            edge = tf.searchsorted(edges, wanted, out_type=tf.int64)
            edge = tf.minimum(edge, max(0, len(self.edges) - 1))
            there = tf.gather(edges, edge) == wanted
            begins, here, edge = (tf.boolean_mask(each, there) for each in (begins, here, edge))
            nodes = tf.gather(tf.constant(self.children), edge)
            found = tf.gather(tf.constant(self.ends), nodes)
            named = (found >= 0) & tf.gather(apart, here + 1)
            at = tf.boolean_mask(begins, named)[:, None]
            ends = tf.tensor_scatter_nd_update(ends, at, tf.boolean_mask(here + 1, named))
            numbers = tf.tensor_scatter_nd_update(numbers, at, tf.boolean_mask(found, named))
            return depth + 1, begins, nodes, ends, numbers

        if not len(self.edges):
            return places + 1, none
        vector = tf.TensorShape([None])
        *_, ends, numbers = tf.while_loop(
            lambda depth, begins, *_: (depth < self.longest) & (tf.size(begins) > 0),
            deeper,
            (tf.constant(0, tf.int64), starting, tf.zeros_like(starting), places + 1, none),
            shape_invariants=(tf.TensorShape([]), vector, vector, vector, vector),
        )
        return ends, numbers

    def _hung(self, belongs: tf.RaggedTensor, numbers: tf.Tensor) -> Hung:
        """The branches of all rows, whether there is room for them or not."""
        splits, rows, own = belongs.row_splits, belongs.value_rowids(), belongs.flat_values
        after = tf.concat([own, [NONE]], 0)[1:]
        ends_row = tf.range(tf.size(rows, tf.int64)) + 1 == tf.gather(splits, rows + 1)
        last = tf.where((own != NONE) & (ends_row | (after != own)))[:, 0]
        number = tf.gather(numbers, tf.gather(own, last))
        branch_splits, token_splits = tf.constant(self.branch_splits), tf.constant(self.token_splits)
        branch = tf.ragged.range(tf.gather(branch_splits, number), tf.gather(branch_splits, number + 1))
        of, branch = branch.value_rowids(), branch.flat_values
        sizes = tf.gather(token_splits, branch + 1) - tf.gather(token_splits, branch)
        return Hung(last, of, branch, sizes, tf.gather(rows, tf.gather(last, of)))

    def sizes(self, belongs: Belongs) -> tf.Tensor:
        """`tree.Entities.size` of each text: int64 [B]."""
        *_, sizes, row = self._hung(*belongs)
        return belongs.entities.row_lengths() + tf.math.unsorted_segment_sum(sizes, row, belongs.entities.nrows())

    def trunks(self, belongs: Belongs, most: tf.Tensor) -> tf.Tensor:
        """`tree.Entities.trunk` of each text, of at most [B] tokens with its branches: int64 [B]."""
        entities, most = belongs.entities, tf.cast(most, tf.int64)
        last, of, _, sizes, row = self._hung(*belongs)
        before = tf.gather(last, of) + 1 - tf.gather(entities.row_splits, row)
        kept = _fitting(sizes, tf.gather(most, row) - before, row, entities.nrows())
        used = tf.math.unsorted_segment_sum(tf.where(kept, sizes, 0), row, entities.nrows())
        return tf.minimum(entities.row_lengths(), most - used)

    def _branch_tokens(self, hung: Hung) -> tuple[tf.RaggedTensor, tf.Tensor, tf.Tensor]:
        """Tokens of the branches that are hung, by number, [branches, (tokens)]; of each token its branch and its place there."""
        splits = tf.constant(self.token_splits)
        tokens = tf.ragged.range(tf.gather(splits, hung.branch), tf.gather(splits, hung.branch + 1))
        of_branch = tokens.value_rowids()
        return tokens, of_branch, tf.range(tf.size(of_branch, tf.int64)) - tf.gather(tokens.row_splits, of_branch)

    def grow(
        self,
        trunks: tf.RaggedTensor,
        segments: tf.RaggedTensor,
        belongs: tf.RaggedTensor,
        numbers: tf.Tensor,
        length: int,
        pad: int,
        width: int | None = None,
    ) -> Grown:
        """What `tree.tree` gives of each row.

        Args:
            trunks, segments, belongs: [R, (tokens)]. numbers: int64 [entities]. length: most tokens of a row.
            pad: of the tokens. width: W; None for that of the longest row.
        """
        splits, rows = trunks.row_splits, trunks.value_rowids()
        own, here = belongs.flat_values, tf.range(tf.size(rows, tf.int64))
        hung = self._kept(trunks, belongs, numbers, length)
        begins, order = _hung_order(here, tf.gather(hung.last, hung.of), hung.sizes)
        tokens, of_branch, within = self._branch_tokens(hung)
        # the run of each token: that of the first last token from there on
        run = tf.searchsorted(hung.last, here, out_type=tf.int64)
        runs, branch_numbers = _numbers_in_rows(hung, rows, trunks.nrows())
        entity = tf.where(own != NONE, tf.gather(tf.concat([runs, [0]], 0), run), 0)
        position, segment = here - tf.gather(splits, rows), segments.flat_values
        at = tf.gather(hung.last, tf.gather(hung.of, of_branch))  # of a branch's token the one that its branch hangs on
        new_splits = tf.gather(tf.concat([begins, [tf.size(order, tf.int64)]], 0), splits)

        def row_of(trunk: tf.Tensor, branches: tf.Tensor) -> tf.RaggedTensor:
            flat = tf.gather(tf.concat([tf.cast(trunk, tf.int64), tf.cast(branches, tf.int64)], 0), order)
            return tf.RaggedTensor.from_row_splits(tf.cast(flat, tf.int32), new_splits, validate=False)

        columns = {
            "token_ids": row_of(trunks.flat_values, tf.gather(tf.constant(self.tokens), tokens.flat_values)),
            "segment_ids": row_of(segment, tf.gather(segment, at)),
            "position_ids": row_of(position, tf.gather(position, at) + 1 + within),
            "branch_ids": row_of(tf.zeros_like(here), tf.gather(branch_numbers, of_branch)),
            "entity_ids": row_of(entity, tf.gather(entity, at)),
        }
        columns["padding_mask"] = tf.ones_like(columns["token_ids"])
        shape = None if width is None else [None, width]
        fill = {"token_ids": pad}
        packed = {name: each.to_tensor(fill.get(name, 0), shape=shape) for name, each in columns.items()}
        places = trunks.with_flat_values(tf.cast(begins - tf.gather(new_splits, rows), tf.int32))
        return Grown(packed, places)

    def _kept(self, trunks: tf.RaggedTensor, belongs: tf.RaggedTensor, numbers: tf.Tensor, length: int) -> Hung:
        """The branches that find room in rows of at most `length` tokens."""
        hung = self._hung(belongs, numbers)
        room = tf.gather(length - trunks.row_lengths(), hung.row)
        kept = _fitting(hung.sizes, room, hung.row, trunks.nrows())
        return Hung(hung.last, *(tf.boolean_mask(each, kept) for each in hung[1:]))


def _hung_order(here: tf.Tensor, under: tf.Tensor, sizes: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Trunks' tokens, each with the tokens of the branches that hang on it behind it.

    Args:
        here: int64 [n], numbers of the trunks' tokens.
        under, sizes: int64 [branches], the token that a branch hangs on, and the number of its own.

    Returns:
        Where each token of a trunk stands among all, int64 [n]; and of all in their order the place in the trunks' tokens
        and, behind them, the branches'.
    """
    grown = tf.math.unsorted_segment_sum(sizes, under, tf.size(here)) + 1
    owner = tf.repeat(here, grown)
    begins = tf.cumsum(grown, exclusive=True)
    of_trunk = tf.range(tf.size(owner, tf.int64)) == tf.gather(begins, owner)
    order = tf.where(of_trunk, owner, tf.size(here, tf.int64) + tf.cumsum(tf.cast(~of_trunk, tf.int64)) - 1)
    return begins, order


def _numbers_in_rows(hung: Hung, rows: tf.Tensor, count: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Numbers within a row from 1, int64: of runs, 0 where a run keeps no branch, and of branches."""
    keeps = tf.math.unsorted_segment_max(tf.ones_like(hung.of), hung.of, tf.size(hung.last)) > 0
    runs = _within(tf.cast(keeps, tf.int64), tf.gather(rows, hung.last), count)
    return tf.where(keeps, runs, 0), _within(tf.ones_like(hung.row), hung.row, count)


def _fitting(sizes: tf.Tensor, limits: tf.Tensor, rows: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """Which branches are kept: those of a row one after the other, each where it fits behind those that are: bool [n].

    Args:
        sizes: int64 [n], tokens. limits: int64 [n], most tokens of the branches up to it. rows: int64 [n], ascending.
    """
    ragged = tf.RaggedTensor.from_value_rowids(sizes, rows, count)
    sizes = ragged.to_tensor(0)
    limits = ragged.with_flat_values(limits).to_tensor(-1)  # where there is none nothing fits

    def next_branch(at: Tensor, used: Tensor, kept: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        fits = used + sizes[:, at] <= limits[:, at]
        return at + 1, used + tf.where(fits, sizes[:, at], 0), tf.concat([kept, fits[:, None]], 1)

    most = tf.shape(sizes)[1]
    begin = (tf.constant(0), tf.zeros([count], tf.int64), tf.zeros([count, 0], tf.bool))
    shapes = (tf.TensorShape([]), tf.TensorShape([None]), tf.TensorShape([None, None]))
    *_, kept = tf.while_loop(lambda at, *_: at < most, next_branch, begin, shape_invariants=shapes)
    return tf.RaggedTensor.from_tensor(kept, lengths=ragged.row_lengths()).flat_values


def _within(values: tf.Tensor, rows: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """Sums of values up to each, within its row: int64 [n], rows ascending."""
    total = tf.cumsum(values)
    before = tf.math.unsorted_segment_sum(values, rows, count)
    return total - tf.gather(tf.cumsum(before, exclusive=True), rows)


def _moved(reached: tf.Tensor, jump: tf.Tensor) -> tf.Tensor:
    """Where what is reached jumps to."""
    targets = tf.boolean_mask(jump, reached)
    return tf.math.unsorted_segment_max(tf.ones_like(targets, tf.int32), targets, tf.size(jump)) > 0


def _splits(lengths: Tensor) -> np.ndarray:
    return np.cumsum([0, *lengths], dtype="int64")


def _trie(subjects: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Edges (node, character) as ascending int64, the node that each leads to, and of each node the subject that ends there."""
    edges: dict[int, int] = {}
    ends = [NONE]
    for number, subject in enumerate(subjects):
        node = 0
        for character in subject:
            key = (node << BITS) + ord(character)
            if key not in edges:
                edges[key] = len(ends)
                ends.append(NONE)
            node = edges[key]
        ends[node] = number if ends[node] == NONE else ends[node]  # of those that are folded to one the first
    keys = np.array(sorted(edges), "int64")
    return keys, np.array([edges[key] for key in keys.tolist()], "int64"), np.array(ends, "int32")
