"""Taking back what turns have written (M9, M8, W7): exactly, whatever happened since."""

from __future__ import annotations

import pytest

from schemas.memories import Status
from services.memories.state import Action
from tests.memories import MIRA, Mind


@pytest.mark.rule("M9", "W7")
def test_a_created_entry_goes_and_nothing_quotes_it() -> None:
    mind = Mind()
    memory_id = mind.say("t1", "needle")
    answer = mind.take_back("t1")
    assert mind.find(memory_id) is None
    assert "needle" not in mind.texts()
    assert [change.action for change in mind.history(memory_id)] == [Action.created, Action.taken_back]
    assert [(r.op, r.status, r.memory_id) for r in answer.results] == [
        ("take_back", Status.applied, memory_id)
    ]
    assert mind.known.journals == {"c1": {}}


@pytest.mark.rule("M9", "W7")
def test_an_edited_one_gets_its_old_text_as_it_was() -> None:
    mind = Mind()
    memory_id = mind.say("t1", "before")
    old = mind.find(memory_id)
    mind.turn("t2", {"op": "update", "id": memory_id, "text": "needle"})
    mind.take_back("t2")
    entry = mind.find(memory_id)
    assert entry is not None
    assert old is not None
    assert entry.wording == old.wording
    assert "needle" not in mind.texts()
    mind.take_back("t1")
    assert mind.find(memory_id) is None


@pytest.mark.rule("M9")
def test_several_edits_are_taken_back_together_or_one_by_one_in_any_order() -> None:
    for order in (("t1", "t2", "t3"), ("t3", "t2", "t1"), ("t2", "t1", "t3"), ("t2", "t3", "t1")):
        mind = Mind()
        memory_id = mind.say("t0", "0")
        for n in (1, 2, 3):
            mind.turn(f"t{n}", {"op": "update", "id": memory_id, "text": str(n)})
        left = ["t0", "t1", "t2", "t3"]
        for turn in order:
            mind.take_back(turn)
            left.remove(turn)
            assert mind.text(memory_id) == left[-1][1:], (order, turn)
        mind.take_back("t0")
        assert mind.find(memory_id) is None
    together = Mind()
    memory_id = together.say("t0", "0")
    together.turn("t1", {"op": "update", "id": memory_id, "text": "1"}, {"op": "delete", "id": memory_id})
    together.take_back("t0", "t1")
    assert together.find(memory_id) is None
    assert all(change.taken_back for change in together.history(memory_id)[:-1])


@pytest.mark.rule("M9")
def test_a_deleted_one_returns_as_it_was() -> None:
    mind = Mind()
    memory_id = mind.say("t1", "text", scope="global")
    old = mind.find(memory_id)
    mind.turn("t2", {"op": "delete", "id": memory_id})
    mind.take_back("t2")
    entry = mind.find(memory_id)
    assert entry is not None
    assert old is not None
    assert entry._replace(version=old.version) == old
    assert entry.version > old.version


@pytest.mark.rule("M9", "M3")
def test_a_displaced_one_returns() -> None:
    mind = Mind()
    ids = mind.fill()
    new = mind.say("t1", "one more")
    assert mind.find(ids[0]) is None
    mind.take_back("t1")
    assert {entry.id for entry in mind.entries()} == set(ids)
    assert mind.find(new) is None


@pytest.mark.rule("M9", "M3")
def test_where_the_scope_was_filled_since_the_least_recently_updated_stays_out() -> None:
    mind = Mind()
    ids = mind.fill()
    mind.turn("t1", {"op": "delete", "id": mind.say("t0", "x")})
    assert mind.find(ids[0]) is None
    mind.save("fills the gap")
    mind.save("displaces by the user's will")
    assert mind.find(ids[1]) is None
    # what returns is the least recently updated one itself
    mind.take_back("t0", "t1")
    assert mind.find(ids[0]) is None
    last = mind.history(ids[0])[-1]
    assert (last.action, last.by) == (Action.displaced, "system")
    assert last.before is not None
    assert len(mind.entries()) == 100
    mind.ops({"op": "restore", "change": last.number})
    assert mind.text(ids[0]) == f"{MIRA} False fact number 0"


