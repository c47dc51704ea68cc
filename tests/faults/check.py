"""The checks of chats and of the topics, as lists of what is wrong: a run that fails shows all of it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from tests.faults.journal import Entry
from tests.faults.mind import Mind
from tests.faults.model import CHUNK, Asked, numbers
from tests.faults.state import LIVE, PENDING, Chat
from tests.faults.story import Story
from tests.faults.trouble import Planned

GROUP = 4

Event = dict[str, Any]

SAID = re.compile(r"\b(c\d{3,}|late) (\d+): ")
"""How every text of a chat begins."""

SAVED = re.compile(r"\b(?:user-\d+|nobody) memory \d+: ")
"""How every text of a memory begins."""


def texts(story: Story) -> list[tuple[str, str | None]]:
    """Ids and texts of a chat's messages."""
    return [message for turn in story.turns for message in turn.messages]


def messages(chat: Chat, story: Story) -> Iterator[str]:
    """Every message in exactly one of live, pending or one chunk, in the order published, its text as it stands. The
    window may have been filled again, then live messages are in chunks as well."""
    sent = texts(story)
    live = [place for place in chat.places if place.chunk == LIVE]
    rest = [place for place in chat.places if place.chunk != LIVE]
    start = live[0].seq if live else len(sent)
    if [p.seq for p in rest] != list(range(len(rest))) or [p.seq for p in live] != list(
        range(start, len(sent))
    ):
        yield f"{chat.id}: messages are not in order, {len(rest)} and then {start} to {len(sent) - 1}"
    if start > len(rest) or (sent and not live):
        yield f"{chat.id}: {len(rest)} messages have left the window, which begins at {start}"
    filled = start < len(rest)
    if filled and (chat.overlap < len(rest) or any(place.chunk == PENDING for place in rest)):
        yield f"{chat.id}: the window begins at {start}, {len(rest)} messages have left it"
    wrong = [p.seq for p in chat.places if p.seq >= len(sent) or (p.id, p.text) != sent[p.seq]]
    if wrong:
        yield f"{chat.id}: messages {wrong} of {len(sent)} are others, or say something else"
    kept = {place.seq for place in chat.places if place.chunk in (PENDING, LIVE)}
    waiting = {place.seq for place in chat.places if place.chunk >= len(chat.chunk_ids)}
    if chat.stored != kept | waiting:
        yield f"{chat.id}: texts are stored for {sorted(chat.stored ^ (kept | waiting))} and should not, or the reverse"
    if chat.turns != len(story.turns):
        yield f"{chat.id}: {chat.turns} turns counted, {len(story.turns)} stand"


def chunks(chat: Chat, story: Story, closed: dict[str, Event]) -> Iterator[str]:
    """`closed` are all events of the chunk topic by id. What stands is contiguous, announced, and summarised; without
    a take-back nothing else was announced."""
    unknown = [id for id in chat.chunk_ids if id not in closed]
    if unknown:
        yield f"{chat.id}: the chunks {unknown} were never announced"
    standing = [closed[id] for id in chat.chunk_ids if id in closed]
    if [chunk["index"] for chunk in standing] != list(range(len(standing))):
        yield f"{chat.id}: indexes {[chunk['index'] for chunk in standing]}"
    yield from _contiguous(chat.id, "chunks", standing)
    if not story.taken_back:
        own = {id for id, chunk in closed.items() if chunk["chat"]["id"] == chat.id}
        if own - set(chat.chunk_ids):
            yield f"{chat.id}: {len(own)} chunks announced, {len(chat.chunk_ids)} covered"
    if chat.waiting_chunks:
        yield f"{chat.id}: {len(chat.waiting_chunks)} chunks without a summary"
    if sum(place.chunk == PENDING for place in chat.places) >= CHUNK:
        yield f"{chat.id}: ten pending messages and no chunk"
    left = {agent: fields for agent, fields in chat.outboxes.items() if fields}
    if left or chat.rollbacks:
        yield f"{chat.id}: outboxes hold {left}, the rollbacks {chat.rollbacks} are open"


