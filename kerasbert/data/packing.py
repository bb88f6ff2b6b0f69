"""Documents -> examples: sentence pairs (BERT) and full sentences (RoBERTa).

A shard's documents lie in one array of ids, so every part of an example is a span of it; the loops below run over
segments, never over tokens, and `render` copies the spans with numpy.

Legend: T tokens of the shard, G segments, D documents, N examples, S length.
"""

import bisect
import dataclasses
import hashlib
import random
from collections.abc import Callable, Sequence

import numpy as np

from kerasbert.errors import InputError, unknown

SHORT = 0.1  # share of sequences with a random shorter target (Devlin et al., 2019, A.2; BERT's short_seq_prob)
TRIES = 10  # draws of another document for a random next sentence, as in BERT's create_pretraining_data.py


@dataclasses.dataclass(frozen=True)
class Documents:
    """The tokenized documents of one shard, ordered by hash.

    Args:
        ids: int array [T].
        bounds: int64 [G + 1]: segment g is ids[bounds[g] : bounds[g + 1]], never empty.
        firsts: int64 [D + 1]: document d has the segments firsts[d] .. firsts[d + 1] - 1, at least one.
        digests: content hash of each document, D of them.
    """

    ids: np.ndarray
    bounds: np.ndarray
    firsts: np.ndarray
    digests: Sequence[bytes]


@dataclasses.dataclass(frozen=True)
class Spans:
    """Examples as spans of an array of ids: [CLS] a [SEP] b [SEP], or [CLS] a [SEP] where b is empty.

    Args:
        ids: int array that the spans refer to.
        a, b: int64 [N, 2], start and end.
        next_label: int64 [N], 0 = b really follows a, 1 = b is random (Google's and Hugging Face's order), or None.
    """

    ids: np.ndarray
    a: np.ndarray
    b: np.ndarray
    next_label: np.ndarray | None

    def slice(self, begin: int, end: int) -> "Spans":
        """Examples begin .. end - 1."""
        label = None if self.next_label is None else self.next_label[begin:end]
        return Spans(self.ids, self.a[begin:end], self.b[begin:end], label)


def document_random(digest: bytes, seed: int, copy: int) -> random.Random:
    """A generator that depends on the document's content, the seed and the copy alone."""
    words = digest + f"/{seed}/{copy}".encode()
    return random.Random(int.from_bytes(hashlib.sha256(words).digest()[:8], "little"))


def _below(rng: random.Random, n: int) -> int:
    """Uniform in 0 .. n - 1. `randrange` may change between Python versions, `random()` may not."""
    return int(rng.random() * n)


def pack_pairs(documents: Documents, *, length: int, seed: int, dupe_factor: int, sep_id: int) -> Spans:
    """Sentence pairs (Devlin et al., 2019, section 3.1 and A.2; create_instances_from_document of BERT's code).

    Segments are gathered up to a target length and split at a random segment into a and b. In half of the cases, and
    always where there is one segment only, b comes from a random document of the shard; what followed a is used again.

    Differs: BERT draws "short" once per document, here once per sequence, so that 10% of the sequences are short also
    where a document is a whole book.
    """
    bounds, firsts = documents.bounds.tolist(), documents.firsts.tolist()
    room = length - 3
    spans: list[tuple[int, int, int, int, int]] = []
    for copy in range(dupe_factor):
        for index, digest in enumerate(documents.digests):
            rng = document_random(digest, seed, copy)
            first, end = firsts[index], firsts[index + 1]
            while first < end:
                short = rng.random() < SHORT
                target = 2 + _below(rng, room - 1) if short else room
                # The fewest segments that reach the target, or all that are left.
                last = bisect.bisect_left(bounds, bounds[first] + target, first + 1, end)
                split = first + 1 + (_below(rng, last - first - 1) if last - first > 1 else 0)
                is_random = int(last - first == 1 or rng.random() < 0.5)
                a = bounds[first], bounds[split]
                if is_random:
                    other = index
                    for _ in range(TRIES):
                        other = _below(rng, len(firsts) - 1)
                        if other != index:
                            break
                    start = firsts[other] + _below(rng, firsts[other + 1] - firsts[other])
                    wanted = bounds[start] + max(1, target - (a[1] - a[0]))
                    stop = bisect.bisect_left(bounds, wanted, start + 1, firsts[other + 1])
                    b = bounds[start], bounds[stop]
                    first = split
                else:
                    b = bounds[split], bounds[last]
                    first = last
                spans.append((*_cut(rng, a, b, room), is_random))
    table = np.asarray(spans, np.int64).reshape(-1, 5)
    return Spans(documents.ids, table[:, 0:2], table[:, 2:4], table[:, 4])


