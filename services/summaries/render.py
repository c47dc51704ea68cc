"""A summary's body as the text of a prompt, and an edited text back as a body.

The timeline comes first, without a heading; each other section has one, and one line for each entry. White space
inside an entry is written as single spaces; the body keeps the original.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Iterator

from schemas.chunks import Span
from schemas.summaries import Body, Rule, TimelineLine
from services.summaries.text import one_line

PROMISES = "Promises:"
FACTS = "Facts:"
STATE = "Now:"
RULES = "Rules:"

_SECTIONS = (PROMISES, FACTS, STATE, RULES)
_TIMELINE = ""
_ESCAPE = "\\"
_QUOTED = re.compile(r'(?:(?P<author>[^"]+?): )?"(?P<quote>.+)"')

_Entry = TimelineLine | Rule | str


def render(body: Body) -> str:
    """The text of a prompt; "" for an empty body. Entries of white space alone leave no line."""
    return "\n".join(lines(body))


def lines(body: Body) -> list[str]:
    """The lines of that text."""
    written: list[str] = []
    for section, entries in _entries(body):
        shown = [line for line in map(line_of, entries) if line]
        if shown and section:
            written.append(section)
        written.extend(shown)
    return written


def parse(text: str, previous: Body, span: Span) -> Body:
    """The body that an edited text describes.

    A line that the previous body rendered in this section, or else anywhere, is that entry, with its span or message.
    Any other line under a heading is a new entry of that section, and in the timeline it covers all of `span`.
    A line under `Rules:` is a rule without a message; quotation marks around it are not part of it.
    """
    old: dict[tuple[str, str], deque[_Entry]] = defaultdict(deque)
    for section, entries in _entries(previous):
        for entry in entries:
            old[section, line_of(entry)].append(entry)
    found: dict[str, list[_Entry]] = {section: [] for section in (_TIMELINE, *_SECTIONS)}
    unknown: list[tuple[str, int, str]] = []
    section = _TIMELINE
    for raw in text.split("\n"):
        line = one_line(raw)
        if not line:
            continue
        if line in _SECTIONS:
            section = line
            continue
        known = old[section, line]
        if known:
            found[section].append(known.popleft())
        else:
            # its place is kept; whether it came from another section is known once all lines found their own
            unknown.append((section, len(found[section]), line))
            found[section].append(line)
    for section, at, line in unknown:
        found[section][at] = _moved(line, section, old, span)
    rules = [entry for entries in found.values() for entry in entries if isinstance(entry, Rule)]
    return Body(
        timeline=tuple(entry for entry in found[_TIMELINE] if isinstance(entry, TimelineLine)),
        promises=_texts(found[PROMISES]),
        facts=_texts(found[FACTS]),
        state=_texts(found[STATE]),
        rules=tuple(rules),
    )


def _entries(body: Body) -> Iterator[tuple[str, tuple[_Entry, ...]]]:
    yield _TIMELINE, body.timeline
    yield PROMISES, body.promises
    yield FACTS, body.facts
    yield STATE, body.state
    yield RULES, body.rules


def line_of(entry: _Entry) -> str:
    """An entry's line; "" for white space alone."""
    if isinstance(entry, Rule):
        quote = one_line(entry.quote)
        author = one_line(entry.author)
        line = f'{author}: "{quote}"' if author else f'"{quote}"'
        return line if quote else ""
    line = one_line(entry if isinstance(entry, str) else entry.text)
    # an entry that looks like a heading must not become one
    return f"{_ESCAPE}{line}" if line.startswith(_ESCAPE) or line in _SECTIONS else line


def _moved(line: str, section: str, old: dict[tuple[str, str], deque[_Entry]], span: Span) -> _Entry:
    """The entry for a line that its section did not have: an old rule or line of the timeline keeps where it is from."""
    if old[RULES, line]:
        return old[RULES, line].popleft()
    plain = line[1:] if line.startswith(_ESCAPE) else line
    if section == RULES:
        match = _QUOTED.fullmatch(plain)
        return Rule(quote=match["quote"], author=match["author"] or "") if match else Rule(quote=plain)
    if section == _TIMELINE:
        if old[_TIMELINE, line]:
            return old[_TIMELINE, line].popleft()
        return TimelineLine(text=plain, first_seq=span.first_seq, last_seq=span.last_seq)
    return plain


def _texts(entries: list[_Entry]) -> tuple[str, ...]:
    return tuple(entry for entry in entries if isinstance(entry, str))
