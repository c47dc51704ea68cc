"""The pieces that a summary is made of: clauses of messages, and clauses of the lines of earlier summaries."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from schemas.summaries import TimelineLine
from schemas.turns import Role
from services.summaries import text as texts
from services.summaries.extractive.terms import Token, is_name, is_telling, tokens
from services.summaries.extractive.wording import cleaned
from services.summaries.port import SourceMessage

SPEAKERS = " | "
"""Between what different people said within one line."""

_LABEL_CHARACTERS = 48
_ROLE_WORTH = {Role.user: 1.0, Role.assistant: 1.0, Role.system: 0.5, Role.tool: 0.3}
_QUESTION_MARKS = "?？؟՞;⸮"
_QUESTION_WORTH = 0.85

_WITHIN = 0.5
"""What a clause is worth that begins in the middle of its sentence, in a script that shows where sentences begin."""

_WHOLE_CHARACTERS = 100
"""A clause that goes on in lower case is kept together with the one before it as far as both are no longer than this."""

_STARTS_ANEW = (";", "；", "؛")
"""After a semicolon a clause stands on its own."""

_LEAST_WORDS = 3


@dataclass(frozen=True, slots=True, eq=False)
class Unit:
    """A clause, or some that belong together, that may go into a summary, whole. `raw` is what stands in the source, white
    space aside, and `text` the same as it is shown alone. `position` orders the units of one text; `message` groups those
    that were said at once; `gap` is what stood between it and the unit before it, None where that is another message.
    `worth` multiplies the value of its words. `edited`: a person looked over the summary that it is from.
    `closes`: it ends its sentence. `remark`: too little to be understood alone."""

    raw: str
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
    remark: bool = False


def from_messages(messages: Sequence[SourceMessage], skip: Mapping[str, Sequence[str]]) -> list[Unit]:
    """Clauses of messages. The texts that `skip` has for a message's id (they are kept elsewhere, word for word) are
    left out."""
    found: list[Unit] = []
    speakers = _words(message.author for message in messages)
    for number, message in enumerate(messages):
        author = texts.one_line(message.author) or message.role.value
        worth = _ROLE_WORTH[message.role]
        for part in _without(message.text, skip.get(message.id, ())):
            found.extend(
                _clauses(part, author, message.seq, message.seq, number, len(found), worth, speakers)
            )
    return found


def from_lines(lines: Sequence[TimelineLine], edited: Sequence[bool]) -> list[Unit]:
    """Clauses of timeline lines; `edited` tells for each line whether its summary was edited."""
    found: list[Unit] = []
    segments = [[split_label(segment) for segment in line.text.split(SPEAKERS)] for line in lines]
    speakers = _words(author for line in segments for author, _ in line)
    for number, (line, said_by, by_hand) in enumerate(zip(lines, segments, edited, strict=True)):
        for author, said in said_by:
            found.extend(
                _clauses(
                    said, author, line.first_seq, line.last_seq, number, len(found), 1.0, speakers, by_hand
                )
            )
    return found


def _words(names: Iterable[str]) -> frozenset[str]:
    return frozenset(word.casefold() for name in frozenset(names) for word in texts.words_of(name))


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
    raw = _raw(units)
    return replace(
        units[0],
        raw=raw,
        text=cleaned(raw),
        tokens=tuple(token for unit in units for token in unit.tokens),
        terms=frozenset().union(*(unit.terms for unit in units)),
        closes=units[-1].closes,
        remark=all(unit.remark for unit in units),
    )


def together(units: Sequence[Unit]) -> str:
    """The text of those units as one."""
    return cleaned(_raw(units))


def _raw(units: Sequence[Unit]) -> str:
    return units[0].raw + "".join(f"{unit.gap or ''}{unit.raw}" for unit in units[1:])


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
    speakers: Collection[str],
    edited: bool = False,
) -> Iterator[Unit]:
    end = -1
    for start, until, opens, closes in _together(text, speakers):
        raw = texts.one_line(text[start:until])
        shown = cleaned(raw)
        if not shown:
            continue
        words = tokens(shown)
        gap = None if end < 0 else texts.one_line(text[end:start]) or (" " if start > end else "")
        question = raw.rstrip("\"'»”’)*_ ")[-1:] in _QUESTION_MARKS
        yield Unit(
            raw=raw,
            text=shown,
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
            worth=worth * (_QUESTION_WORTH if question else 1.0) * (1.0 if opens else _WITHIN),
            edited=edited,
            closes=closes,
            remark=_is_remark(words),
        )
        position += 1
        end = until


def _together(text: str, speakers: Collection[str]) -> Iterator[texts.Clause]:
    """The clauses of a text, those as one that say little apart: a short one with a name or a number and its neighbour, and
    one that goes on in lower case and the one before it. `opens` also tells that a clause could begin a sentence."""
    held: texts.Clause | None = None
    for clause in texts.clauses(text):
        piece = text[clause.start : clause.end]
        opens = (
            clause.opens
            or not _goes_on(piece)
            or text[max(0, clause.start - 4) : clause.start].rstrip()[-1:] in _STARTS_ANEW
        )
        if held is None:
            held = clause._replace(opens=opens)
            continue
        before = text[held.start : held.end]
        short = is_short(before)
        within = clause.end - held.start <= _WHOLE_CHARACTERS
        if (short and _tells(before, speakers)) or (
            within
            and (
                (clause.closes and clause.opens and is_short(piece) and any(map(str.isdigit, piece)))
                or (not clause.opens and not short and _is_remark(tokens(piece)))
                or (not opens and not _is_aside(before, speakers))
            )
        ):
            held = texts.Clause(held.start, clause.end, held.opens, clause.closes)
        else:
            yield held
            # what follows on "Well, " begins as well as the whole would
            held = clause._replace(opens=opens or (short and not held.closes))
    if held is not None:
        yield held


def is_short(piece: str) -> bool:
    """Whether a piece has too few words to be understood alone."""
    return texts.unspaced_characters(piece) < 2 * _LEAST_WORDS and len(texts.words_of(piece)) < _LEAST_WORDS


def _tells(piece: str, speakers: Collection[str]) -> bool:
    """Whether a short piece has a number, or is a name of two words that calls no one of those who speak."""
    if any(map(str.isdigit, piece)):
        return True
    found = texts.words_of(piece)
    return (
        len(found) > 1
        and all(map(is_name, found))
        and not any(speaker.startswith(word.casefold()) for word in found for speaker in speakers)
    )


def _is_aside(piece: str, speakers: Collection[str]) -> bool:
    """Whether a short piece is one word or calls one of those who speak: the "Well" of "Well, that depends"."""
    if not is_short(piece):
        return False
    found = [word.casefold() for word in texts.words_of(piece)]
    return len(found) < 2 or any(speaker.startswith(word) for word in found for speaker in speakers)


def _goes_on(piece: str) -> bool:
    """Whether a piece begins with a number or in lower case, in a script that has capitals."""
    first = texts.first_word(piece)[:1]
    return first.islower() or first.isdigit()


def _is_remark(words: Sequence[Token]) -> bool:
    """Whether there is little more than a word or two, without a name and without a number of something."""
    spoken = [token for token in words if not token.digit]
    if any(token.digit for token in words):
        return not any(is_telling(token) for token in spoken)
    return len(spoken) < _LEAST_WORDS
