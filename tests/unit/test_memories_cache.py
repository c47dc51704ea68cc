"""What a process keeps of users: the newest, and not more than it may."""

from __future__ import annotations

from services.memories.cache import Cache, Kept
from services.memories.state import Mark
from tests.memories import MIRA, Mind


def kept(version: int, entries: int) -> Kept:
    mind = Mind()
    mind.fill(count=entries)
    return Kept(Mark(version, "log-1", version), {MIRA: mind.known.scopes[MIRA]})


def test_the_users_asked_for_longest_ago_have_to_go() -> None:
    cache = Cache(entries=12)
    three = kept(1, 3)
    for user in ("a", "b", "c"):
        cache.put(user, three)
    assert cache.get("a") is three
    cache.put("d", three)
    assert [cache.get(user) is not None for user in "abcd"] == [False, True, True, True]
    cache.put("b", kept(2, 3))
    cache.put("e", three)
    assert [cache.get(user) is not None for user in "bcde"] == [True, False, True, True]


def test_what_was_kept_is_replaced_and_forgotten() -> None:
    cache = Cache(entries=12)
    for version in range(10):
        cache.put("a", kept(version, 5))
    found = cache.get("a")
    assert found is not None
    assert found.mark.version == 9
    cache.drop("a")
    cache.drop("a")
    assert cache.get("a") is None
    cache.put("b", kept(1, 11))
    assert cache.get("b") is not None


def test_who_has_more_than_all_may_have_is_not_kept() -> None:
    cache = Cache(entries=12)
    cache.put("a", kept(1, 12))
    assert cache.get("a") is None
    cache.put("b", kept(1, 11))
    assert cache.get("b") is not None