@pytest.mark.rule("M9")
def test_the_users_later_edit_wins_and_is_taken_back_to_nothing_of_it() -> None:
    mind = Mind()
    memory_id = mind.say("t1", "first")
    mind.turn("t2", {"op": "update", "id": memory_id, "text": "needle"})
    mind.ops({"op": "update", "id": memory_id, "text": "by the user"})
    edit = mind.last(memory_id)
    mind.take_back("t2")
    assert mind.text(memory_id) == "by the user"
    assert "needle" not in mind.texts()
    mind.ops({"op": "restore", "change": edit})
    assert mind.text(memory_id) == "first"


@pytest.mark.rule("M9")
def test_an_entry_that_the_user_edited_stays_when_its_creation_is_taken_back() -> None:
    mind = Mind()
    memory_id = mind.say("t1", "needle")
    mind.ops({"op": "update", "id": memory_id, "text": "by the user"})
    mind.take_back("t1")
    assert mind.text(memory_id) == "by the user"
    assert "needle" not in mind.texts()
    edited = next(change for change in mind.history(memory_id) if change.action is Action.edited)
    assert edited.before is None


@pytest.mark.rule("M9")
def test_a_later_edit_of_a_turn_that_stays_wins_and_is_exact_when_it_goes() -> None:
    mind = Mind()
    memory_id = mind.save("typed", "global")
    own = mind.say("t1", "one")
    mind.turn("t2", {"op": "update", "id": own, "text": "two"}, chat="c2")
    mind.take_back("t1")
    assert mind.text(own) == "two"
    mind.take_back("t2", chat="c2")
    assert mind.find(own) is None
    assert mind.text(memory_id) == "typed"


@pytest.mark.rule("M9", "M8")
def test_what_is_pinned_now_is_untouched() -> None:
    mind = Mind()
    created, edited, deleted = (mind.say("t1", text) for text in ("a", "b", "c"))
    mind.turn("t2", {"op": "update", "id": edited, "text": "b2"}, {"op": "delete", "id": deleted})
    mind.ops({"op": "restore", "change": mind.last(deleted)})
    for memory_id in (created, edited, deleted):
        mind.ops({"op": "pin", "id": memory_id})
    before = mind.entries(), mind.changes()
    answer = mind.take_back("t1", "t2")
    assert (mind.entries(), mind.changes()) == before
    assert answer.results == ()
    # it is settled: unpinning later changes nothing
    mind.ops({"op": "unpin", "id": created})
    mind.take_back("t1", "t2")
    assert mind.text(created) == "a"


@pytest.mark.rule("M9")
def test_what_was_moved_goes_or_gets_its_text_where_it_is() -> None:
    mind = Mind()
    created, edited = mind.say("t1", "a"), mind.say("t0", "b")
    mind.turn("t1", {"op": "update", "id": edited, "text": "b2"})
    for memory_id in (created, edited):
        mind.ops({"op": "move", "id": memory_id, "scope": "character:tom"})
    mind.take_back("t1")
    assert mind.find(created) is None
    entry = mind.find(edited)
    assert entry is not None
    assert (entry.scope, entry.wording.text) == ("character:tom", "b")


@pytest.mark.rule("M9")
def test_what_the_user_deleted_stays_deleted() -> None:
    mind = Mind()
    memory_id = mind.say("t1", "old")
    mind.turn("t2", {"op": "update", "id": memory_id, "text": "needle"})
    mind.ops({"op": "delete", "id": memory_id})
    deleted = mind.last(memory_id)
    mind.take_back("t2")
    assert mind.find(memory_id) is None
    assert "needle" not in mind.texts()
    mind.ops({"op": "restore", "change": deleted})
    assert mind.text(memory_id) == "old"


@pytest.mark.rule("M9")
def test_what_the_user_restored_stays_and_an_own_deletion_is_settled() -> None:
    mind = Mind()
    memory_id = mind.say("t1", "text")
    mind.turn("t2", {"op": "delete", "id": memory_id})
    mind.ops({"op": "restore", "change": mind.last(memory_id)})
    mind.take_back("t2")
    assert mind.text(memory_id) == "text"
    mind.take_back("t1")
    assert mind.text(memory_id) == "text", "restoring it was the user's will"


