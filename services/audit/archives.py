"""The checks of archived messages, chunk by chunk: complete, and saying what rules quote (S5)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from schemas.chunks import Span
from services.audit.report import Check, Finding
from services.audit.snapshot import ArchivedMessage, Snapshot, print_of
from services.audit.spans import numbers


class Archives:
    """Takes the archived chunks of one chat one after the other and keeps none of them.

    `expected` is what is to be read; each goes to `chunk` once, and `finish` ends it.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self.expected: dict[str, Span] = snapshot.summarised()
        self.messages = 0
        self._quotes: dict[str, list[tuple[str, str]]] = defaultdict(list)
        for quote, message, summary in quotes(snapshot):
            self._quotes[message].append((quote, summary))
        self.rules = sum(map(len, self._quotes.values()))

    def chunk(self, id: str, messages: Sequence[ArchivedMessage] | None) -> Iterator[Finding]:
        """Check one chunk; None where nothing is archived under its id."""
        span = self.expected[id]
        if messages is None:
            yield self._finding(
                Check.archive, f"chunk {id}: {numbers(span.first_seq, span.last_seq)} not archived"
            )
            return
        self.messages += len(messages)
        found = [message.seq for message in messages]
        if found != list(range(span.first_seq, span.last_seq + 1)):
            yield self._finding(
                Check.archive,
                f"chunk {id} holds {len(found)} messages, not {numbers(span.first_seq, span.last_seq)}",
            )
        for message in messages:
            if self._snapshot.numbers.get(message.id) != message.seq:
                yield self._finding(
                    Check.archive,
                    f"chunk {id}: message {message.seq} is called {message.id}, its number is not",
                )
            yield from self._one(id, message)
            for quote, summary in self._quotes.pop(message.id, ()):
                if quote not in message.text:
                    yield self._finding(
                        Check.rules, f"a rule of summary {summary} is not literally in message {message.id}"
                    )

    def _one(self, id: str, message: ArchivedMessage) -> Iterator[Finding]:
        """One that is live again is the same in both places."""
        seq, entry = message.seq, self._snapshot.turns.get(message.turn)
        if entry is None or not entry.first <= seq < entry.first + entry.size:
            yield self._finding(
                Check.archive,
                f"chunk {id}: message {seq} says that it is of turn {message.turn}, the turn table does not",
            )
        if message.deleted and message.text:
            yield self._finding(Check.deleted, f"chunk {id}: message {seq} was deleted and still has a text")
        live = self._snapshot.messages.get(seq)
        if live is not None and (live.print, live.deleted) != (print_of(message.text), message.deleted):
            yield self._finding(
                Check.taken_back, f"chunk {id}: message {seq} is live again and says something else there"
            )

    def finish(self) -> Iterator[Finding]:
        """What is left: archives of no chunk, and rules whose message no chunk has."""
        for id in sorted(self._snapshot.archive - self.expected.keys()):
            yield self._finding(Check.archive, f"messages of {id} are archived, which is no summarised chunk")
        for message, left in self._quotes.items():
            yield self._finding(
                Check.rules, f"a rule of summary {left[0][1]} quotes message {message}, which is in no chunk"
            )

    def _finding(self, check: Check, detail: str) -> Finding:
        return Finding(self._snapshot.chat, check, detail)


def quotes(snapshot: Snapshot) -> Iterator[tuple[str, str, str]]:
    """Quote, message id and summary id of each rule that nobody has edited.

    A rule without a message was written by a person; so may be any rule of a summary that was edited, or that was
    merged from such a one.
    """
    by_hand = snapshot.by_hand()
    seen = set()
    for summary in (*snapshot.merged_away.values(), *snapshot.summaries):
        if (summary.id, summary.version) in by_hand:
            continue
        for rule in summary.body.rules:
            if rule.message_id is not None and (rule.quote, rule.message_id) not in seen:
                seen.add((rule.quote, rule.message_id))
                yield rule.quote, rule.message_id, summary.id
