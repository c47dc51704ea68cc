"""What a model answers, and the body that is made of it: checked against the messages, never taken on trust."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from pydantic import BaseModel

from schemas.summaries import Body, Rule, TimelineLine
from schemas.turns import Role
from services.summaries.port import SourceMessage
from services.summaries.rules import literal_quote


class Line(BaseModel):
    """A timeline line with the numbers of its first and last message."""

    text: str
    first: int
    last: int


class Quote(BaseModel):
    """A rule of the user and the number of the message that states it."""

    quote: str
    message: int


class Told(BaseModel):
    """What a merge or a compression answers."""

    timeline: list[Line]
    promises: list[str]
    facts: list[str]
    state: list[str]


class ChunkTold(Told):
    """What a chunk's summary answers."""

    rules: list[Quote]


def body_of(told: Told, first_seq: int, last_seq: int) -> Body:
    """The body without rules: lines in order, their spans within the range, nothing empty, nothing twice."""
    lines = []
    for line in told.timeline:
        text = _one_line(line.text)
        first, last = sorted(min(max(seq, first_seq), last_seq) for seq in (line.first, line.last))
        if text:
            lines.append(TimelineLine(text=text, first_seq=first, last_seq=last))
    lines.sort(key=lambda line: line.first_seq)
    return Body(
        timeline=tuple({line.text: line for line in lines}.values()),
        promises=_distinct(told.promises),
        facts=_distinct(told.facts),
        state=_distinct(told.state),
    )


def rules_of(quotes: Iterable[Quote], messages: Sequence[SourceMessage]) -> tuple[Rule, ...]:
    """Rules in the order of their messages. What is not literally in a message of the user is dropped (S5)."""
    said = [message for message in messages if message.role is Role.user]
    found: dict[tuple[str, str], tuple[int, Rule]] = {}
    for quote in quotes:
        # the model may be mistaken in the number; then the first message that has the quote counts
        for message in sorted(said, key=lambda message: message.seq != quote.message):
            if (text := literal_quote(quote.quote.strip(), message.text)) is not None:
                rule = Rule(quote=text, message_id=message.id, author=message.author)
                found.setdefault((text, message.id), (message.seq, rule))
                break
    return tuple(rule for _, rule in sorted(found.values(), key=lambda entry: entry[0]))


def fit(body: Body, budget: int, size: Callable[[Body], int], count: Callable[[str], int]) -> Body:
    """The body within `budget` tokens, by leaving out whole lines: the oldest of the timeline first, then the oldest
    facts, what holds, promises last. A single line over half of the budget is cut at white space before that.

    `size` measures a body, `count` a text.
    """
    if size(body) <= budget:
        return body
    limit = max(1, budget // 2)
    body = Body(
        timeline=tuple(
            line.model_copy(update={"text": _cut(line.text, limit, count)}) for line in body.timeline
        ),
        promises=tuple(_cut(text, limit, count) for text in body.promises),
        facts=tuple(_cut(text, limit, count) for text in body.facts),
        state=tuple(_cut(text, limit, count) for text in body.state),
        rules=body.rules,
    )
    few, many = 0, len(body.timeline) + len(body.facts) + len(body.state) + len(body.promises)
    while few < many:
        dropped = (few + many) // 2
        if size(_without(body, dropped)) <= budget:
            many = dropped
        else:
            few = dropped + 1
    return _without(body, few)


def _without(body: Body, dropped: int) -> Body:
    parts: dict[str, tuple[object, ...]] = {}
    for name in ("timeline", "facts", "state", "promises"):
        part = getattr(body, name)
        parts[name] = part[dropped:]
        dropped = max(0, dropped - len(part))
    return body.model_copy(update=parts)


def _cut(text: str, limit: int, count: Callable[[str], int]) -> str:
    if count(text) <= limit:
        return text
    few, many = 0, len(text) - 1
    while few < many:
        middle = (few + many + 1) // 2
        if count(text[:middle] + "…") <= limit:
            few = middle
        else:
            many = middle - 1
    space = text.rfind(" ", few // 2, few + 1)
    return text[: space if space > 0 else few].rstrip(" ,;:") + "…"


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _distinct(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(text for text in dict.fromkeys(map(_one_line, texts)) if text)
