"""Takes back what a chat regenerates, rewinds, edits or deletes, and makes forks: one event in, one step in the store.

| the process dies | what follows |
|---|---|
| before the script | the event is delivered again and carried out |
| after the script, before what it announces is published | the redelivery changes nothing, and finds it in the outbox |
| after that, before the acknowledgement | the same ids are published once more; readers skip them |

Shown by tests/integration/test_takeback.py and tests/integration/test_takeback_model.py.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from redis.asyncio import Redis

from schemas.delivery import Outgoing, Position, Topics
from schemas.live import WindowChanged
from schemas.turns import (
    ChatDeleted,
    ChatForked,
    ChatRewound,
    MessageDeleted,
    MessageEdited,
    TurnRegenerated,
)
from services.failures import Poison, Transient
from services.state import deleted, ids, keys, outbox
from services.state.agents import WINDOW as AGENT
from services.state.transaction import at_once
from services.takeback import deletion, fork, policy, reading, store
from services.takeback.policy import Plan
from services.takeback.reading import Ask
from services.takeback.rollbacks import rollbacks
from services.takeback.source import PartitionOf, Sources
from services.takeback.store import Answer
from services.takeback.values import Chat, Row
from services.tokens.counter import TokenCounter
from services.window import store as windows
from services.window.incoming import Delivered, happened, in_order, memory_entry, memory_field, usage
from services.window.store import ChunkSize
from services.work import Work

TakeBack = TurnRegenerated | ChatRewound | MessageEdited | MessageDeleted | ChatForked | ChatDeleted

ATTEMPTS = 16
"""So often a plan is made anew when the chat changed meanwhile (a summary was saved), before the event is retried."""


class TakingBack:
    """Raises Poison, Transient, and redis.RedisError where the store is away. `clock` and `sleep`: seconds (since 1970)."""

    def __init__(
        self,
        redis: Redis,
        counter: TokenCounter,
        chunk: ChunkSize,
        partition_of: PartitionOf,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._redis = redis
        self._ask = partial(at_once, redis)
        self._counter = counter
        self._chunk = chunk
        self._sources = Sources(self._ask, partition_of, clock, sleep)

    async def apply(self, delivered: Delivered, begun: float) -> Work:
        """Carry one event out; once, however often it comes. `begun`: when its batch was, in seconds since 1970."""
        event = delivered.event
        assert isinstance(event, TakeBack)
        for _ in range(ATTEMPTS):
            chat = await reading.chat(self._ask, event.chat.id)
            if chat is not None:
                if _before_deletion(chat, delivered):
                    return await self._repeated(delivered)
                if chat.fields.get(deleted.MARK) not in (None, event.id) and isinstance(event, ChatDeleted):
                    return _deleted_again(chat, delivered, event)
                self._check(chat, delivered)
                if await self._known(chat, event.id):
                    return await self._repeated(delivered)
            try:
                answer = await self._attempt(chat, delivered, begun)
            except reading.Changed:
                continue
            work = self._work(delivered, answer)
            if work is not None:
                return work
        raise Transient(f"the chat changed during {ATTEMPTS} attempts to take something back")

    def _check(self, chat: Chat, delivered: Delivered) -> None:
        """What no plan is made for. The script looks again."""
        mark, position = chat.fields.get(deleted.MARK), delivered.position
        if mark is not None and mark != delivered.event.id:
            raise deleted.late(chat.id, Topics.TURNS)
        if chat.fields.get("ep") == position.epoch and chat.fields["pa"] != str(position.partition):
            raise _refused("partition", chat.fields["pa"], position)

    async def _known(self, chat: Chat, event: str) -> bool:
        if chat.fields.get(deleted.MARK) == event:
            return True
        return bool((await self._ask([("SISMEMBER", keys.ChatKeys.of(chat.id).events, event)]))[0])

    async def _repeated(self, delivered: Delivered) -> Work:
        event = delivered.event
        held = await outbox.read(self._redis, event.chat.id, AGENT)
        return self._announced(event.chat.id, held, await self._usage(delivered), repeated=True)

    async def _usage(self, delivered: Delivered) -> Work | None:
        """The regenerated reply's usage follows from the event alone, so that a redelivery finds it as well."""
        event = delivered.event
        if not isinstance(event, TurnRegenerated):
            return None
        k, digest = keys.ChatKeys.of(event.chat.id), windows.digest(event)
        turn = await reading.turn(self._ask, event.chat.id, event.turn.id)
        if turn is not None and turn.digest == digest:
            return Work(usage(event, digest, turn.at))
        # what was taken back, or deleted, was paid for all the same
        gone, ended = await self._ask(
            [
                ("SISMEMBER", k.events, ids.booked(event.turn.id, digest)),
                ("HEXISTS", k.window, deleted.MARK),
            ]
        )
        if gone or ended:
            return Work(usage(event, digest, int(happened(event, delivered.timestamp).timestamp() * 1000)))
        return None

    async def _attempt(self, chat: Chat | None, delivered: Delivered, begun: float) -> Answer:
        event = delivered.event
        if isinstance(event, ChatForked):
            return await self._fork(chat, delivered, event, begun)
        if chat is None:
            if isinstance(event, ChatDeleted):
                return await self._delete(Chat.empty(event.chat.id), delivered, event)
            raise Poison("chat.id: this chat has no turns")
        ask = reading.of_version(self._ask, chat)
        match event:
            case TurnRegenerated():
                return await self._regenerate(ask, chat, delivered, event)
            case ChatRewound():
                return await self._rewind(ask, chat, delivered, event)
            case MessageEdited():
                return await self._change(ask, chat, delivered, event.message.id, event.message.text)
            case MessageDeleted():
                return await self._change(ask, chat, delivered, event.message.id, None)
            case ChatDeleted():
                return await self._delete(chat, delivered, event)
            case _:
                raise AssertionError(event.type)

    def _work(self, delivered: Delivered, answer: Answer) -> Work | None:
        """None: the chat changed, the plan is to be made anew."""
        event, position = delivered.event, delivered.position
        if answer.status == "raced" or (answer.status == "deleted" and isinstance(event, ChatDeleted)):
            return None
        if answer.status == "deleted":
            raise deleted.late(event.chat.id, Topics.TURNS)
        if answer.status in windows.REFUSED:
            raise _refused(answer.status, answer.rest[0].decode(), position)
        rest, booked = answer.rest, None
        if answer.recorded is not None:
            recorded = answer.recorded
            if recorded.status == "order":
                return None
            if recorded.status in windows.REFUSED:
                raise _refused(recorded.status, recorded.detail, position)
            rest = recorded.outbox
            assert isinstance(event, TurnRegenerated)
            booked = Work(usage(event, windows.digest(event), int(recorded.detail)))
        held = dict(zip(rest[::2], rest[1::2], strict=True))
        return self._announced(event.chat.id, held, booked, repeated=answer.status == "repeated")

    def _announced(
        self, chat: str, held: Mapping[bytes, bytes], booked: Work | None, *, repeated: bool
    ) -> Work:
        fields = in_order(held)

        async def trim() -> None:
            await outbox.trim(self._redis, chat, AGENT, fields)

        publish = (*outbox.outgoing(held[field] for field in fields), *(booked.publish if booked else ()))
        return Work(publish, trim if fields else None, repeated)

    async def _rewind(self, ask: Ask, chat: Chat, delivered: Delivered, event: ChatRewound) -> Answer:
        at = 0
        if event.turn is not None:
            turn = await reading.turn(ask, chat.id, event.turn.id)
            if turn is None:
                raise Poison(f"turn.id: this chat has no turn {event.turn.id}")
            at = turn.end
        if at == chat.number("n"):
            return await self._run(chat, delivered, Plan(), store.WHOLE)
        plan = await self._cut(ask, chat, at, refill=True)
        return await self._run(chat, delivered, plan, store.WHOLE)

    async def _regenerate(self, ask: Ask, chat: Chat, delivered: Delivered, event: TurnRegenerated) -> Answer:
        turn = await reading.turn(ask, chat.id, event.turn.id)
        if turn is None:
            raise Poison(f"turn.id: this chat has no turn {event.turn.id}")
        if turn.end != chat.number("n"):
            raise Poison("turn.id: is not the chat's last turn; only that one can be regenerated")
        k = keys.ChatKeys.of(chat.id)
        names = [message.id for message in event.messages]
        (numbers,) = await ask([("HMGET", k.message_ids, *names)])
        for name, number in zip(names, numbers, strict=True):
            if number is not None and int(number) < turn.first:
                raise Poison(windows.REFUSED["message"].format(detail=name))
        plan = await self._cut(ask, chat, turn.first, refill=False)
        rewrite = self._call(chat, delivered, plan, store.PART)
        position, at = delivered.position, happened(event, delivered.timestamp)
        memory = memory_entry(event, position, at)
        record = windows.call(
            event,
            windows.digest(event),
            position,
            at,
            self._counter,
            self._chunk,
            generation=plan.generation,
            memory=memory,
        )
        return await store.run_with_turn(self._redis, rewrite, record)

    async def _cut(self, ask: Ask, chat: Chat, at: int, *, refill: bool) -> Plan:
        limit = policy.limit(chat)
        await reading.for_cut(ask, chat, at, limit.messages if refill else 0)
        return policy.cut(chat, at, limit, refill=refill)

    async def _change(
        self, ask: Ask, chat: Chat, delivered: Delivered, message: str, text: str | None
    ) -> Answer:
        seq = await reading.for_edit(ask, chat, message)
        if seq is None:
            raise Poison(f"message.id: this chat has no message {message}")
        before = chat.rows[seq]
        if before.deleted:
            if text is not None:
                raise Poison(f"message.id: message {message} was deleted")
            return await self._run(chat, delivered, Plan(), store.WHOLE)
        if text == before.text:
            return await self._run(chat, delivered, Plan(), store.WHOLE)
        row = Row(
            *before[:3], text or "", self._counter(text) if text else 0, before.at, before.turn, text is None
        )
        return await self._run(chat, delivered, policy.change(chat, seq, row), store.WHOLE, message=message)

    async def _fork(self, chat: Chat | None, delivered: Delivered, event: ChatForked, begun: float) -> Answer:
        if chat is not None:
            raise Poison("chat.id: a fork begins a new chat, and this one has turns already")
        source, end = await self._sources.of(delivered, event, begun)
        plan = await fork.plan(source, event, end, happened(event, delivered.timestamp))
        return await store.run(self._redis, self._call_for(event.chat.id, "", delivered, plan, store.WHOLE))

    async def _delete(self, chat: Chat, delivered: Delivered, event: ChatDeleted) -> Answer:
        plan = await deletion.plan(self._ask, chat, event)
        return await self._run(chat, delivered, plan, store.LAST)

    async def _run(
        self, chat: Chat, delivered: Delivered, plan: Plan, mode: str, *, message: str | None = None
    ) -> Answer:
        return await store.run(self._redis, self._call(chat, delivered, plan, mode, message=message))

    def _call(
        self, chat: Chat, delivered: Delivered, plan: Plan, mode: str, *, message: str | None = None
    ) -> store.Call:
        """The script's call; what the turns wrote into memories is taken back with it."""
        commands = rollbacks(delivered, plan, None if message is None else (message,))
        k, box = keys.ChatKeys.of(chat.id), keys.outbox(chat.id, AGENT)
        for place, command in enumerate(commands):
            field = memory_field(delivered.position, f"0.{place:06d}", command.id)
            plan.changes.set(box, {field: outbox.entry(Topics.MEMORY_COMMANDS, command.user_id, command)})
            if mode != store.LAST:
                plan.changes.set(k.memory_rollbacks, {command.id: command.model_dump_json(exclude_none=True)})
        return self._call_for(chat.id, chat.fields.get("v", ""), delivered, plan, mode)

    def _call_for(self, chat: str, version: str, delivered: Delivered, plan: Plan, mode: str) -> store.Call:
        hint = None
        if plan.changes.steps:
            hint = WindowChanged(
                version=plan.version, live_messages=plan.live, pending_messages=max(0, plan.pending)
            )
        return store.call(chat, delivered.event.id, delivered.position, version, mode, plan.changes, hint)


