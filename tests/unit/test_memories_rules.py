"""Caps, pins, who may change what, switching off, clearing, deleted characters (M1 to M5, M7, M8, M10, O1)."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.memories import MemoryOps, OpResult, Save, Status
from services.memories import policy
from services.memories.state import GONE, GONE_OFF, Action
from tests.memories import MIRA, Mind, command


def refused(results: list[OpResult]) -> str:
    """Why the only operation was refused."""
    [result] = results
    assert result.status is Status.refused, result
    assert result.change is None
    assert result.reason is not None
    return result.reason


@pytest.mark.rule("M3")
@pytest.mark.parametrize(
    "character",
    ["x", "\U0001f9e1", "e\u0301"[1], "\u0e01", "\U0001f469"],
    ids=["ascii", "emoji", "combining mark", "Thai", "astral"],
)
def test_500_unicode_characters_fit_and_501_do_not(character: str) -> None:
    mind = Mind()
    text = "a" + character * 499
    memory_id = mind.save(text)
    assert mind.text(memory_id) == text
    reason = refused(mind.ops({"op": "save", "text": text + character}))
    assert reason == "text: has 501 characters, the limit is 500"
    assert refused(mind.ops({"op": "update", "id": memory_id, "text": text + character})) == reason


@pytest.mark.rule("M3")
def test_a_letter_and_its_mark_are_two_characters_and_a_family_is_seven() -> None:
    mind = Mind()
    family = "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466"
    assert len(family) == 7
    mind.save(family * 71 + "abc")
    assert "501" in refused(mind.ops({"op": "save", "text": family * 71 + "abcd"}))
    mind.save("e\u0301" * 250)
    assert "501" in refused(mind.ops({"op": "save", "text": "e\u0301" * 250 + "e"}))


@pytest.mark.rule("M3")
def test_the_101st_displaces_the_least_recently_updated() -> None:
    mind = Mind()
    ids = mind.fill()
    assert len(mind.entries()) == 100
    mind.ops({"op": "update", "id": ids[0], "text": "newer now"})
    [result] = mind.ops({"op": "save", "text": "one more", "scope": MIRA})
    assert result.displaced == ids[1]
    assert mind.find(ids[1]) is None
    assert mind.text(ids[0]) == "newer now"
    assert mind.history(ids[1])[-1].action is Action.displaced
    assert len(mind.entries()) == 100


@pytest.mark.rule("M3", "M11")
def test_what_was_displaced_can_be_restored_and_displaces_in_turn() -> None:
    mind = Mind()
    ids = mind.fill()
    mind.save("one more")
    [result] = mind.ops({"op": "restore", "change": mind.last(ids[0])})
    assert (result.status, result.displaced) == (Status.applied, ids[1])
    assert mind.text(ids[0]) == f"{MIRA} False fact number 0"
    # the one that came back is up to date: the next one goes first
    [result] = mind.ops({"op": "save", "text": "yet another", "scope": MIRA})
    assert result.displaced == ids[2]


@pytest.mark.rule("M3")
def test_another_scope_has_its_own_caps() -> None:
    mind = Mind()
    mind.fill()
    mind.fill(count=20, pinned=True)
    [result] = mind.ops({"op": "save", "text": "elsewhere", "scope": "character:tom"})
    assert result.displaced is None
    mind.save("pinned elsewhere", "global", pinned=True)


@pytest.mark.rule("M3", "M8")
def test_the_21st_pin_is_refused() -> None:
    mind = Mind()
    pins = mind.fill(count=20, pinned=True)
    reason = "pinned: the scope has 20 pins, the limit is 20; unpin one first"
    unpinned = mind.save("unpinned")
    moved = mind.save("pinned elsewhere", "global", pinned=True)
    before = mind.entries()
    assert refused(mind.ops({"op": "save", "text": "a", "scope": MIRA, "pinned": True})) == reason
    assert refused(mind.ops({"op": "pin", "id": unpinned})) == reason
    assert refused(mind.ops({"op": "move", "id": moved, "scope": MIRA})) == reason
    assert mind.entries() == before
    mind.ops({"op": "unpin", "id": pins[3]})
    [result] = mind.ops({"op": "pin", "id": unpinned})
    assert result.status is Status.applied


@pytest.mark.rule("M8")
def test_a_pin_that_was_deleted_comes_back_only_where_there_is_room() -> None:
    mind = Mind()
    pins = mind.fill(count=20, pinned=True)
    mind.ops({"op": "delete", "id": pins[0]})
    deleted = mind.last(pins[0])
    other = mind.save("another pin", pinned=True)
    assert "20 pins" in refused(mind.ops({"op": "restore", "change": deleted}))
    mind.ops({"op": "delete", "id": other})
    mind.ops({"op": "restore", "change": deleted})
    found = mind.find(pins[0])
    assert found is not None
    assert found.pinned


@pytest.mark.rule("M3", "M8")
def test_a_pin_is_never_displaced_and_counts_for_itself() -> None:
    mind = Mind()
    pin = mind.save("the oldest of all", pinned=True)
    mind.fill()
    for n in range(5):
        mind.save(f"more {n}")
    assert mind.text(pin) == "the oldest of all"
    assert len(mind.entries()) == 101


@pytest.mark.rule("M3")
def test_unpinning_and_moving_into_a_full_scope_displace_another_one() -> None:
    mind = Mind()
    pin = mind.save("pinned", pinned=True)
    elsewhere = mind.save("elsewhere", "global")
    ids = mind.fill()
    [result] = mind.ops({"op": "unpin", "id": pin})
    assert result.displaced == ids[0]
    [result] = mind.ops({"op": "move", "id": elsewhere, "scope": MIRA})
    assert result.displaced == pin, "it is the least recently updated one now"
    found = mind.find(elsewhere)
    assert found is not None
    assert found.scope == MIRA


@pytest.mark.rule("M3", "M8")
def test_what_changes_together_takes_room_only_where_it_ends() -> None:
    mind = Mind()
    moved = mind.save("to be pinned among Mira's", "global")
    pin = mind.save("to be unpinned among everyone's", pinned=True)
    ids = mind.fill()
    results = mind.ops(
        {"op": "move", "id": moved, "scope": MIRA}, {"op": "pin", "id": moved}, together=True
    ) + mind.ops({"op": "unpin", "id": pin}, {"op": "move", "id": pin, "scope": "global"}, together=True)
    assert {(result.status, result.displaced) for result in results} == {(Status.applied, None)}
    assert len(mind.entries()) == 102
    # what does end there has its room, and all that arrived stays, however old
    old = mind.ops({"op": "unpin", "id": moved}, {"op": "move", "id": pin, "scope": MIRA}, together=True)
    assert sorted(result.displaced or "" for result in old) == sorted(ids[:2])
    assert None not in (mind.find(moved), mind.find(pin))


@pytest.mark.rule("M1")
def test_a_scope_is_chosen_when_a_memory_is_made() -> None:
    mind = Mind()
    assert mind.find(mind.say("t1", "of Mira's")).scope == MIRA  # type: ignore[union-attr]
    assert mind.find(mind.say("t1", "of all", scope="global")).scope == "global"  # type: ignore[union-attr]
    [result] = mind.ops({"op": "save", "text": "by default for all"})
    assert mind.find(result.memory_id or "").scope == "global"  # type: ignore[union-attr]
    [result] = mind.ops({"op": "save", "text": "where the user writes to Tom"}, character="tom")
    assert mind.find(result.memory_id or "").scope == "character:tom"  # type: ignore[union-attr]


@pytest.mark.rule("M2")
def test_all_chats_with_a_character_read_and_write_one_store() -> None:
    mind = Mind()
    memory_id = mind.say("t1", "said in the first chat")
    [result] = mind.turn("t1", {"op": "update", "id": memory_id, "text": "changed in the second"}, chat="c2")
    assert result.status is Status.applied
    assert mind.text(memory_id) == "changed in the second"


@pytest.mark.rule("M7")
def test_a_character_changes_and_deletes_what_it_wrote() -> None:
    mind = Mind()
    own = mind.say("t1", "own")
    for_all = mind.say("t1", "for all", scope="global")
    deep = mind.turn("t1", {"op": "save", "text": "noticed in the background"}, by="deep_memory")[0].memory_id
    results = mind.turn(
        "t2",
        {"op": "update", "id": own, "text": "own, better"},
        {"op": "delete", "id": for_all},
        {"op": "update", "id": deep, "text": "noticed, better"},
    )
    assert [result.status for result in results] == [Status.applied] * 3
    assert mind.find(for_all) is None


@pytest.mark.rule("M7", "M8")
def test_a_character_is_told_why_it_may_not() -> None:
    mind = Mind()
    typed = mind.save("typed by the user")
    pin = mind.say("t1", "pinned since")
    mind.ops({"op": "pin", "id": pin})
    edited = mind.say("t1", "edited since")
    mind.ops({"op": "update", "id": edited, "text": "edited by the user"})
    toms = mind.save("of Tom's", "character:tom")
    [result] = mind.turn("t1", {"op": "save", "text": "said by Tom", "scope": "global"}, character="tom")
    gone = mind.say("t1", "gone soon")
    mind.turn("t1", {"op": "delete", "id": gone})
    before = mind.entries()

    def why(op: dict[str, Any]) -> str:
        return refused(mind.turn("t2", op))

    for op in ({"op": "delete"}, {"op": "update", "text": "else"}):
        assert why({**op, "id": typed}) == "id: the user wrote this entry"
        assert why({**op, "id": pin}) == "id: this entry is pinned, only the user changes it"
        assert why({**op, "id": edited}) == "id: the user wrote this entry"
        assert why({**op, "id": toms}) == "id: belongs to another character"
        assert why({**op, "id": result.memory_id}) == "id: belongs to another character"
        assert why({**op, "id": gone}) == "id: no such entry"
        assert why({**op, "id": "mem-unknown"}) == "id: no such entry"
    assert why({"op": "save", "text": "a", "pinned": True}) == "pinned: only the user pins"
    assert why({"op": "save", "text": "a", "scope": "character:tom"}) == "scope: belongs to another character"
    for op in (
        {"op": "pin", "id": gone},
        {"op": "unpin", "id": pin},
        {"op": "move", "id": gone, "scope": "global"},
        {"op": "restore", "change": mind.last(gone)},
    ):
        assert why(op) == f"op: only the user can {op['op']} a memory"
    assert mind.entries() == before


@pytest.mark.rule("M7")
def test_a_wrong_call_is_refused_and_spoils_no_other() -> None:
    mind = Mind()
    results = mind.turn(
        "t1",
        {"op": "remember", "text": "secret"},
        {"text": "secret"},
        {"op": "save"},
        {"op": "save", "text": "  "},
        {"op": "save", "text": "right", "scope": "everywhere"},
        {"op": "update", "id": 7, "text": "secret"},
        {"op": "save", "text": "right"},
    )
    assert [result.status for result in results] == [Status.refused] * 6 + [Status.applied]
    reasons = [result.reason or "" for result in results]
    assert reasons[0] == "op: is none of save, update, delete, pin, unpin, move, restore"
    assert reasons[1] == reasons[0]
    assert reasons[2].startswith("text: ")
    assert reasons[3] == "text: is empty"
    assert reasons[4].startswith("scope: ")
    assert reasons[5].startswith("id: ")
    assert not any("secret" in reason for reason in reasons)


@pytest.mark.rule("M7")
def test_a_call_can_be_checked_before_it_counts() -> None:
    mind = Mind()
    typed = mind.save("typed by the user")
    of = command(99, by="character", character="mira", ops=[])
    assert isinstance(of, MemoryOps)
    op = policy.parse({"op": "delete", "id": typed})
    assert not isinstance(op, str)
    assert policy.check(op, mind.edits(), of) == "id: the user wrote this entry"
    assert policy.check(Save(text="new"), mind.edits(), of) is None


@pytest.mark.rule("O1")
def test_learning_off_stops_models_and_not_the_user() -> None:
    mind = Mind()
    own = mind.say("t1", "own")
    [result] = mind.run("memory.settings", character="mira", learn_from_chat=False).results
    assert result.status is Status.applied
    for by in ("character", "deep_memory"):
        for op in ({"op": "save", "text": "more"}, {"op": "delete", "id": own}):
            assert refused(mind.turn("t2", op, by=by)) == "learning is off for this character"
    mind.save("by hand")
    [other] = mind.turn("t2", {"op": "save", "text": "said by Tom"}, character="tom")
    assert other.status is Status.applied
    [result] = mind.run("memory.settings", character="mira", learn_from_chat=False).results
    assert result.status is Status.unchanged
    mind.run("memory.settings", character="mira", learn_from_chat=True)
    mind.say("t3", "on again")
    switched = [change.action for change in mind.changes() if not change.memory_id]
    assert switched == [Action.learning_off, Action.learning_on]


@pytest.mark.rule("M10", "M8")
def test_clear_all_takes_two_calls() -> None:
    mind = Mind()
    mind.fill(count=3)
    pins = mind.fill(count=2, pinned=True)
    elsewhere = mind.save("elsewhere", "global")
    answer = mind.run("memory.clear", scope=MIRA)
    assert answer.kept_pins == 2
    assert [result.status for result in answer.results] == [Status.applied] * 3
    assert {entry.id for entry in mind.entries()} == {*pins, elsewhere}
    for expected in (None, 1, 3):
        answer = mind.run("memory.clear", scope=MIRA, pinned=True, expected=expected)
        assert "has 2 pins" in refused(list(answer.results))
        assert answer.kept_pins == 2
    answer = mind.run("memory.clear", scope=MIRA, pinned=True, expected=2)
    assert answer.kept_pins == 0
    assert [entry.id for entry in mind.entries()] == [elsewhere]


@pytest.mark.rule("M10")
def test_what_is_cleared_is_gone_for_good() -> None:
    mind = Mind()
    needle = mind.save("needle one")
    mind.ops({"op": "update", "id": needle, "text": "needle two"})
    mind.ops({"op": "delete", "id": needle})
    mind.ops({"op": "restore", "change": mind.last(needle)})
    numbers = [change.number for change in mind.history(needle)]
    mind.run("memory.clear", scope=MIRA)
    assert "needle" not in mind.texts()
    assert [change.action.value for change in mind.history(needle)] == [
        "created",
        "edited",
        "deleted",
        "restored",
        "cleared",
    ]
    for number in numbers:
        assert "gone for good" in refused(mind.ops({"op": "restore", "change": number}))


@pytest.mark.rule("M5")
def test_memories_of_a_deleted_character_become_global() -> None:
    mind = Mind()
    kept = [mind.save("unpinned"), mind.save("pinned", pinned=True), mind.save("global", "global")]
    answer = mind.run("character.deleted", character="mira")
    assert {entry.id: (entry.scope, entry.pinned) for entry in mind.entries()} == {
        kept[0]: ("global", False),
        kept[1]: ("global", True),
        kept[2]: ("global", False),
    }
    assert answer.notice is None
    assert [change.action for change in mind.history(kept[0])] == [Action.created, Action.globalised]


@pytest.mark.rule("M5", "M3")
def test_what_finds_no_room_stays_in_the_history_and_the_owner_is_told() -> None:
    mind = Mind()
    mind.fill("global", 98)
    mind.fill("global", 19, pinned=True)
    unpinned, pins = mind.fill(count=4), mind.fill(count=3, pinned=True)
    answer = mind.run("character.deleted", character="mira")
    assert {entry.id for entry in mind.entries()} >= {*unpinned[2:], pins[2]}
    assert len(mind.entries()) == 120
    assert answer.notice is not None
    assert answer.notice.startswith("4 memories of a deleted character found no room")
    for memory_id in (*unpinned[:2], *pins[:2]):
        last = mind.history(memory_id)[-1]
        assert last.action is Action.displaced
        assert last.before is not None
    [result] = mind.ops({"op": "restore", "change": mind.last(unpinned[0])})
    assert mind.find(unpinned[0]).scope == "global"  # type: ignore[union-attr]
    assert result.displaced is not None
    assert "20 pins" in refused(mind.ops({"op": "restore", "change": mind.last(pins[0])}))


@pytest.mark.rule("M5")
def test_nothing_is_lost_in_the_scope_of_a_deleted_character() -> None:
    mind = Mind()
    deleted = mind.save("deleted before")
    mind.ops({"op": "delete", "id": deleted})
    mind.run("character.deleted", character="mira")
    assert mind.known.settings == {"mira": GONE}
    mind.ops({"op": "restore", "change": mind.last(deleted)})
    late = mind.say("t9", "from a turn that was under way")
    assert {entry.scope for entry in mind.entries()} == {"global"}
    assert mind.text(late) is not None
    version = mind.known.version
    assert mind.run("character.deleted", character="mira").version == version
    [result] = mind.run("memory.settings", character="mira", learn_from_chat=False).results
    assert result.status is Status.refused


@pytest.mark.rule("M5", "O1")
def test_a_deleted_character_that_was_not_learned_from_stays_so() -> None:
    mind = Mind()
    mind.run("memory.settings", character="mira", learn_from_chat=False)
    mind.save("by hand")
    mind.run("character.deleted", character="mira")
    assert mind.known.settings == {"mira": GONE_OFF}
    assert {entry.scope for entry in mind.entries()} == {"global"}
    reason = refused(mind.turn("t9", {"op": "save", "text": "from a turn that was under way"}))
    assert reason == "learning is off for this character"


@pytest.mark.rule("M4", "O1")
def test_what_only_another_character_knows_who_is_not_learned_from_is_no_echo() -> None:
    mind = Mind()
    mind.turn(
        "t1", {"op": "save", "text": "The cat is called Miso.", "scope": "character:tom"}, character="tom"
    )
    mind.run("memory.settings", character="tom", learn_from_chat=False)
    [result] = mind.turn("t2", {"op": "save", "text": "The cat is called Miso."}, characters=("mira", "tom"))
    assert result.status is Status.applied


def test_the_result_of_what_is_no_operation_has_no_text_of_it() -> None:
    [result] = Mind().turn("t1", {"op": "Theo owes Mira twelve crowns"})
    assert (result.op, result.status) == ("", Status.refused)


@pytest.mark.rule("M11")
def test_the_history_tells_what_when_who_from_where_and_what_it_replaced() -> None:
    mind = Mind()
    source = {"chat": "c1", "turn": "t1", "messages": ["m1"]}
    [saved] = mind.turn("t1", {"op": "save", "text": "one", "source": source})
    memory_id = saved.memory_id or ""
    mind.ops({"op": "update", "id": memory_id, "text": "two"})
    mind.ops({"op": "move", "id": memory_id, "scope": "global"})
    created, edited, moved = mind.history(memory_id)
    assert (created.action, created.by, created.character) == (Action.created, "character", "mira")
    assert created.source == ("c1", "t1", ("m1",))
    assert (created.before, created.after.text if created.after else "") == (None, "one")
    assert (edited.by, edited.before, edited.command) == ("user", created.after, "k2")
    assert edited.at - created.at == 1000
    assert (moved.scope, moved.from_scope, moved.before) == ("global", MIRA, None)
    assert [change.previous for change in (created, edited, moved)] == [0, 1, 2]


@pytest.mark.rule("M11")
def test_an_older_text_can_be_restored() -> None:
    mind = Mind()
    memory_id = mind.say("t1", "first")
    mind.ops({"op": "update", "id": memory_id, "text": "second"})
    number = mind.last(memory_id)
    mind.ops({"op": "restore", "change": number})
    entry = mind.find(memory_id)
    assert entry is not None
    assert (entry.wording.text, entry.wording.by, entry.version) == ("first", "character", 3)
    assert mind.ops({"op": "restore", "change": number})[0].status is Status.unchanged
    for wrong in (1, 99):
        assert mind.ops({"op": "restore", "change": wrong})[0].status is Status.refused


def test_an_id_can_be_given_once() -> None:
    mind = Mind()
    assert mind.save("one", id="mine") == "mine"
    assert refused(mind.ops({"op": "save", "text": "two", "id": "mine"})) == "id: is taken"
    mind.ops({"op": "delete", "id": "mine"})
    assert refused(mind.ops({"op": "save", "text": "two", "id": "mine"})) == "id: is taken"


def test_a_command_that_is_forgotten_saves_nothing_twice() -> None:
    mind = Mind()
    of = command(1, by="user", ops=[{"op": "save", "text": "once"}])
    mind.carry_out(of)
    [result] = mind.carry_out(of).results
    assert result.status is Status.unchanged
    assert len(mind.entries()) == 1


def test_what_is_so_already_is_unchanged() -> None:
    mind = Mind()
    memory_id = mind.save("text")
    version = mind.known.version
    for op in (
        {"op": "update", "id": memory_id, "text": "text"},
        {"op": "unpin", "id": memory_id},
        {"op": "move", "id": memory_id, "scope": MIRA},
    ):
        assert mind.ops(op)[0].status is Status.unchanged
    assert mind.known.version == version
