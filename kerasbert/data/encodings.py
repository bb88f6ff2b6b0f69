"""The encoding that bytes which are not UTF-8 are probably in: for error messages, not for reading. Standard library only."""

import re

# Code page -> alphabets beyond ASCII, one for each language or group of them. Where the letters are all the text has, the
# commonest come first: a wrong page of the same script gives rare ones.
_LATIN = {
    "cp1252": ("äöüß", "àâçèéêëîïôùûœæ", "áéíñóúü", "àèéìòù", "áâãàçéêíóôõú", "åäöæøé", "áðéíóúýþæö", "éëïöüèê"),
    "cp1250": ("ąćęłńóśźż", "áčďéěíňóřšťúůýžľĺŕôä", "áéíóöőúüű", "ăâîșțşţ", "čćđšž"),
    "iso8859-2": ("ąćęłńóśźż", "áčďéěíňóřšťúůýžľĺŕôä", "áéíóöőúüű", "čćđšž"),
    "cp1254": ("çğıöşüâîİ",),
    "cp1257": ("ąčęėįšųūž", "āčēģīķļņšūž", "äöõüšž"),
    "cp850": ("äöüß", "àâçèéêëîïôùû", "áéíñóúü", "àèéìòù", "áâãàçéêíóôõú", "åäöæøé"),
}
_RUSSIAN, _UKRAINIAN = "оеаинтсрвлкмдпуяыьгзбчйхжшюцщэфъё", "оаниеітврслкудмпябзгьчхйжцїюшєщфґ"
_BULGARIAN, _SERBIAN = "аоиетнрсвлдкпмзбгъучщйцжхшяюфь", "аоиенртсјвукдлмпзгбчшцжћхњљђфџ"
_LETTERS = {
    "cp1251": (_RUSSIAN, _UKRAINIAN, _BULGARIAN, _SERBIAN),
    "koi8-r": (_RUSSIAN,),
    "koi8-u": (_UKRAINIAN,),
    "cp866": (_RUSSIAN,),
    "iso8859-5": (_RUSSIAN, _UKRAINIAN, _SERBIAN),
    "cp1253": ("αοιετσνηυρπκμλςίάόγέθδύήχωώφβξζψϊϋΐΰ",),
    "cp1255": ("יוהלארתבמשנחדעקםפטצגכןזסךףץ",),
    "cp1256": ("اليمنوترةبعدسفكقحهأجشصطخذضىثزغظءإئؤآـپچژگ",),
    "cp874": ("านรอกเงมยลวดทส่ต้ะปบคหแจพชขใไโผ์ิีึืุูัำ็๋ๆธณศถษซภฉญฎฏฐฑฒฆฌฮฝฟ",),
}
# Code -> the first and second bytes of the commoner half of its characters, and how much an even score is worth:
# of two codes that read a text alike the narrower one is likelier.
_PAIRS = {
    "shift_jis": (rb"[\x81-\x83\x88-\x97][\x40-\x7e\x80-\xfc]", 1.0),
    "euc-jp": (rb"[\xa1\xa3-\xa5\xb0-\xcf][\xa1-\xfe]", 0.98),
    "euc-kr": (rb"[\xa1\xa3\xb0-\xc8][\xa1-\xfe]", 0.99),
    "gb18030": (rb"[\xa1\xa3\xb0-\xd7][\xa1-\xfe]", 0.97),
    "big5": (rb"[\xa1\xa4-\xc6][\x40-\x7e\xa1-\xfe]", 0.96),
}
_UTF8 = re.compile(rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}")
_MARKS = frozenset("«»„“”‘’‚–—…§°№·€£´¿¡،؛؟\u200f\u200e")
LEAST = 0.5  # a lower score names nothing


def guess(data: bytes) -> str | None:
    """The likeliest encoding of a sample of text, or None where nothing fits. "utf-8" says that most of it is UTF-8.

    A candidate's score is the share of its characters beyond ASCII that are letters of one of its languages, less those
    where no letter stands: a capital behind a small letter, a Greek one beside a Latin one, a control character.

    >>> guess("Zażółć gęślą jaźń, proszę państwa".encode("cp1250"))
    'cp1250'
    """
    if wide := by_zeros(data):
        return wide
    beyond = sum(byte > 127 for byte in data)
    if not beyond or data.count(0):
        return None
    if sum(len(match.group()) for match in _UTF8.finditer(data)) > 0.5 * beyond:
        return "utf-8"
    scores = {name: _single(data, name, alphabets, True) for name, alphabets in _LATIN.items()}
    scores |= {name: _single(data, name, alphabets, False) for name, alphabets in _LETTERS.items()}
    scores |= {name: _double(data, name, *found) for name, found in _PAIRS.items()}
    best = max(scores, key=scores.__getitem__)
    return best if scores[best] >= LEAST else None