def _before_deletion(chat: Chat, delivered: Delivered) -> bool:
    """Whether an event was carried out before the chat was deleted, and is delivered again."""
    epoch, partition, offset = delivered.position
    fields = chat.fields
    if fields.get(deleted.MARK) in (None, delivered.event.id):
        return False
    return (fields.get("ep"), fields.get("pa")) == (epoch, str(partition)) and offset <= chat.number("of")


def _deleted_again(chat: Chat, delivered: Delivered, event: ChatDeleted) -> Work:
    """Of a chat that is gone; memories may still be to forget. It follows from the event alone, however often it comes."""
    memory: dict[str, list[str]] = {}
    if event.forget_memories and event.user is not None:
        memory[event.user.id] = []
    plan = Plan(memory=memory, generation=chat.number("g"))
    forgotten = (
        Outgoing(
            Topics.MEMORY_COMMANDS,
            command.user_id.encode(),
            command.model_dump_json(exclude_none=True).encode(),
        )
        for command in rollbacks(delivered, plan, None)
    )
    return Work((*forgotten, *deleted.late(chat.id, Topics.TURNS).publish), None, repeated=True)


def _refused(status: str, detail: str, position: Position) -> Poison:
    reason = windows.REFUSED[status]
    return Poison(reason.format(detail=detail, partition=position.partition, offset=position.offset))
