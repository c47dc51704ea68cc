"""Rules and corrections that a user stated, found without a model, word for word (S5).

Three kinds of signs, none of which needs to know the language of the chat: marks that step out of the story (double
parentheses, `OOC:`), openers with a colon ("remember: ..."), and the phrases of cues.yaml.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from schemas.summaries import Rule
from schemas.turns import Role
from services.summaries import text as texts
from services.summaries.cues import cues, fold
from services.summaries.port import SourceMessage

QUOTE_CHARACTERS = 600
"""A longer quote is not kept: it is a text, not a rule."""

QUOTES_PER_MESSAGE = 50
"""Rules are outside of every budget: one message can add only so many."""

_OUT = r"(?:OOC|OOG|ООС|ООГ|HRP|HJ|OFF|out of character)"
_MARKED = re.compile(
    # bounded, and not across another opening mark: a text of opening marks alone is still read in linear time
    r"\(\((?P<a>(?:(?!\(\().){1,600}?)\)\)|（（(?P<b>(?:(?!（（).){1,600}?)））"
    rf"|[\[(（【]\s{{0,4}}{_OUT}\b\s{{0,4}}[:：\-]?\s{{0,4}}(?P<c>[^\[\])）】]{{1,600}})[\])）】]"
    rf"|(?:^|(?<=\n))[ \t]{{0,8}}{_OUT}\s*[:：](?P<d>[^\n]+)"
    r"|(?:^|(?<=\n))[ \t]{0,8}//\s*(?P<e>[^\n]+)",
    re.IGNORECASE | re.DOTALL,
)
_PHRASE_END = re.compile(
    r"(?<=[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff”»\"])\s+(?=[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff])"
)
_COLON = re.compile(r"\s*[:：]\s*\S")
_QUESTION = re.compile(r"[?？؟;]\s*[\"'»”’)）\]】*]*$")
_SPEECH = re.compile(r"\"[^\"\n]{1,400}\"|“[^”\n]{1,400}”|„[^“”\n]{1,400}[“”]|«[^»\n]{1,400}»")
_LEAD = re.compile(r"[\s\"'“„«*_¡¿(\[（-]*")


def find_rules(messages: Sequence[SourceMessage]) -> tuple[Rule, ...]:
    """The rules in the messages of role `user`, in order, each quote once. Every quote is a literal piece of its
    message: a marked passage, or one or two whole sentences."""
    found: dict[str, Rule] = {}
    for message in messages:
        if message.role is Role.user:
            for quote in quotes(message.text):
                found.setdefault(
                    texts.one_line(quote), Rule(quote=quote, message_id=message.id, author=message.author)
                )
    return tuple(found.values())


def is_quote_of(quote: str, message_text: str) -> bool:
    """Whether the quote is literally in the text, white space aside."""
    return literal_quote(quote, message_text) is not None


def literal_quote(quote: str, message_text: str) -> str | None:
    """The quote as it stands in the text, with the text's own white space; None where it is not in it."""
    if quote and quote.strip() and quote in message_text:
        return quote
    parts = quote.split()
    if not parts:
        return None
    match = re.search(r"\s+".join(map(re.escape, parts)), message_text)
    return match.group() if match else None


def quotes(text: str) -> list[str]:
    """The rules in one text, in order, as literal pieces of it; the first QUOTES_PER_MESSAGE."""
    spans = [match.span() for match in _MARKED.finditer(text) if _says_something(_inner(match))]
    spans = [span for start, end in spans for span in texts.trimmed(text, start, end)]
    marked = [match.span() for match in _MARKED.finditer(text)]
    spans.extend(_by_cue(text, marked))
    found = [text[start:end] for start, end in _disjoint(sorted(spans)) if end - start <= QUOTE_CHARACTERS]
    return found[:QUOTES_PER_MESSAGE]


def _inner(match: re.Match[str]) -> str:
    return next(group for group in match.groups() if group is not None)


def _says_something(passage: str) -> bool:
    """Whether a marked passage is more than a call or a question ("((brb))", "OOC: are you there?")."""
    return not _QUESTION.search(passage) and not _is_short(passage, words=3, characters=6)


def _by_cue(text: str, marked: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Ranges of sentences with a cue outside of marked passages and of what somebody is quoted to have said."""
    folded = fold(text)
    speech = [match.span() for match in _SPEECH.finditer(text)]
    whole = len(speech) == 1 and speech[0][0] <= 1 and speech[0][1] >= len(text.rstrip()) - 1
    closed = [*marked, *([] if whole else speech)]
    for (start, end), following in _with_next(_statements(text, folded)):
        if _QUESTION.search(text, start, end):
            continue
        cue = _cue(folded, start, end)
        if cue is None or any(first <= cue.at < last for first, last in closed):
            continue
        if cue.complete:
            yield start, end
        elif following is not None:
            # "That's wrong." says nothing without the sentence after it
            yield start, following[1]


def _statements(text: str, folded: str) -> list[tuple[int, int]]:
    """Sentences; where a script ends them with a mere space (Thai), also what begins with an opener or a correction."""
    lists = cues()
    found: list[tuple[int, int]] = []
    for start, end in texts.sentences(text):
        for space in _PHRASE_END.finditer(text, start, end):
            at = space.end()
            opener = lists.opener.match(folded, at, end)
            if (opener and _COLON.match(text, opener.end(), end)) or lists.correction.match(folded, at, end):
                found.append((start, space.start()))
                start = at
        found.append((start, end))
    return found


class _Cue(NamedTuple):
    """Where a cue is, and whether its sentence says more than the cue does."""

    at: int
    complete: bool


def _cue(text: str, start: int, end: int) -> _Cue | None:
    """The cue of a sentence in folded text; None where it has none."""
    lists = cues()
    lead = _LEAD.match(text, start, end)
    first = lead.end() if lead else start
    opener = lists.opener.match(text, first, end)
    if opener and _COLON.match(text, opener.end(), end):
        return _Cue(first, True)
    rule = lists.rule.search(text, first, end)
    if rule is None:
        rule = lists.command.match(text, first, end)
    correction = lists.correction.match(text, first, end)
    if correction:
        rest = text[correction.end() : end]
        whole = text[first:end]
        more = not _is_short(rest, words=2, characters=3) or (
            not _is_short(whole, words=4, characters=6) and not _is_short(rest, words=1, characters=1)
        )
        return _Cue(first, rule is not None or more)
    return _Cue(rule.start(), True) if rule else None


def _with_next(spans: Sequence[tuple[int, int]]) -> Iterator[tuple[tuple[int, int], tuple[int, int] | None]]:
    for at, span in enumerate(spans):
        yield span, spans[at + 1] if at + 1 < len(spans) else None


def _is_short(text: str, *, words: int, characters: int) -> bool:
    unspaced = sum(end - start for start, end in texts.unspaced_runs(text))
    if unspaced:
        return unspaced < characters
    return sum(1 for _ in texts.words(text)) < words


def _disjoint(spans: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    last = -1
    for start, end in spans:
        if start >= last:
            yield start, end
            last = end