def summaries(chat: Chat, story: Story) -> Iterator[str]:
    """One recent summary per chunk; merged ones of four contiguous ones each; what is in use leaves no gap. Each
    quotes what its messages say now."""
    every = chat.in_use + chat.archived
    recent = [summary for summary in every if summary["tier"] == "recent"]
    if sorted(summary["id"] for summary in recent) != sorted(chat.chunk_ids):
        yield f"{chat.id}: {len(recent)} recent summaries for {len(chat.chunk_ids)} chunks"
    yield from _contiguous(chat.id, "summaries in use", chat.in_use)
    if chat.in_use and chat.in_use[-1]["span"]["last_seq"] + 1 != chat.summarised:
        yield f"{chat.id}: covered {chat.summarised}, summaries end before or after"
    by_id = {summary["id"]: summary for summary in every}
    used: list[str] = []
    for merged in (summary for summary in every if summary["tier"] != "recent"):
        sources = [by_id[id] for id in merged["provenance"]["source_ids"]]
        used += [source["id"] for source in sources]
        tiers = [source["tier"] for source in sources]
        below = "recent" if merged["tier"] == "merged" else "merged"
        before = ["long_term"] if merged["tier"] == tiers[0] == "long_term" else []
        if tiers != before + [below] * GROUP:
            yield f"{chat.id}: a {merged['tier']} summary of {tiers}"
        yield from _contiguous(chat.id, "sources of a merge", sources, sources[0]["span"]["first_seq"])
        first, last = sources[0]["span"]["first_seq"], sources[-1]["span"]["last_seq"]
        if (merged["span"]["first_seq"], merged["span"]["last_seq"]) != (first, last):
            yield f"{chat.id}: a merge does not span its sources"
    if sorted(used) != sorted(summary["id"] for summary in chat.archived):
        yield f"{chat.id}: the archive and the sources of the merges differ"
    # a fork that was made while its source merged does so with its own next summary
    own = any("chat_id" not in summary["provenance"] for summary in every)
    if own and sum(summary["tier"] == "recent" for summary in chat.in_use) >= GROUP:
        yield f"{chat.id}: four recent summaries were left unmerged"
    if any(summary["version"] != 1 for summary in every):
        yield f"{chat.id}: a summary was written twice"
    yield from _quotes(chat, story)


def _quotes(chat: Chat, story: Story) -> Iterator[str]:
    said = [None if text is None else int(text.split(":")[0].split(" ")[1]) for _, text in texts(story)]
    for summary in chat.in_use + chat.archived:
        for line in summary["body"]["timeline"]:
            covered = [
                number for number in said[line["first_seq"] : line["last_seq"] + 1] if number is not None
            ]
            quoted = numbers(line["text"])
            whole = summary["tier"] != "long_term"
            if quoted != covered if whole else not set(quoted) <= set(covered):
                yield f"{chat.id}: a {summary['tier']} summary quotes {quoted}, its messages are {covered}"


def _contiguous(chat: str, what: str, items: Iterable[Event], start: int = 0) -> Iterator[str]:
    for item in items:
        span = item["span"]
        if span["first_seq"] != start or span["messages"] != span["last_seq"] - span["first_seq"] + 1:
            yield f"{chat}: {what}: {span['first_seq']} follows {start - 1}"
        start = span["last_seq"] + 1


def deleted(story: Story, names: list[str], tombstones: dict[str, set[str]]) -> Iterator[str]:
    """Of a deleted chat one key is left, and every topic with its key has a tombstone."""
    if names != ["w"]:
        yield f"{story.name}: was deleted, and {names} are left"
    without = [topic for topic, chats in tombstones.items() if story.name not in chats]
    if without:
        yield f"{story.name}: was deleted, without a tombstone in {without}"


def nowhere(contents: Iterable[str], stories: Iterable[Story], users: Iterable[Mind]) -> Iterator[str]:
    """What was taken back is nowhere in Redis, whatever the key; all that stands is."""
    said: set[tuple[str, str]] = set()
    saved: set[str] = set()
    for content in contents:
        said.update(SAID.findall(content))
        saved.update(SAVED.findall(content))
    standing = {
        SAID.match(text).groups() for story in stories for _, text in texts(story) if text is not None
    }
    if said != standing:
        yield f"Redis still has the texts {sorted(said - standing)[:20]}, and lacks {sorted(standing - said)[:20]}"
    remembered = {SAVED.match(text)[0] for mind in users for text in mind.texts()}
    if saved != remembered:
        yield f"Redis still has the memories {sorted(saved - remembered)[:20]}, lacks {sorted(remembered - saved)[:20]}"