def by_zeros(data: bytes) -> str | None:
    """The UTF-16 or UTF-32 without a byte order mark that a text's zero bytes tell of, or None.

    >>> by_zeros("Text ohne Marke".encode("utf-16-le"))
    'utf-16-le'
    """
    size = len(data) // 4 * 4
    if not size or not data.count(0):
        return None
    zeros = [data[place:size:4].count(0) / (size // 4) for place in range(4)]
    even, odd = zeros[0] + zeros[2], zeros[1] + zeros[3]
    if zeros[3] > 0.9 and zeros[2] > 0.9:
        name = "utf-32-le"
    elif zeros[0] > 0.9 and zeros[1] > 0.9:
        name = "utf-32-be"
    elif max(even, odd) > 0.1 and max(even, odd) > 4 * min(even, odd):
        name = "utf-16-le" if odd > even else "utf-16-be"
    else:
        return None
    text = _decoded(data[:size], name)
    return name if text and all(c.isprintable() or c.isspace() or c == "\ufeff" for c in text) else None


def _decoded(data: bytes, name: str) -> str | None:
    """A sample as text, perhaps without the character that its end cuts; None where it does not decode."""
    try:
        return data.decode(name)
    except UnicodeDecodeError as error:
        return data[: error.start].decode(name) if error.start > max(0, len(data) - 4) else None


def _single(data: bytes, name: str, alphabets: tuple[str, ...], latin: bool) -> float:
    """The score of a code page of one byte a character."""
    text = _decoded(data, name)
    if text is None:
        return -1.0
    points, known = 0.0, {letter for alphabet in alphabets for letter in alphabet}
    counts: dict[str, int] = {}
    before = " "
    for place, c in enumerate(text):
        if c > "\x7f":
            after = text[place + 1 : place + 2]
            letter = c if c in known else c.lower()
            beside = (before.isascii() and before.isalpha()) or (after.isascii() and after.isalpha())
            if letter not in known:
                inside = before.isalpha() and after.isalpha() and c != "’"
                points += 0.6 if c in _MARKS and not inside else 0 if c == "\xa0" else -1
            elif (letter != c and before.islower()) or (beside and not latin):
                points -= 1
            else:
                counts[letter] = counts.get(letter, 0) + 1
        before = c
    beyond = sum(c > "\x7f" for c in text)
    own = max(sum(n * _weight(alphabet, letter, latin) for letter, n in counts.items()) for alphabet in alphabets)
    return (points + own) / max(1, beyond)


def _weight(alphabet: str, letter: str, latin: bool) -> float:
    place = alphabet.find(letter)
    if place < 0:
        return 0.3
    return 1.0 if latin or place < 12 else 0.8 if place < 22 else 0.5


def _double(data: bytes, name: str, common: bytes, worth: float) -> float:
    """The score of a code of two bytes a character."""
    text = _decoded(data, name)
    if text is None:
        return -1.0
    pairs = [match.group() for match in re.finditer(rb"[\x80-\xff][\x00-\xff]", data)]
    share = sum(re.fullmatch(common, pair) is not None for pair in pairs) / max(1, len(pairs))
    kana = sum("\u3040" <= c <= "\u30ff" for c in text)
    odd = sum(
        "\uff61" <= c <= "\uff9f" or "\ue000" <= c <= "\uf8ff" or not (c.isprintable() or c.isspace()) for c in text
    )
    # Japanese is never without kana for long, and the other codes hold it, but hardly ever write it
    wrong = kana == 0 if name in ("shift_jis", "euc-jp") else kana > 0.2 * len(pairs)
    # accented letters of a Latin text stand alone between ASCII letters
    alone = len(re.findall(rb"[A-Za-z][\x80-\xff][A-Za-z]", data)) / max(1, len(pairs))
    return worth * share - odd / max(1, len(pairs)) - 0.5 * wrong - alone
