"""Each format as it is written in the wild: who said what when, and what is left out and why."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pytest

from schemas.chat import Surface
from schemas.turns import Role, TurnRecorded
from services.imports import head as heads
from services.imports.formats import detect
from services.imports.port import ImportRefused, Options, WhoIsTheUser
from services.imports.service import Report, events
from services.imports.source import Source

DATA = Path(__file__).parent / "data" / "imports"
FILES = {
    "sillytavern.jsonl": "sillytavern",
    "chatgpt.json": "chatgpt",
    "telegram-chat.json": "telegram",
    "telegram-full.json": "telegram",
    "discord.json": "discord",
    "plain.jsonl": "jsonl",
    "conversations.jsonl": "jsonl",
}


class Read(NamedTuple):
    turns: list[TurnRecorded]
    report: Report

    def said(self, chat: str | None = None) -> list[list[tuple[str, str]]]:
        """(letter of the role, text) by turn."""
        return [
            [(message.role[0], message.text) for message in turn.messages]
            for turn in self.turns
            if chat in (None, turn.chat.id)
        ]


def read(path: Path, options: Options | None = None) -> Read:
    report = Report()
    source = Source(path)
    try:
        return Read([one.event for one in events(source, options or Options(), report)], report)
    finally:
        source.close()


def of(name: str, options: Options | None = None) -> Read:
    return read(DATA / name, options)


def written(folder: Path, text: str | bytes, name: str = "file") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def at(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[arg-type, misc]


@pytest.mark.parametrize(("name", "expected"), FILES.items())
def test_the_format_is_known_by_content_not_by_name(name: str, expected: str, tmp_path: Path) -> None:
    renamed = shutil.copy(DATA / name, tmp_path / "history.bin")
    source = Source(renamed)
    assert detect(heads.read(source)).name == expected
    source.close()


@pytest.mark.parametrize("name", FILES)
def test_a_byte_order_mark_and_minified_json_change_nothing(name: str, tmp_path: Path) -> None:
    raw = (DATA / name).read_bytes()
    marked = read(written(tmp_path, b"\xef\xbb\xbf" + raw, name))
    assert marked.turns == of(name).turns
    if name.endswith(".json"):
        minified = json.dumps(json.loads(raw), separators=(",", ":"))
        assert read(written(tmp_path, minified, name)).turns == of(name).turns


@pytest.mark.parametrize("name", FILES)
def test_reading_again_gives_the_same_ids(name: str) -> None:
    assert of(name).turns == of(name).turns
    assert len({turn.id for turn in of(name).turns}) == len(of(name).turns)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", "hello", '{"title": "x"}\n{"title": "y"}', "\x00\x01", '[{"a": 1}]']
)
def test_an_unknown_file_is_refused_with_what_is_known(text: str, tmp_path: Path) -> None:
    with pytest.raises(ImportRefused, match=r"none of the known formats .*telegram"):
        read(written(tmp_path, text))


def test_sillytavern() -> None:
    turns, report = of("sillytavern.jsonl")
    assert of("sillytavern.jsonl").said() == [
        [("a", 'The bell coughs. "What have you brought me?"')],
        [("u", "A barograph. It draws a flat line."), ("a", "Then the capsules are tired.")],
        [("u", "How long?"), ("u", "I can wait."), ("a", "วันที่สาม มิถุนายน")],
    ]
    assert [turn.at for turn in turns] == [
        at(2024, 6, 19, 14, 20),
        at(2024, 6, 19, 14, 23, 20, 123000),
        at(2024, 6, 19, 14, 31),
    ]
    first = turns[0]
    assert first.chat.id == "sillytavern-5f6b9a4e-2d0b-4e6e-9a51-3d2c0f9f7a11"
    assert first.chat.characters == ("Mira-Solano",)
    assert first.messages[0].author == "Mira Solano"
    assert turns[1].model
    assert turns[1].model.name == "deepseek-chat"
    places = {found.place: found.reason for found in report.first}
    assert places["line 5"] == "hidden or system message"
    assert places["line 7"].startswith("not JSON")
    assert places["line 8"].startswith("time not understood")
    assert list(places)[-1].startswith("end of chat")
    assert sum(report.reasons.values()) == len(places) == 4


def test_sillytavern_without_header_or_integrity(tmp_path: Path) -> None:
    lines = (DATA / "sillytavern.jsonl").read_text("utf-8").splitlines()
    bare = read(written(tmp_path, "\n".join(lines[1:4]), "My chat.jsonl"))
    assert bare.turns[0].chat.id == "sillytavern-My-chat"
    header = json.loads(lines[0])
    del header["chat_metadata"]["integrity"]
    named = read(written(tmp_path, "\n".join([json.dumps(header), *lines[1:4]]), "a"))
    moved = read(written(tmp_path, "\n".join([json.dumps(header), *lines[1:4]]), "b"))
    assert named.turns == moved.turns
    assert named.said() == bare.said()


def test_chatgpt_takes_the_current_branch_only() -> None:
    result = of("chatgpt.json")
    assert result.said() == [
        [("u", "How long is this boat?"), ("a", "Let me measure."), ("a", "It is 9.2 metres.")],
        [("u", "Round?"), ("a", "And round.")],
    ]
    assert [turn.chat.id for turn in result.turns] == ["chatgpt-6672-aa", "chatgpt-6672-cc"]
    assert result.turns[0].model
    assert result.turns[0].model.name == "gpt-4o"
    assert result.turns[0].at == at(2024, 6, 19, 12, 26, 46)
    assert result.report.reasons == {
        "system message": 1,
        "addressed to a tool": 1,
        "tool message": 1,
        "a conversation without a current branch": 1,
    }


def test_chatgpt_wrapped_or_alone(tmp_path: Path) -> None:
    conversations = json.loads((DATA / "chatgpt.json").read_text("utf-8"))
    wrapped = read(written(tmp_path, json.dumps({"conversations": conversations})))
    assert wrapped.turns == of("chatgpt.json").turns
    alone = read(written(tmp_path, json.dumps(conversations[0])))
    assert alone.turns == of("chatgpt.json").turns[:1]


def test_telegram_chat_of_two() -> None:
    result = of("telegram-chat.json")
    assert result.said() == [
        [
            ("u", "Is the barograph ready?"),
            ("u", "See https://example.org for the drum"),
            ("a", "Two days early."),
            ("a", "Come before the cat does."),
        ]
    ]
    (turn,) = result.turns
    assert turn.chat.surface is Surface.telegram
    # without `date_unixtime` the local time is all there is; it is taken for UTC
    assert turn.at == at(2024, 6, 19, 16, 23)
    assert result.report.reasons == {
        "service message": 1,
        "an attachment without text": 1,
        "not answered yet: waits for a later import": 1,
    }


def test_telegram_full_export_knows_its_owner() -> None:
    result = of("telegram-full.json")
    assert result.said("telegram-500") == [
        [("a", "The lid is off")],
        [("u", "Coming!"), ("a", "Me too.")],
    ]
    assert result.said("telegram-4242") == [[("u", "Hallo"), ("a", "Moin")]]
    assert result.said("telegram-600") == [[("u", "Anyone?"), ("a", "Always.")]]
    assert result.report.reasons == {"a saved_messages is no conversation": 1}


def test_a_telegram_group_alone_asks_who_the_user_is(tmp_path: Path) -> None:
    group = json.loads((DATA / "telegram-full.json").read_text("utf-8"))["chats"]["list"][1]
    path = written(tmp_path, json.dumps(group))
    with pytest.raises(WhoIsTheUser, match=r"--me NAME; authors: Mira \(1 messages\), Ploy"):
        read(path)
    for me in ("Theo", "user77", "77"):
        assert read(path, Options(me=(me,))).said()[1] == [("u", "Coming!"), ("a", "Me too.")]
    both = read(path, Options(me=("Theo", "Ploy"))).said()
    assert both == [[("u", "The lid is off"), ("u", "Coming!"), ("a", "Me too.")]]


def test_discord() -> None:
    result = of("discord.json")
    assert result.said() == [
        [("u", "Anyone open?"), ("a", "If it ticks, come in."), ("a", "The bell has a cold.")],
        [("u", "It hums"), ("a", "That counts.")],
    ]
    assert {turn.chat.surface for turn in result.turns} == {Surface.discord}
    assert [message.author for message in result.turns[1].messages] == ["ploy", "Mira"]
    assert result.report.reasons == {
        "service message (GuildMemberJoin)": 1,
        "an attachment without text": 1,
    }


def test_discord_without_a_bot_asks_who_the_user_is(tmp_path: Path) -> None:
    path = written(
        tmp_path, (DATA / "discord.json").read_text("utf-8").replace('"isBot": true', '"isBot": false')
    )
    with pytest.raises(WhoIsTheUser, match="authors: mira-bot"):
        read(path)
    for me in ("theo", "Theo", "77"):
        turns = read(path, Options(me=(me,))).turns
        assert [message.role for message in turns[0].messages][:2] == [Role.user, Role.assistant]


def test_plain_lines() -> None:
    result = of("plain.jsonl")
    assert result.said() == [
        [("u", "Grüß dich"), ("a", "Moin.")],
        [("u", "Bye"), ("a", "Safe home.")],
    ]
    assert result.turns[0].at == at(2024, 6, 19, 8)
    assert {turn.chat.id for turn in result.turns} == {"jsonl-plain"}
    assert {found.place for found in result.report.first} == {f"line {n}" for n in (1, 4, 6, 7, 10)}


def test_a_conversation_a_line() -> None:
    result = of("conversations.jsonl")
    assert [turn.chat.id for turn in result.turns] == [
        "jsonl-conversations-1",
        "jsonl-conversations-2",
        "jsonl-conversations-2",
    ]


def test_one_chat_can_be_named_several_cannot() -> None:
    assert {turn.chat.id for turn in of("plain.jsonl", Options(chat="mine")).turns} == {"mine"}
    with pytest.raises(ImportRefused, match="several"):
        of("conversations.jsonl", Options(chat="mine"))


def test_the_user_of_the_events() -> None:
    assert all(turn.user is None for turn in of("plain.jsonl").turns)
    named = of("plain.jsonl", Options(user="u1")).turns
    assert {turn.user.id for turn in named if turn.user} == {"u1"}


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith(".json")])
def test_a_file_that_breaks_off_gives_what_was_whole(name: str, tmp_path: Path) -> None:
    raw = (DATA / name).read_bytes()
    whole = of(name)
    for cut in range(len(raw) // 2, len(raw) - 3, 37):
        result = read(written(tmp_path, raw[:cut]))
        assert result.report.reasons["not JSON from here on"] == 1
        assert {turn.turn.id for turn in result.turns} <= {turn.turn.id for turn in whole.turns}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"role": "user", "content": "' + b"x" * 300_000 + b'"}', "over the limit of 262144 bytes"),
        (b'{"role": "user", "content": "\\ud83d"}', "not valid Unicode"),
        (b'{"role": "user", "content": "\xff"}', "not UTF-8"),
        (b'{"role": "user", "content": 7}', "no text"),
        (b'{"role": "user", "content": null}', "no text"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"role": ["user"], "content": "x"}', "unknown role"),
        (b"null", "neither a message"),
        (b'{"role": "user", "content": "' + b"\\u0001" * 200_000 + b'"}', "once written as JSON"),
    ],
)
def test_a_bad_line_is_named_by_its_number_and_not_fatal(line: bytes, reason: str, tmp_path: Path) -> None:
    good = b'{"role": "user", "content": "a"}\n', b'{"role": "assistant", "content": "b"}\n'
    result = read(written(tmp_path, b"".join((good[0], line, b"\n", good[1]))))
    assert result.said() == [[("u", "a"), ("a", "b")]]
    (found,) = result.report.first
    assert found.place == "line 2"
    assert reason in found.reason


def test_lone_surrogates_in_names_do_no_harm(tmp_path: Path) -> None:
    line = '{"role": "%s", "content": "x", "name": "\\ud83d", "model": "\\ud83d"}\n'
    (turn,) = read(written(tmp_path, line % "user" + line % "assistant")).turns
    assert turn.messages[0].author == "?"
    assert turn.model_dump_json()


def test_the_report_counts_everything_and_shows_the_first_twenty(tmp_path: Path) -> None:
    text = '{"role": "user", "content": "a"}\n' + "oops\n" * 50
    report = read(written(tmp_path, text)).report
    assert len(report.first) == 20
    assert sum(report.reasons.values()) == 51