@pytest.mark.rule("M9", "M10")
def test_what_was_cleared_does_not_return() -> None:
    mind = Mind()
    edited, deleted = mind.say("t1", "needle a"), mind.say("t1", "b")
    mind.turn("t2", {"op": "update", "id": edited, "text": "needle c"}, {"op": "delete", "id": deleted})
    mind.run("memory.clear", scope=MIRA)
    answer = mind.take_back("t2")
    assert [result.memory_id for result in answer.results] == [deleted]
    assert mind.text(edited) is None
    assert mind.text(deleted) == "b", "it was not in the scope when that was cleared"
    assert "needle" not in mind.texts()


@pytest.mark.rule("M9", "M5")
def test_a_deleted_entry_of_a_deleted_character_returns_as_a_global_one() -> None:
    mind = Mind()
    deleted, created = mind.say("t1", "text"), mind.say("t2", "new")
    mind.turn("t2", {"op": "delete", "id": deleted})
    mind.run("character.deleted", character="mira")
    mind.take_back("t2")
    assert mind.find(created) is None
    assert mind.find(deleted).scope == "global"  # type: ignore[union-attr]


@pytest.mark.rule("M9")
def test_only_the_turns_of_that_chat_are_taken_back() -> None:
    mind = Mind()
    one, other = mind.say("t1", "one"), mind.say("t2", "other")
    [result] = mind.turn("t1", {"op": "save", "text": "elsewhere"}, chat="c2")
    by_hand = mind.run(
        by="user", ops=[{"op": "save", "text": "by hand"}], source={"chat": "c1", "turn": "t1"}
    )
    mind.take_back("t1")
    assert mind.find(one) is None
    assert mind.find(other) is not None
    assert mind.find(result.memory_id or "") is not None
    assert mind.find(by_hand.results[0].memory_id or "") is not None


@pytest.mark.rule("M9", "W7")
def test_of_a_message_only_what_came_from_it_or_from_its_whole_turn() -> None:
    mind = Mind()
    whole = mind.say("t1", "from the turn")
    first = mind.say("t1", "from the first", source={"chat": "c1", "messages": ["m1"]})
    second = mind.say("t1", "from the second", source={"chat": "c1", "messages": ["m2"]})
    deep = (
        mind.run(
            by="deep_memory",
            character="mira",
            source={"chat": "c1", "messages": ["m0", "m1"]},
            ops=[{"op": "save", "text": "from a chunk"}],
        )
        .results[0]
        .memory_id
    )
    mind.take_back("t1", messages=["m1"])
    assert [mind.find(memory_id or "") is None for memory_id in (whole, first, second, deep)] == [
        True,
        True,
        False,
        True,
    ]
    mind.take_back("t1")
    assert mind.find(second) is None


@pytest.mark.rule("W7")
def test_all_that_a_chat_has_written_can_be_taken_back() -> None:
    mind = Mind()
    mind.say("t1", "a"), mind.say("t2", "b")
    mind.run(by="deep_memory", character="mira", source={"chat": "c1"}, ops=[{"op": "save", "text": "c"}])
    kept = mind.save("by hand")
    mind.run("memory.rollback", chat_id="c1", generation=1)
    assert [entry.id for entry in mind.entries()] == [kept]
    assert mind.known.journals == {"c1": {}}


@pytest.mark.rule("M9")
def test_taking_back_twice_changes_nothing_more() -> None:
    mind = Mind()
    memory_id = mind.say("t1", "a")
    mind.take_back("t1")
    before = mind.entries(), mind.changes(), mind.known.version
    assert mind.take_back("t1").results == ()
    assert (mind.entries(), mind.changes(), mind.known.version) == before
    assert mind.find(memory_id) is None


@pytest.mark.rule("M9")
def test_a_regenerated_turn_writes_anew() -> None:
    mind = Mind()
    old = mind.say("t1", "as it was")
    mind.take_back("t1")
    new = mind.say("t1", "as it was")
    assert old != new
    mind.take_back("t1")
    assert mind.entries() == []
