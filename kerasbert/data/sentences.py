"""Running text -> sentences. Standard library only: the same text gives the same sentences on every machine.

The rule. A sentence ends behind

- 。！？｡ of Chinese and Japanese, wherever they stand;
- a run of the marks . ! ? … ‽ ؟ ۔ । ॥ ። ፧ ၊ ။ ។ ៕ ։ ܀ that white space or the end of the text follows.

Quotation marks and brackets that close right behind such a mark belong to the sentence before it. No sentence ends

- where a small letter follows, quotation marks and opening brackets left out: `"Stop!" he cried.`, `etc. and so on`;
- behind a full stop after a single letter (initials: `J. S. Bach`), a word with a full stop inside (`z.B.`, `U.S.`), a
  known abbreviation (ABBREVIATIONS), or a number of one or two digits (`3. Oktober`, `1. First`). A decimal point has no
  white space behind it.

It costs time linear in the text, at about 40 MB/s; it is no parser, and where it errs a segment holds two sentences or
half a one.
"""

import re

ALWAYS = "。！？｡"
STOPS = ".!?…‽؟۔।॥።፧၊။។៕։܀"
CLOSERS = "\"'”’»›“‘)]}」』）】》〉〞"
ASCII_ENDS = ".!?\"')]} \t\r\n"
OPENERS = "\"'“‘„‚«‹»›”’([{「『（【《〈¿¡-–—*_`"  # a dash may stand between blanks
# before a full stop, in small letters
ABBREVIATIONS = frozenset(
    "mr mrs ms dr prof rev hon st sr jr gen col maj capt lt sgt gov sen rep pres messrs mme mlle mmes mlles "
    "vs cf al fig figs no nos vol vols ch pp ed eds trans viz approx dept est inc ltd co corp bros mt ft ave blvd "
    "jan feb mar apr jun jul aug sep sept oct nov dec mon tue wed thu fri sat sun "
    "hr fr nr str bzw ca evtl ggf usw vgl abb bd hrsg jh geb gest sog inkl "
    "dhr mevr blz art sra srta ud uds pág núm tzn np im ul tj tzv např č dr.h.c им ул гл рис стр см".split()
)
# possessive: a run is read once, whatever stands behind it
_END = re.compile(
    f"([{re.escape(ALWAYS)}])[{re.escape(ALWAYS + CLOSERS)}]*+|[{re.escape(STOPS)}]++[{re.escape(CLOSERS)}]*+"
)
_OPEN = re.compile(f"[{re.escape(OPENERS)}\\s]*+")
_BLANK = re.compile(r"\s*+")
WORD = 24  # characters looked at in front of a full stop


def split_sentences(text: str) -> list[str]:
    """The sentences of a text, without white space around them and none of them empty.

    >>> split_sentences('Dr. Watson paid 3.50. "Really?" asked Holmes. He left.')
    ['Dr. Watson paid 3.50.', '"Really?" asked Holmes.', 'He left.']
    >>> split_sentences("我来了。你呢？「好。」")
    ['我来了。', '你呢？', '「好。」']
    """
    if text.isascii():  # most lines of a corpus with a sentence a line end here: four times as fast
        inside = text.rstrip(ASCII_ENDS)
        if "." not in inside and "!" not in inside and "?" not in inside:
            return [sentence] if (sentence := text.strip()) else []
    found, begin, size = [], 0, len(text)
    for match in _END.finditer(text):
        end = match.end()
        if end == size:
            break
        if match[1] is None:
            after = _BLANK.match(text, end).end()  # pyright: ignore[reportOptionalMemberAccess]  # the empty text matches
            if after == end:
                continue
            first = _OPEN.match(text, after).end()  # pyright: ignore[reportOptionalMemberAccess]  # the empty text matches
            if text[first : first + 1].islower() or (text[match.start()] == "." and _abbreviated(text, match.start())):
                continue
        if sentence := text[begin:end].strip():
            found.append(sentence)
        begin = end
    if sentence := text[begin:].strip():
        found.append(sentence)
    return found


def _abbreviated(text: str, stop: int) -> bool:
    """Whether the full stop at `stop` belongs to the word in front of it."""
    word = text[max(0, stop - WORD) : stop].rsplit(None, 1)[-1:]
    if not word or (stop and text[stop - 1].isspace()):
        return False
    word = word[0].lstrip(OPENERS)
    if word.isdecimal():
        return len(word) <= 2
    return (
        (len(word) == 1 and word.isalpha())
        or ("." in word.strip(".") and not word[0].isdecimal())
        or word.lower() in ABBREVIATIONS
    )
