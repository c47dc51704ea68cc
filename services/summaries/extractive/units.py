"""The pieces that a summary is made of: clauses of messages, and clauses of the lines of earlier summaries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from schemas.summaries import TimelineLine
from schemas.turns import Role
from services.summaries import text as texts
from services.summaries.extractive.terms import Token, tokens
from services.summaries.port import SourceMessage

SPEAKERS = " | "
"""Between what different people said within one line."""

_LABEL_CHARACTERS = 48
_ROLE_WORTH = {Role.user: 1.0, Role.assistant: 1.0, Role.system: 0.5, Role.tool: 0.3}
_QUESTION_MARKS = "?？؟՞;⸮"
_QUESTION_WORTH = 0.85


@dataclass(frozen=True, slots=True, eq=False)
class Unit:
    """A clause that may go into a summary, whole. `position` orders the units of one text; `message` groups those that
    were said at once; `gap` is what stood between it and the unit before it, None where that is another message.
    `worth` multiplies the value of its words. `edited`: a person looked over the summary that it is from.
    `closes`: it ends its sentence."""

    text: str
    author: str
    first_seq: int
    last_seq: int
    position: int
    message: int
    gap: str | None
    tokens: tuple[Token, ...]
    terms: frozenset[str]
    question: bool
    bracketed: bool
    worth: float = 1.0
    edited: bool = False
    closes: bool = True


def from_messages(messages: Sequence[SourceMessage], skip: Mapping[str, Sequence[str]]) -> list[Unit]:
    """Clauses of messages. The texts that `skip` has for a message's id (they are kept elsewhere, word for word) are
    left out."""
    found: list[Unit] = []
    for number, message in enumerate(messages):
        author = texts.one_line(message.author) or message.role.value
        for part in _without(message.text, skip.get(message.id, ())):
            found.extend(
                _clauses(
                    part, author, message.seq, message.seq, number, len(found), _ROLE_WORTH[message.role]
                )
            )
    return found


def from_lines(lines: Sequence[TimelineLine], edited: Sequence[bool]) -> list[Unit]:
    """Clauses of timeline lines; `edited` tells for each line whether its summary was edited."""
    found: list[Unit] = []
    for number, (line, by_hand) in enumerate(zip(lines, edited, strict=True)):
        for segment in line.text.split(SPEAKERS):
            author, said = split_label(segment)
            found.extend(
                _clauses(said, author, line.first_seq, line.last_seq, number, len(found), 1.0, by_hand)
            )
    return found


def split_label(line: str) -> tuple[str, str]:
    """Who said it and what, for a line "who: what"; who is "" where the line does not begin like that."""
    label, colon, said = line.partition(": ")
    if (
        not colon
        or not said.strip()
        or len(label) > _LABEL_CHARACTERS
        or len(label.split()) > 4
        or any(mark in label for mark in '.!?,;。！？，；"“«')
    ):
        return "", line
    return label.strip(), said


def joined(units: Sequence[Unit]) -> Unit:
    """Units that follow each other in one message, as one."""
    first = units[0]
    return replace(
        first,
        text=first.text + "".join(f"{unit.gap or ''}{unit.text}" for unit in units[1:]),
        tokens=tuple(token for unit in units for token in unit.tokens),
        terms=frozenset().union(*(unit.terms for unit in units)),
        closes=units[-1].closes,
    )


def _without(text: str, skip: Sequence[str]) -> list[str]:
    """The text without the quotes, in pieces."""
    pieces = [text]
    for quote in skip:
        pieces = [part for piece in pieces for part in piece.split(quote)]
    return pieces


def _clauses(
    text: str,
    author: str,
    first_seq: int,
    last_seq: int,
    message: int,
    position: int,
    worth: float,
    edited: bool = False,
) -> Iterator[Unit]:
    end = -1
    for clause in texts.clauses(text):
        raw = texts.one_line(text[clause.start : clause.end])
        words = tokens(raw)
        gap = None if end < 0 else " " if clause.start > end else ""
        question = raw.rstrip("\"'»”’)*_ ")[-1:] in _QUESTION_MARKS
        yield Unit(
            text=raw,
            author=author,
            first_seq=first_seq,
            last_seq=last_seq,
            position=position,
            message=message,
            gap=gap,
            tokens=words,
            terms=frozenset(token.term for token in words),
            question=question,
            bracketed=raw[:1] in "[(（【*",
            worth=worth * (_QUESTION_WORTH if question else 1.0),
            edited=edited,
            closes=clause.closes,
        )
        position += 1
        end = clause.end
