"""Ids are uuid5, as anyone can compute them; what is stored under them has to be found by every later version."""

from __future__ import annotations

from uuid import UUID, uuid5

import pytest

from services.state.ids import NAMESPACE, chunk_id, derive


@pytest.mark.parametrize(
    "parts",
    [
        (),
        ("chat",),
        ("chat", 0, 7, 12),
        ("Ærøskøbing", "\U0001f999"),
        *(("t", number) for number in range(64)),
    ],
)
def test_derived_ids_are_uuid5_of_the_step_and_its_parts(parts: tuple[str | int, ...]) -> None:
    expected = uuid5(NAMESPACE, "\x1f".join(("usage", *map(str, parts))))
    assert derive("usage", *parts) == str(expected)
    assert UUID(derive("usage", *parts)).version == 5


def test_an_id_that_has_been_stored() -> None:
    assert chunk_id("chat-1", 0, 0, 9) == "fef09af9-c427-5b58-b4a4-afca09c1c5b0"
