"""Examples as spans of a shard's ids, and how they become rows.

Legend: N examples, M pieces, S length.
"""

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class Spans:
    """Examples of one or two parts: [CLS] a [SEP] b [SEP], or [CLS] a [SEP] where b is empty.

    Args:
        ids: int array that the spans refer to.
        a, b: int64 [N, 2], start and end.
        next_label: int64 [N], 0 = b really follows a, 1 = b is random (Google's and Hugging Face's order), or None.
    """

    ids: np.ndarray
    a: np.ndarray
    b: np.ndarray
    next_label: np.ndarray | None

    def __len__(self) -> int:
        return len(self.a)

    @property
    def random_next(self) -> int:
        """Number of examples with a random next sentence."""
        return 0 if self.next_label is None else int(self.next_label.sum())

    def slice(self, begin: int, end: int) -> "Spans":
        """Examples begin .. end - 1."""
        label = None if self.next_label is None else self.next_label[begin:end]
        return Spans(self.ids, self.a[begin:end], self.b[begin:end], label)

    def render(self, *, length: int, cls_id: int, sep_id: int, pad_id: int) -> np.ndarray:
        """Rows of token ids [S], segment lengths [2] and, for pairs, the next label [1].

        Segment lengths count [CLS] a [SEP] and b [SEP]; the second is 0 where there is no b.

        Returns:
            int64 [N, S + 2] or [N, S + 3].
        """
        pairs = self.next_label is not None
        len_a = (self.a[:, 1] - self.a[:, 0])[:, None]
        len_b = (self.b[:, 1] - self.b[:, 0])[:, None]
        position = np.arange(length)[None, :]
        in_b = position - len_a - 2
        source = np.where(in_b < 0, self.a[:, :1] + position - 1, self.b[:, :1] + in_b)
        rows = self.ids[np.clip(source, 0, len(self.ids) - 1)].astype(np.int64)
        total = len_a + 2 + (len_b + 1 if pairs else 0)
        rows[(position == len_a + 1) | (position == total - 1)] = sep_id
        rows[:, 0] = cls_id
        rows[position >= total] = pad_id
        columns = [rows, len_a + 2, total - len_a - 2]
        if pairs:
            columns.append(self.next_label[:, None])
        return np.concatenate(columns, axis=1)


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
        """Rows of token ids [S], segment lengths [2] (all tokens, 0) and the number of pieces [1]: int64 [N, S + 3]."""
        counts = np.diff(self.firsts)
        rows = np.full((len(counts), length), pad_id, np.int64)
        sizes = self.spans[:, 1] - self.spans[:, 0]
        ends = np.cumsum(sizes + 2)  # among the row's tokens of all rows so far
        begins = np.append(0, ends)[self.firsts[:-1]]
        owner = np.repeat(np.arange(len(counts)), counts)
        first = ends - sizes - 2 - begins[owner] + owner * length  # where each piece begins in the flattened rows
        flat = rows.reshape(-1)
        flat[first] = cls_id
        flat[first + sizes + 1] = sep_id
        within = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        flat[np.repeat(first + 1, sizes) + within] = self.ids[np.repeat(self.spans[:, 0], sizes) + within]
        total = np.diff(np.append(0, ends)[self.firsts])
        return np.concatenate([rows, total[:, None], np.zeros_like(total)[:, None], counts[:, None]], axis=1)
