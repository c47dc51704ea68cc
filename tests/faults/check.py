"""The checks of one chat and of the topics, as lists of what is wrong: a run that fails shows all of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from tests.faults.journal import Entry
from tests.faults.load import Planned
from tests.faults.model import Asked
from tests.faults.state import LIVE, PENDING, Chat

GROUP = 4


def messages(chat: Chat, sent: list[tuple[str, str]]) -> Iterator[str]:
    """Every message in exactly one of live, pending or one chunk, in the order published, its text untouched."""
    found = [(place.id, place.text) for place in chat.places]
    if found != sent:
        wrong = next(
            (at for at, pair in enumerate(zip(found, sent, strict=False)) if pair[0] != pair[1]), None
        )
        yield f"{chat.id}: {len(found)} messages of {len(sent)}, the first difference at {wrong}"
    if [place.seq for place in chat.places] != list(range(len(sent))):
        yield f"{chat.id}: numbers are not 0 to {len(sent) - 1} in order"
    kept = {place.seq for place in chat.places if place.chunk in (PENDING, LIVE)}
    waiting = {place.seq for place in chat.places if place.chunk >= len(chat.chunk_ids)}
    if chat.stored != kept | waiting:
        yield f"{chat.id}: texts are stored for {sorted(chat.stored ^ (kept | waiting))} and should not, or the reverse"
    if chat.turns * 2 != len(sent):
        yield f"{chat.id}: {chat.turns} turns counted"


def chunks(chat: Chat, closed: list[dict[str, Any]]) -> Iterator[str]:
    """`closed` are the chat's events on the chunk topic, each id once: contiguous, and every one summarised."""
    closed = sorted(closed, key=lambda chunk: chunk["index"])
    if [chunk["id"] for chunk in closed] != chat.chunk_ids:
        yield f"{chat.id}: {len(closed)} chunks announced, {len(chat.chunk_ids)} covered"
    if [chunk["index"] for chunk in closed] != list(range(len(closed))):
        yield f"{chat.id}: indexes {[chunk['index'] for chunk in closed]}"
    yield from _contiguous(chat.id, "chunks", closed)
    if chat.waiting_chunks:
        yield f"{chat.id}: {len(chat.waiting_chunks)} chunks without a summary"
    if sum(place.chunk == PENDING for place in chat.places) >= 10:
        yield f"{chat.id}: ten pending messages and no chunk"
    left = {agent: fields for agent, fields in chat.outboxes.items() if fields}
    if left:
        yield f"{chat.id}: outboxes hold {left}"


def summaries(chat: Chat) -> Iterator[str]:
    """One recent summary per chunk; merged ones of four contiguous ones each; what is in use leaves no gap."""
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
        if len(sources) != GROUP or {source["tier"] for source in sources} != {"recent"}:
            yield f"{chat.id}: a merge of {[source['tier'] for source in sources]}"
        yield from _contiguous(chat.id, "sources of a merge", sources, sources[0]["span"]["first_seq"])
        first, last = sources[0]["span"]["first_seq"], sources[-1]["span"]["last_seq"]
        if (merged["span"]["first_seq"], merged["span"]["last_seq"]) != (first, last):
            yield f"{chat.id}: a merge does not span its sources"
    if sorted(used) != sorted(summary["id"] for summary in chat.archived):
        yield f"{chat.id}: the archive and the sources of the merges differ"
    if sum(summary["tier"] == "recent" for summary in chat.in_use) >= GROUP:
        yield f"{chat.id}: four recent summaries were left unmerged"
    if any(summary["version"] != 1 for summary in every):
        yield f"{chat.id}: a summary was written twice"


def _contiguous(chat: str, what: str, items: Iterable[dict[str, Any]], start: int = 0) -> Iterator[str]:
    for item in items:
        span = item["span"]
        if span["first_seq"] != start or span["messages"] != span["last_seq"] - span["first_seq"] + 1:
            yield f"{chat}: {what}: {span['first_seq']} follows {start - 1}"
        start = span["last_seq"] + 1


def asked(chat: Chat) -> set[Asked]:
    """The calls of the model that the chat's summaries needed."""
    return {
        Asked(
            "chunk" if summary["tier"] == "recent" else "merge",
            chat.id,
            summary["span"]["first_seq"],
            summary["span"]["last_seq"],
        )
        for summary in chat.in_use + chat.archived
    }


def announced(every: Iterable[Chat], saved: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Every summary is announced on its topic, and nothing else."""
    there = {(c.id, summary["id"]) for c in every for summary in c.in_use + c.archived}
    told = {(event["chat_id"], event["summary_id"]) for event in saved}
    if there != told:
        yield f"summaries: {len(there - told)} not announced, {len(told - there)} announced and not there"


def dead_letters(letters: list[Entry], planted: dict[tuple[str, int, int], Planned]) -> Iterator[str]:
    """By the place of the record they are exactly the planted ones, with the same bytes and the right reason."""
    found: dict[tuple[str, int, int], Entry] = {}
    for letter in letters:
        about = letter.headers
        place = about["afterturn-topic"], int(about["afterturn-partition"]), int(about["afterturn-offset"])
        found[place] = letter
        expected = planted.get(place)
        if expected is None:
            yield f"dead letter that was not planted: {place} {about['afterturn-reason']}"
        elif (letter.key, letter.value) != (expected.key, expected.value):
            yield f"dead letter {place}: its bytes were touched"
        elif not about["afterturn-reason"].startswith(expected.reason or "?"):
            yield f"dead letter {place} ({expected.kind}): {about['afterturn-reason']}"
    for place in planted.keys() - found.keys():
        yield f"planted {planted[place].kind} at {place} is in no dead letters"
