"""Memories taken apart as bytes are what decoding them would give, whatever their texts look like."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st
from pydantic_core import from_json

from schemas.memories import Author
from services.context.entries import memory
from services.context.times import time_text
from services.memories import injection
from services.memories.selection import RECENT, Candidate
from services.memories.state import Entry, Origin, Wording, held
from tests.unit.test_context_rows import any_text

NOW = 10 * RECENT


@given(
    any_text().filter(str.strip)
    | st.text("a <>\x1f\x7f\x85\xa0\u1680\u2003\u2028\u3000\néกあ“\n", min_size=1),
    any_text(),
    st.none() | any_text(),
    st.booleans(),
    st.integers(0, NOW),
    st.none() | st.builds(Origin, any_text(), any_text()),
)
@example("plain text", "mem-1", None, True, NOW, None)
@example("Ist der Schlüssel im Café? กุญแจ", "mem-1", "mira", False, 5, Origin("c1", "t1"))
def test_an_entry_is_what_was_stored(
    text: str, name: str, character: str | None, pinned: bool, at: int, source: Origin | None
) -> None:
    id = f"m{name}"
    wording = Wording(text, Author.character, character, at, 7, source, 30)
    stored = held(Entry(id, f"character:{name}", pinned, wording, 3, 1, Author.user), 9)
    found = memory(Candidate(7, id, stored.scope, pinned, stored.tokens, b""), stored.value(), NOW)
    recent = NOW - at <= RECENT
    assert from_json(b"".join(found.shown)) == {
        "id": id,
        "scope": f"character:{name}",
        "text": text,
        "pinned": pinned,
        "recent": recent,
        "by": "character",
        "updated_at": time_text(at),
    }
    assert from_json(b'"%b"' % b"".join(found.line)) == injection.line(id, text, pinned=pinned, recent=recent)
    assert (found.order, found.id, found.pinned) == (7, id, pinned)
    assert found.tokens == injection.line_tokens(30, pinned=pinned, recent=recent)
