"""The audit of saved memories: it passes on whatever the agent leaves, and finds damage of every kind of key."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from redis.asyncio import Redis

from schemas.memories import GLOBAL, Author
from services.audit.report import Check, Report
from services.audit.service import audit
from services.memories.service import Memories
from services.memories.state import Action, dump_change, parse_change, parse_held
from services.memories.store import read_history, read_scopes
from services.state import keys
from services.work import Work
from tests.memories import MIRA, START, characters, command, delivered

K = keys.UserKeys.of("u1")
TURN = {"chat": "c1", "turn": "t1"}


class Writer:
    """Sends commands of users to the agent, one after the other."""

    def __init__(self, redis: Redis) -> None:
        self.redis = redis
        self.memories = Memories(redis, characters, lambda: START)
        self.offset = 0

    async def send(self, type: str = "memory.ops", **fields: Any) -> None:
        self.offset += 1
        (result,) = await self.memories.apply([delivered(self.offset, command(self.offset, type, **fields))])
        assert isinstance(result, Work)
        if result.confirmed is not None:
            await result.confirmed()

    async def user(self, *ops: dict[str, Any]) -> None:
        await self.send(by="user", ops=ops)

    async def mira(self, turn: str, *ops: dict[str, Any], chat: str = "c1") -> None:
        source = {"chat": chat, "turn": turn}
        await self.send(by="character", character="mira", characters=("mira",), source=source, ops=ops)


async def sound(redis: Redis) -> Report:
    report = await audit(redis, None, at_rest=True)
    assert report.findings == []
    return report


def save(text: str, **fields: Any) -> dict[str, Any]:
    return {"op": "save", "text": text, **fields}


@pytest.mark.rule("M3", "M9", "M11")
@pytest.mark.parametrize("seed", range(4))
async def test_what_the_agent_leaves_passes_at_every_moment(redis: Redis, seed: int) -> None:
    writer, dice = Writer(redis), random.Random(seed)
    # nearly full, so that entries are displaced
    await writer.user(*(save(f"full {number}", scope=MIRA) for number in range(50)))
    await writer.user(*(save(f"fuller {number}", scope=MIRA) for number in range(48)))
    for number in range(120):
        entries = [
            entry.id
            for scope in (await read_scopes(redis, "u1", (GLOBAL, MIRA))).values()
            for entry in scope.values()
        ]
        one = dice.choice(sorted(entries)) if entries else "none"
        changes = await read_history(redis, "u1", None, 40)
        turn = f"t{dice.randrange(8)}"
        match dice.randrange(12):
            case 0 | 1 | 2:
                ops = [
                    save(f"said {number} {part}", source={"chat": "c1", "messages": [f"m{part}"]})
                    for part in range(2)
                ]
                await writer.mira(turn, *ops[: dice.randint(1, 2)], save(f"whole {number}"))
            case 3 | 4:
                await writer.mira(turn, {"op": "update", "id": one, "text": f"else {number}"})
            case 5:
                await writer.mira(turn, {"op": "delete", "id": one})
            case 6:
                await writer.user({"op": dice.choice(("pin", "unpin")), "id": one})
            case 7:
                await writer.user({"op": "move", "id": one, "scope": dice.choice((GLOBAL, MIRA))})
            case 8:
                await writer.user({"op": "restore", "change": dice.choice(changes).number})
            case 9 | 10:
                messages = None if dice.randrange(2) else ("m0",)
                await writer.send(
                    "memory.rollback", chat_id="c1", generation=1, turns=(turn,), messages=messages
                )
            case 11:
                await writer.user({"op": "update", "id": one, "text": f"by hand {number}"})
        if number == 70:
            await writer.send("memory.clear", scope=GLOBAL)
        await sound(redis)
    await writer.send("character.deleted", character="mira")
    report = await sound(redis)
    assert report.read.users == 1
    assert report.read.memories > 90
    assert report.read.changes > 200


async def some(redis: Redis) -> Writer:
    """One entry that was created, edited and pinned, one that a turn wrote, and one that is gone."""
    writer = Writer(redis)
    await writer.user(save("secret one", id="one"), {"op": "update", "id": "one", "text": "secret two"})
    await writer.mira("t1", save("secret three", id="three"))
    await writer.mira("t2", save("secret four", id="four"))
    await writer.user(save("secret five", id="five"), {"op": "delete", "id": "five"})
    await writer.send("memory.rollback", chat_id="c1", generation=1, turns=("t2",))
    return writer


@pytest.mark.rule("M3", "M9", "M11")
@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (("HDEL", K.history, "2"), Check.history),
        (("HSET", K.history, "2", "secret"), Check.readable),
        (("HSET", K.watermark, "n", "99"), Check.history),
        (("HDEL", K.places, "one"), Check.memories),
        (("HSET", K.places, "one", "global 1"), Check.memories),
        (("HSET", K.places, "one", "secret"), Check.readable),
        (("HDEL", keys.scope("u1", GLOBAL), "one"), Check.memories),
        (("HSET", keys.scope("u1", GLOBAL), "one", "secret"), Check.readable),
        (("HDEL", keys.journal("u1", "c1"), "t1"), Check.journal),
        (("HSET", keys.journal("u1", "c1"), "t1", "3 77"), Check.journal),
        (("HSET", keys.journal("u1", "c1"), "t9", "3"), Check.journal),
        (("HDEL", K.commands, "k1"), Check.memories),
        (("HSET", K.outbox, "k1", "secret"), Check.outbox),
    ],
)
async def test_damage_is_found_and_no_text_is_told(
    redis: Redis, damage: tuple[str, ...], expected: Check
) -> None:
    await some(redis)
    await sound(redis)
    await redis.execute_command(*damage)
    report = await audit(redis, None, at_rest=True)
    assert not report.ok
    assert expected in {finding.check for finding in report.findings}
    assert {finding.user for finding in report.findings} == {"u1"}
    assert "secret" not in json.dumps(report.as_dict())


@pytest.mark.rule("M9")
async def test_a_history_that_does_not_lead_to_the_entry_or_keeps_what_was_taken_back_is_found(
    redis: Redis,
) -> None:
    writer = await some(redis)
    changes = {change.number: change for change in await read_history(redis, "u1", None, 20)}
    created, edited, taken = changes[1], changes[2], changes[4]
    assert taken.taken_back
    quoting = created.after
    assert quoting is not None
    for number, changed, expected in (
        (2, edited._replace(before=None), Check.history),
        (2, edited._replace(after=created.after), Check.history),
        (2, edited._replace(previous=0), Check.history),
        (2, edited._replace(after=quoting._replace(order=4)), Check.taken_back),
        (4, taken._replace(after=quoting._replace(order=4)), Check.taken_back),
    ):
        before = await redis.hget(K.history, str(number))
        await redis.hset(K.history, str(number), dump_change(changed))
        report = await audit(redis, None, user="u1")
        assert expected in {finding.check for finding in report.findings}, changed
        await redis.hset(K.history, str(number), before)
    await sound(redis)
    assert parse_change(await redis.hget(K.history, "2")) == edited
    assert writer.offset == 5


@pytest.mark.rule("M8")
async def test_a_pin_that_was_changed_or_lost_is_found(redis: Redis) -> None:
    writer = await some(redis)
    await writer.user({"op": "pin", "id": "one"}, {"op": "update", "id": "one", "text": "secret six"})
    report = await sound(redis)
    assert report.read.pins == 1
    (edited,) = await read_history(redis, "u1", None, 1)
    for wrong in ({"by": Author.character}, {"action": Action.taken_back, "before": None, "after": None}):
        await redis.hset(K.history, str(edited.number), dump_change(edited._replace(**wrong)))
        report = await audit(redis, None, at_rest=True)
        said = f"change {edited.number} ({wrong.get('action', 'edited')}) of one was made while it was pinned"
        assert said in {finding.detail for finding in report.findings}
    await redis.hset(K.history, str(edited.number), dump_change(edited))
    scope = keys.scope("u1", GLOBAL)
    held = parse_held("one", GLOBAL, await redis.hget(scope, "one"))
    await redis.hset(scope, "one", held._replace(pinned=False).value())
    report = await audit(redis, None, at_rest=True)
    assert [finding.detail for finding in report.findings] == [
        "entry one is not pinned, its history says otherwise"
    ]


@pytest.mark.rule("M3")
async def test_a_scope_over_its_caps_and_an_entry_that_is_too_long_are_found(redis: Redis) -> None:
    writer = Writer(redis)
    await writer.user(*(save(f"text {number}", id=f"e{number}") for number in range(50)))
    await writer.user(*(save(f"text {number}", id=f"e{number}") for number in range(50, 100)))
    await sound(redis)
    key = keys.scope("u1", GLOBAL)
    value = await redis.hget(key, "e1")
    await redis.hset(key, "extra", value)
    details = [finding.detail for finding in (await audit(redis, None)).findings]
    assert "global has 101 unpinned entries, the limit is 100" in details
    await redis.hdel(key, "extra")
    await redis.hset(key, "e1", value.replace(b"text 1", b"x" * 501))
    details = [finding.detail for finding in (await audit(redis, None)).findings]
    assert "entry e1 has 501 characters, the limit is 500" in details


@pytest.mark.rule("M9", "W7")
async def test_what_a_turn_wrote_that_its_chat_has_no_more_is_found_at_rest(redis: Redis) -> None:
    writer = await some(redis)
    k = keys.ChatKeys.of("c1")
    await redis.hset(k.window, mapping={"v": 1, "g": 0})
    running, resting = [await audit(redis, None, user="u1", at_rest=at_rest) for at_rest in (False, True)]
    assert running.ok
    assert [finding.check for finding in resting.findings] == [Check.taken_back]
    # of a deleted chat it stays
    await redis.hset(k.window, "dl", "e9")
    assert (await audit(redis, None, user="u1", at_rest=True)).ok
    # and what was pinned stays (M8)
    await redis.hdel(k.window, "dl")
    await writer.user({"op": "pin", "id": "three"})
    assert (await audit(redis, None, user="u1", at_rest=True)).ok


async def test_one_user_can_be_asked_for(redis: Redis) -> None:
    await some(redis)
    await Writer(redis).send(user="u2", by="user", ops=(save("theirs"),))
    await redis.hset(keys.UserKeys.of("u2").watermark, "n", "9")
    assert (await audit(redis, None, user="u1")).ok
    assert not (await audit(redis, None, user="u2")).ok
    everything = await audit(redis, None)
    assert everything.read.users == 2
    assert {finding.user for finding in everything.findings} == {"u2"}
    nobody = await audit(redis, None, user="nobody")
    assert (nobody.ok, nobody.findings[0].detail) == (False, "this user has no saved memories")
    assert (await audit(redis, None, chat="c9")).read.users == 0
