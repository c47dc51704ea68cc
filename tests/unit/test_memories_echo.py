"""An echo is what merely repeats a memory; a negation, a number or a name that changed never passes for one (M6)."""

from __future__ import annotations

import time
from typing import Any

import pytest

from schemas.memories import Author, Status
from services.memories import echo
from services.memories.injection import line
from tests.memories import Mind

SAME = [
    ("Theo's boat, the Heron, is 9.2 metres long.", "theo’s boat - the Heron - is 9.2 metres long"),
    ("She said: “I hate rain”.", 'She said "I hate rain"!'),
    ("The user’s *favourite* colour is blue", "the users favourite colour is BLUE."),
    ("Die Straße heißt Königsallee.", "DIE STRASSE HEISST KÖNIGSALLEE"),
    ("Elle habite à Orléans.", "elle habite a\u0300 Orle\u0301ans"),
    ("¿Vive en Málaga?", "Vive en Málaga"),
    ("Он живёт в Москве.", "он живёт в Москве!"),
    ("Ο Νίκος μένει στην Αθήνα.", "ο νίκος μένει στην αθήνα"),
    ("ธีโอมีเรือชื่อเฮรอน ยาว 9.2 เมตร", "ธีโอมีเรือชื่อเฮรอนยาว 9.2 เมตร"),
    ("西奥有一条船，叫苍鹭。", "西奥有一条船 叫苍鹭"),
    ("テオはボートを持っている。", "テオは ボートを持っている"),
    ("ﾃｵのﾎﾞｰﾄは９メートル", "テオのボートは9メートル。"),
    ("يملك ثيو قاربًا طوله ٩٫٢ أمتار", "يملك ثيو قاربا طوله 9.2 أمتار."),
    ("קוראים לו תֵּאוֹ", "קוראים לו תאו"),
    ("테오는 배를 가지고 있다.", "테오는 배를 가지고 있다"),
    ("थियो के पास नाव है।", "थियो के पास नाव है"),
    ("Alice's soft\u00adware", "Alices software"),
    ("He is happy \u2764\ufe0f", "he is happy \u2764"),
]

OTHER = [
    # a negation more, less, or in a letter
    ("Theo is afraid of heights", "Theo is not afraid of heights"),
    ("Theo can swim across the whole bay", "Theo can't swim across the whole bay"),
    ("The plan that Theo has is possible", "The plan that Theo has is impossible"),
    ("Theo is notable among all the sailors here", "Theo is not able among all the sailors here"),
    ("Theo hat ein Boot und wohnt seit Jahren am See", "Theo hat kein Boot und wohnt seit Jahren am See"),
    ("Theo mag den Regen im Herbst", "Theo mag nicht den Regen im Herbst"),
    ("Elle aime la pluie de novembre", "Elle n'aime pas la pluie de novembre"),
    ("Le gusta la lluvia de noviembre", "No le gusta la lluvia de noviembre"),
    ("Он любит дождь в ноябре", "Он не любит дождь в ноябре"),
    ("Her sabah erkenden okula geliyor", "Her sabah erkenden okula gelmiyor"),
    ("Hän asuu nykyään Helsingissä", "Hän ei asu nykyään Helsingissä"),
    ("ธีโอชอบฝนในเดือนพฤศจิกายน", "ธีโอไม่ชอบฝนในเดือนพฤศจิกายน"),
    ("西奥喜欢十一月的雨", "西奥不喜欢十一月的雨"),
    ("テオは十一月の雨が好きだ", "テオは十一月の雨が好きではない"),
    ("يحب ثيو المطر في نوفمبر", "لا يحب ثيو المطر في نوفمبر"),
    ("הוא אוהב גשם בנובמבר", "הוא לא אוהב גשם בנובמבר"),
    ("테오는 비를 좋아한다", "테오는 비를 안 좋아한다"),
    ("थियो को बारिश पसंद है", "थियो को बारिश पसंद नहीं है"),
    # a number
    ("The boat is 9.2 metres long", "The boat is 92 metres long"),
    ("The boat is 9.2 metres long", "The boat is 9.5 metres long"),
    ("It was -5 degrees on the lake", "It was 5 degrees on the lake"),
    ("Theo pays 5% of it", "Theo pays 5 of it"),
    ("Theo owes 5 €", "Theo owes 5 $"),
    ("قارب طوله ٩ أمتار", "قارب طوله ٨ أمتار"),
    ("ยาว ๙ เมตร", "ยาว ๘ เมตร"),
    ("She was born on 3/4", "She was born on 4/3"),
    # a name, a mark on a letter, who does what to whom, a sign
    ("The name of her oldest friend is Theo", "The name of her oldest friend is Thea"),
    ("Theo married Kristian at the lake", "Theo married Kristina at the lake"),
    ("Cumple un año", "Cumple un ano"),
    ("ธีโอชอบข่าว", "ธีโอชอบข้าว"),
    ("Der Hund beißt den Mann", "Den Hund beißt der Mann"),
    ("Theo loves Anna", "Anna loves Theo"),
    ("Theo loves his \U0001f431", "Theo loves his \U0001f436"),
    ("Theo wants tea", "Theo wants tea or coffee"),
    ("Theo is dead. It was a dream.", "Theo is dead."),
    ("Theo lives in Graz", "Theo lived in Graz"),
]