def announced(every: Iterable[Chat], stories: dict[str, Story], saved: Iterable[Event]) -> Iterator[str]:
    """Every summary is announced on its topic; nothing else is, where nothing was taken back."""
    there, told = set(), {(event["chat_id"], event["summary_id"]) for event in saved}
    for chat in every:
        for summary in chat.in_use + chat.archived:
            # in a fork it was made, and announced, in another chat
            there.add((summary["provenance"].get("chat_id", chat.id), summary["id"]))
    beside = {pair for pair in told - there if not stories[pair[0]].taken_back}
    if there - told or beside:
        yield f"summaries: {len(there - told)} not announced, {len(beside)} announced and not there"


class Calls:
    """The model's calls against what they were for: chunks that were closed, merges that were saved or overtaken."""

    def __init__(
        self,
        calls: Counter[Asked],
        chats: list[Chat],
        stories: dict[str, Story],
        closed: Iterable[Event],
        saved: Iterable[Event],
    ) -> None:
        root = {name: story.family.root for name, story in stories.items()}
        self.chunks: Counter[tuple[str, int]] = Counter()
        self.merges: Counter[str] = Counter()
        for asked, count in calls.items():
            if asked.stage == "chunk":
                self.chunks[asked.chat, asked.first // CHUNK] += count
            else:
                self.merges[asked.chat] += count
        self.closed = Counter((root[e["chat"]["id"]], e["span"]["first_seq"] // CHUNK) for e in closed)
        self.saved = Counter(root[event["chat_id"]] for event in saved if event["tier"] != "recent")
        # a merge that was under way is asked for in vain
        self.overtaken = Counter(dict.fromkeys(stories, 0))
        for story in stories.values():
            self.overtaken[story.family.root] += story.taken_back
        self.needed = {
            (root[chat.id], summary["span"]["first_seq"] // CHUNK)
            for chat in chats
            for summary in chat.in_use + chat.archived
            if summary["tier"] == "recent" and summary["body"]["timeline"]
        }

    @property
    def repeated(self) -> int:
        """Calls beyond one for each chunk that was closed and each merge that was saved or overtaken."""
        chunks = sum((self.chunks - self.closed).values())
        return chunks + sum((self.merges - self.saved - self.overtaken).values())

    def check(self) -> Iterator[str]:
        """Nothing was asked that was not needed, and no summary is there that nobody was asked for."""
        if beside := self.chunks.keys() - self.closed.keys():
            yield f"the model was asked for {sorted(beside)[:20]} beside what was needed"
        if made_up := self.needed - self.chunks.keys():
            yield f"the model was never asked for {sorted(made_up)[:20]}"


def dead_letters(letters: list[Entry], planted: dict[tuple[str, int, int], Planned]) -> Iterator[str]:
    """By the place of the record they are exactly the planted ones, with the same bytes and the right reason.

    One that is delivered again may have another reason: what it named was taken back meanwhile, its offset has passed.
    """
    found: dict[tuple[str, int, int], list[str]] = {}
    for letter in letters:
        about = letter.headers
        place = about["afterturn-topic"], int(about["afterturn-partition"]), int(about["afterturn-offset"])
        found.setdefault(place, []).append(about["afterturn-reason"])
        expected = planted.get(place)
        if expected is None:
            yield f"dead letter that was not planted: {place} {about['afterturn-reason']}"
        elif (letter.key, letter.value) != (expected.key, expected.value if expected.kept else None):
            yield f"dead letter {place}: its bytes were touched"
    for place, expected in planted.items():
        reasons = found.get(place)
        if reasons is None:
            yield f"planted {expected.kind} at {place} is in no dead letters"
            continue
        others = [reason for reason in reasons if not reason.startswith(expected.reason or "?")]
        if len(others) == len(reasons) or any(not reason.startswith("offset: ") for reason in others):
            yield f"dead letter {place} ({expected.kind}): {reasons}"
