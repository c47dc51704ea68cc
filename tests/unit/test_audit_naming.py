"""An id is found in JSON whatever its producer escapes, and nothing else is taken for it."""

from __future__ import annotations

import json

import pytest

from services.audit.naming import Named

IDS = ["c1", "chat-é", "会話1", "😀", 'a"b', "a\\b", "guild/7", "a.c", "(x)*"]


@pytest.mark.rule("W7")
@pytest.mark.parametrize("id", IDS)
def test_every_way_to_write_an_id_is_found(id: str) -> None:
    named = Named(id)
    plain, escaped = (json.dumps({"chat": {"id": id}}, ensure_ascii=each) for each in (False, True))
    every = "".join(f"\\u{ord(unit):04X}" for unit in _units(id))
    slashes = plain.replace("/", "\\/")
    for text in (plain, escaped, slashes, f'{{"id": "{every}"}}', f'{{"id": "{every.lower()}"}}'):
        assert json.loads(text)
        assert named.inside(text.encode())


@pytest.mark.parametrize("id", IDS)
def test_a_longer_id_and_another_one_are_not(id: str) -> None:
    named = Named(id)
    for other in (f"{id}x", f"x{id}", "abc", "chat-e", "\\u00e9"):
        for ascii in (False, True):
            assert not named.inside(json.dumps({"text": "\n", "id": other}, ensure_ascii=ascii).encode())


def _units(text: str) -> list[str]:
    data = text.encode("utf-16-be")
    return [chr(int.from_bytes(data[at : at + 2], "big")) for at in range(0, len(data), 2)]