@pytest.mark.rule("M6")
@pytest.mark.parametrize(("memory", "written"), SAME)
def test_the_way_it_is_written_makes_no_difference(memory: str, written: str) -> None:
    assert echo.plain(memory) == echo.plain(written)
    assert echo.likeness(memory) == echo.likeness(written)


@pytest.mark.rule("M6")
@pytest.mark.parametrize(("memory", "written"), OTHER)
def test_what_says_something_else_is_none(memory: str, written: str) -> None:
    assert echo.likeness(memory) != echo.likeness(written)


@pytest.mark.rule("M6")
@pytest.mark.parametrize(("pinned", "recent"), [(False, False), (True, False), (False, True), (True, True)])
def test_a_line_of_the_prompt_is_an_echo(pinned: bool, recent: bool) -> None:
    text = "Theo owes Mira twelve crowns."
    written = line("mem-604185119437", text, pinned=pinned, recent=recent)
    assert echo.likeness(written) == echo.likeness(text)
    assert echo.likeness(written.removeprefix("- ")) == echo.likeness(text)


@pytest.mark.rule("M4", "M6", "M7")
@pytest.mark.parametrize("by", [Author.character, Author.deep_memory])
def test_an_echo_changes_nothing_and_names_the_memory(by: Author) -> None:
    mind = Mind()
    everyones = mind.save("Theo's boat is called the Heron.", "global")
    toms = mind.save("Tom dislikes rain.", "character:tom")
    own = mind.say("t0", "Mira keeps the logbook.")
    version = mind.known.version
    told: dict[str, Any] = {"by": by, "characters": ["mira", "tom"]}
    results = mind.turn(
        "t1",
        {"op": "save", "text": "theo's boat is called the heron"},
        {"op": "save", "text": "Tom dislikes rain", "scope": "global"},
        {"op": "update", "id": own, "text": "Tom dislikes rain!"},
        **told,
    )
    assert [(result.status, result.memory_id) for result in results] == [
        (Status.echo, everyones),
        (Status.echo, toms),
        (Status.echo, toms),
    ]
    assert mind.known.version == version
    # what was not in the context is not repeated
    [result] = mind.turn("t1", {"op": "save", "text": "Tom dislikes rain"}, by=by)
    assert result.status is Status.applied


@pytest.mark.rule("M7")
def test_how_an_entry_is_written_can_be_corrected() -> None:
    mind = Mind()
    own = mind.say("t0", "theo lives in paris")
    [result] = mind.turn("t1", {"op": "update", "id": own, "text": "Theo lives in Paris."})
    assert (result.status, mind.text(own)) == (Status.applied, "Theo lives in Paris.")


@pytest.mark.rule("M6")
def test_a_user_may_say_it_twice() -> None:
    mind = Mind()
    assert mind.save("the same") != mind.save("the same")


def test_600_entries_cost_little() -> None:
    mind = Mind()
    for scope in ("global", "character:mira", "character:tom"):
        mind.fill(scope, 100)
    edits = mind.edits()
    likeness = echo.likeness("x" * 500)
    started = time.process_time()
    for _ in range(10):
        for held in (held for entries in edits.scopes.values() for held in entries.values()):
            assert held.likeness != likeness
    assert (time.process_time() - started) / 10 < 0.002
