"""A worker that has started does not look again at what it started with."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from streams.runtime.heap import YOUNG, settle


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    threshold = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*threshold)


def test_collections_leave_out_what_was_there() -> None:
    assert len(gc.get_objects()) > YOUNG
    settle()
    assert len(gc.get_objects()) < YOUNG
    assert gc.get_threshold()[0] == YOUNG


def test_rings_are_still_collected() -> None:
    settle()
    ring: list[object] = []
    ring.append(ring)
    del ring
    assert gc.collect() == 1
