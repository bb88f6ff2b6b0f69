"""Examples as spans of a shard's ids, and how they become rows.

Legend: N examples, M pieces, S length.
"""

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class Spans:
    """Examples of one or two parts: [CLS] a [SEP] b [SEP] (RoBERTa: two [SEP] in the middle), or [CLS] a [SEP].

    Args:
        ids: int array that the spans refer to.
        a, b: int64 [N, 2], start and end.
        label: int64 [N], what is asked about a pair, 0 = b really follows a (see the packing), or None.
        languages: int64 [N, 2], numbers of the languages of a and b, or None where the rows do not hold them.
    """

    ids: np.ndarray
    a: np.ndarray
    b: np.ndarray
    label: np.ndarray | None
    languages: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.a)

    @property
    def random_next(self) -> int:
        """Of sentence pairs: number of examples with a random next sentence."""
        return 0 if self.label is None else int(self.label.sum())

    def kept(self) -> int:
        """How many of the ids stand in an example at least once."""
        begins, ends = np.concatenate([self.a, self.b]).T
        order = np.argsort(begins, kind="stable")
        reached = np.maximum.accumulate(ends[order])  # how far the spans up to each one go
        before = np.append(0, reached[:-1])
        return int(np.maximum(reached - np.maximum(begins[order], before), 0).sum())

    def slice(self, begin: int, end: int) -> "Spans":
        """Examples begin .. end - 1."""
        label, languages = (x if x is None else x[begin:end] for x in (self.label, self.languages))
        return Spans(self.ids, self.a[begin:end], self.b[begin:end], label, languages)

    def render(self, *, length: int, cls_id: int, sep_id: int, pad_id: int, separators: int = 1) -> np.ndarray:
        """Rows of token ids [S], segment lengths [2] and, where the examples have them, label [1] and languages [2].

        Segment lengths count [CLS] a [SEP] and b [SEP], the latter with what separators stand in front of it (there are
        `separators` between a and b); it is 0 where there is no b.

        Returns:
            int32 [N, S + 2] to [N, S + 5].
        """
        pairs = self.label is not None or bool((self.b[:, 1] > self.b[:, 0]).any())
        len_a, len_b = (part[:, 1] - part[:, 0] for part in (self.a, self.b))
        first = np.arange(len(self)) * length  # where each row begins in the flattened rows
        rows = np.full(len(self) * length, pad_id, np.int32)
        rows[first] = cls_id
        put(rows, first + 1, self.ids, self.a)
        rows[first + len_a + 1] = sep_id
        if pairs:
            for extra in range(1, separators):
                rows[first + len_a + 1 + extra] = sep_id
            put(rows, first + len_a + 1 + separators, self.ids, self.b)
            rows[first + len_a + len_b + 1 + separators] = sep_id
        columns = [len_a + 2, len_b + separators * pairs]
        columns += [] if self.label is None else [self.label]
        columns += [] if self.languages is None else [*self.languages.T]
        return np.concatenate([rows.reshape(-1, length), np.stack(columns, axis=1, dtype=np.int32)], axis=1)


@dataclasses.dataclass(frozen=True)
class Pieces:
    """Examples of several pieces that do not see each other: [CLS] piece [SEP] [CLS] piece [SEP] ...

    Args:
        ids: int array that the pieces refer to.
        spans: int64 [M, 2], start and end of each piece, row after row.
        firsts: int64 [N + 1]: row n has the pieces firsts[n] .. firsts[n + 1] - 1.
    """

    ids: np.ndarray
    spans: np.ndarray
    firsts: np.ndarray
    random_next = 0

    def __len__(self) -> int:
        return len(self.firsts) - 1

    def slice(self, begin: int, end: int) -> "Pieces":
        """Examples begin .. end - 1."""
        firsts = self.firsts[begin : end + 1]
        return Pieces(self.ids, self.spans[firsts[0] : firsts[-1]], firsts - firsts[0])

    def render(self, *, length: int, cls_id: int, sep_id: int, pad_id: int) -> np.ndarray:
        """Rows of token ids [S], segment lengths [2] (all tokens, 0) and the number of pieces [1]: int32 [N, S + 3]."""
        counts = np.diff(self.firsts)
        sizes = self.spans[:, 1] - self.spans[:, 0]
        ends = np.append(0, np.cumsum(sizes + 2))[self.firsts]  # tokens in the rows up to each
        # where each piece begins in the flattened rows
        row = np.repeat(np.arange(len(self)), counts)
        first = np.cumsum(sizes + 2) - sizes - 2 - ends[row] + row * length
        rows = np.full(len(self) * length, pad_id, np.int32)
        rows[first] = cls_id
        put(rows, first + 1, self.ids, self.spans)
        rows[first + sizes + 1] = sep_id
        total = np.diff(ends)
        columns = np.stack([total, np.zeros_like(total), counts], axis=1, dtype=np.int32)
        return np.concatenate([rows.reshape(-1, length), columns], axis=1)


@dataclasses.dataclass(frozen=True)
class Stretches:
    """Examples that are stretches of the ids and nothing else.

    Args:
        ids: int array that the stretches refer to, separators among them.
        spans: int64 [N, 2], start and end of each, at most S tokens.
    """

    ids: np.ndarray
    spans: np.ndarray
    random_next = 0

    def __len__(self) -> int:
        return len(self.spans)

    def slice(self, begin: int, end: int) -> "Stretches":
        """Examples begin .. end - 1."""
        return Stretches(self.ids, self.spans[begin:end])

    def render(self, *, length: int, cls_id: int, sep_id: int, pad_id: int) -> np.ndarray:
        """Rows of token ids [S] and segment lengths [2] (all tokens, 0): int32 [N, S + 2]."""
        rows = np.full(len(self) * length, pad_id, np.int32)
        put(rows, np.arange(len(self)) * length, self.ids, self.spans)
        sizes = self.spans[:, 1] - self.spans[:, 0]
        columns = np.stack([sizes, np.zeros_like(sizes)], axis=1, dtype=np.int32)
        return np.concatenate([rows.reshape(-1, length), columns], axis=1)


Examples = Spans | Pieces | Stretches  # what a packing makes of documents


def put(rows: np.ndarray, places: np.ndarray, ids: np.ndarray, spans: np.ndarray) -> None:
    """Copy spans [M, 2] of the ids to places [M] in the flattened rows.

    A slice each costs less than numbering the tokens and gathering them, down to spans of a few tokens.
    """
    begins, ends = spans.T.tolist()
    for place, begin, end in zip(places.tolist(), begins, ends):
        rows[place : place + end - begin] = ids[begin:end]
