"""A clause as it stands in a summary: without the marks that only its surroundings made sense of.

Words are never changed, added or left out; what goes is quotation marks, brackets and asterisks that lost their partner,
and the comma, colon or dash that led on to what is not there.
"""

from __future__ import annotations

from services.summaries import text as texts

_CLOSED_BY = {
    '"': '"',
    "“": '”"',
    "„": '“”"',
    "”": "”",
    "‟": "”",
    "«": "»",
    "»": "«",
    "‹": "›",
    "›": "‹",
    "‘": "’",
    "‚": "‘’",
    "「": "」",
    "『": "』",
    "《": "》",
    "〈": "〉",
    "〝": "〞〟",
    "(": ")",
    "[": "]",
    "{": "}",
    "（": "）",
    "［": "］",
    "【": "】",
    "*": "*",
}
_QUOTES = '"“”„‟«»‹›‘‚「」『』《》〈〉〝〞〟'
_EDGE_ONLY = "()[]{}（）［］【】*"
"""They also stand alone ("a) ...", ":)", "5 * 3"): without a partner they go only from the ends of a clause."""

_CLOSERS = frozenset("".join(_CLOSED_BY.values()))
_MARKS = _CLOSERS.union(_CLOSED_BY)
_LEADS_ON = ",;:–—-−·、，；：،؛"
_OPENS = "([{（［【「『《〈〝«‹“„‚¿¡"
_BEFORE_OPENING = _OPENS + "\"'‘–—-/"
_ENDS = ".!?…。！？｡．؟۔।॥։።"

_ROUNDS = 8
_PLAIN = " "


def cleaned(clause: str) -> str:
    """The clause without partnerless marks, leading and trailing commas, colons and dashes, and without quotation marks
    around all of it; "" where nothing else is in it. White space comes out as single spaces."""
    text = texts.one_line(clause)
    for _ in range(_ROUNDS):
        before = text
        text = _trimmed(_paired(text))
        if text == before:
            return text
    return "" if _trimmed(_paired(text)) != text else text


def ends_sentence(text: str) -> bool:
    """Whether the text ends with a mark of its own that ends a sentence, closing quotation marks aside."""
    return text.rstrip("".join(_CLOSERS) + "_~ ")[-1:] in tuple(_ENDS)


def _paired(text: str) -> str:
    """The text without quotation marks that have no partner, and without such brackets at its ends; without the pair of
    quotation marks around all of it."""
    if _MARKS.isdisjoint(text):
        return text
    partner = _partners(text)
    drop = {at for at, mark in enumerate(text) if mark in _QUOTES and at not in partner and mark != "’"}
    first, last = 0, len(text) - 1
    while first <= last and text[first] in _EDGE_ONLY and first not in partner:
        drop.add(first)
        first += 1
    while last >= first and text[last] in _EDGE_ONLY and last not in partner:
        drop.add(last)
        last -= 1
    if partner.get(0) == len(text) - 1 and text[0] in _QUOTES:
        drop |= {0, len(text) - 1}
    return texts.one_line("".join(mark for at, mark in enumerate(text) if at not in drop))


def _partners(text: str) -> dict[int, int]:
    """Positions of paired marks, each with its partner's."""
    waiting: list[int] = []
    found: dict[int, int] = {}
    for at, mark in enumerate(text):
        if mark not in _MARKS:
            continue
        before = text[at - 1] if at else _PLAIN
        after = text[at + 1] if at + 1 < len(text) else _PLAIN
        if mark == "’" and after.isalnum():
            continue
        leads = before.isspace() or before in _BEFORE_OPENING
        # a straight mark between a space and a word opens; all others are told apart by what they are
        opener = _opener(text, waiting, mark) if not (mark in '"*' and leads and after.isalnum()) else None
        if opener is not None:
            found[at], found[waiting[opener]] = waiting[opener], at
            del waiting[opener:]
        elif mark in _CLOSED_BY and not (mark in '"*' and not leads and not after.isalnum()):
            waiting.append(at)
    return found


def _opener(text: str, waiting: list[int], mark: str) -> int | None:
    """Index of the newest of the last few waiting marks that `mark` closes."""
    for index in range(len(waiting) - 1, max(-1, len(waiting) - _ROUNDS), -1):
        if mark in _CLOSED_BY[text[waiting[index]]]:
            return index
    return None


def _trimmed(text: str) -> str:
    text = text.rstrip(_LEADS_ON + _OPENS + " ")
    start = 0
    while start < len(text) and (
        text[start] in " ,;:、，；：،؛" or text[start : start + 2] in ("– ", "— ", "- ")
    ):
        start += 1
    return text[start:]