def _cut(rng: random.Random, a: tuple[int, int], b: tuple[int, int], room: int) -> tuple[int, int, int, int]:
    """Shorten the longer of the two, token by token, from a random end each time (BERT's truncate_seq_pair).

    In closed form: how many tokens each loses is fixed, and of n lost ones a binomial(n, 1/2) number goes in front.
    """
    (a0, a1), (b0, b1) = a, b
    la, lb = a1 - a0, b1 - b0
    if la + lb <= room:
        return a0, a1, b0, b1
    # At equal lengths BERT's code takes from b, so a keeps the odd token.
    keep_a = min(la, max(room - room // 2, room - lb))
    lost_a, lost_b = la - keep_a, lb - (room - keep_a)
    front_a, front_b = (rng.getrandbits(n).bit_count() if n else 0 for n in (lost_a, lost_b))
    return a0 + front_a, a1 - lost_a + front_a, b0 + front_b, b1 - lost_b + front_b


def pack_full(documents: Documents, *, length: int, seed: int, dupe_factor: int, sep_id: int) -> Spans:
    """FULL-SENTENCES (Liu et al., 2019, section 4.2): whole segments in a row, across documents with one more [SEP].

    A segment longer than the room is cut into pieces; no token is lost and none is used twice.
    """
    if dupe_factor != 1:
        raise InputError(f"dupe_factor {dupe_factor} with packing 'full' repeats the same examples: leave it at 1")
    room = length - 2
    count = len(documents.digests)
    # One [SEP] in front of every document but the first: an example that crosses a border is then one span.
    breaks = documents.bounds[documents.firsts[1:-1]]
    ids = np.insert(documents.ids, breaks, sep_id)
    owner = np.repeat(np.arange(count), np.diff(documents.firsts))
    starts = (documents.bounds[:-1] + owner).tolist()
    ends = (documents.bounds[1:] + owner).tolist()
    spans = []
    segment, start = 0, starts[0]
    while segment < len(ends):
        # The segments that end within the room; a span never ends with a separator, for it ends with a segment.
        stop = bisect.bisect_right(ends, start + room, segment)
        if stop == segment:  # not even one: a piece of it
            end = start + room
            spans.append((start, end))
            start = end
            continue
        spans.append((start, ends[stop - 1]))
        segment = stop
        start = starts[segment] if segment < len(starts) else 0
    a = np.asarray(spans, np.int64).reshape(-1, 2)
    return Spans(ids, a, np.zeros_like(a), None)


PACKINGS: dict[str, Callable[..., Spans]] = {"pairs": pack_pairs, "full": pack_full}
SHORTEST = {"pairs": 5, "full": 3}  # special tokens and at least one token in each part


def packing(name: str, length: int) -> Callable[..., Spans]:
    """The packing of that name, after a check of the length.

    Raises:
        InputError: no such packing, or a length it cannot fill.
    """
    if name not in PACKINGS:
        raise unknown("packing", name, PACKINGS, "kerasbert data --help")
    if not SHORTEST[name] <= length <= 65535:
        raise InputError(f"length {length} with packing {name!r}, expected {SHORTEST[name]} to 65535")
    return PACKINGS[name]


def render(spans: Spans, *, length: int, cls_id: int, sep_id: int, pad_id: int) -> np.ndarray:
    """Examples as rows: token ids [S], segment lengths [2] and, for pairs, the next label [1].

    Segment lengths count [CLS] a [SEP] and b [SEP]; the second is 0 where there is no b.

    Returns:
        int64 [N, S + 2] or [N, S + 3].
    """
    pairs = spans.next_label is not None
    len_a = (spans.a[:, 1] - spans.a[:, 0])[:, None]
    len_b = (spans.b[:, 1] - spans.b[:, 0])[:, None]
    position = np.arange(length)[None, :]
    in_b = position - len_a - 2
    source = np.where(in_b < 0, spans.a[:, :1] + position - 1, spans.b[:, :1] + in_b)
    rows = spans.ids[np.clip(source, 0, len(spans.ids) - 1)].astype(np.int64)
    total = len_a + 2 + (len_b + 1 if pairs else 0)
    rows[(position == len_a + 1) | (position == total - 1)] = sep_id
    rows[:, 0] = cls_id
    rows[position >= total] = pad_id
    columns = [rows, len_a + 2, total - len_a - 2]
    if pairs:
        columns.append(spans.next_label[:, None])
    return np.concatenate(columns, axis=1)
