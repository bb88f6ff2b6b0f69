r"""Raw text -> words, by one rule, the same here, in the graph (`words_graph`) and on the phone. Standard library only.

A word is a run of letters, digits and underscores (`\w` of UTS #18, annex C); every CJK ideograph and every other character
that is no blank is a word by itself. Combining marks, and what BERT drops (controls, format characters such as joiners and
soft hyphens, private use), stay with the character before them. `tables.py` pins the classes: results do not depend on
Python's Unicode version.

>>> [text for text, _, _ in split_words("Zoë's 2 cafés, 東京")]
['Zoë', "'", 's', '2', 'cafés', ',', '東', '京']
"""

from kerasbert.text.added import in_word, is_blank
from kerasbert.text.normalize import TABLES, inside

BLANK, OTHER, LETTER, MARK = range(4)


class _Classes(dict):
    """Character -> class; filled on demand. Ideographs are OTHER: each stands alone."""

    def __missing__(self, character: str) -> int:
        code = ord(character)
        if is_blank(character):
            found = BLANK
        elif inside(code, TABLES.marks) or inside(code, TABLES.drop):
            found = MARK
        else:
            found = LETTER if in_word(character) and not inside(code, TABLES.cjk) else OTHER
        self[character] = found
        return found


CLASSES = _Classes()


def split_words(text: str) -> list[tuple[str, int, int]]:
    """The words of a text, each with the characters where it begins and ends (exclusive)."""
    starts, ends = [], []
    before, classes = BLANK, CLASSES
    for place, character in enumerate(text):
        now = classes[character]
        if now == BLANK:
            if before != BLANK:
                ends.append(place)
        elif before == BLANK or now == OTHER or (now == LETTER and before == OTHER):
            if before != BLANK:
                ends.append(place)
            starts.append(place)
        before = now if now != MARK else before or LETTER
    if before != BLANK:
        ends.append(len(text))
    return [(text[start:end], start, end) for start, end in zip(starts, ends)]
