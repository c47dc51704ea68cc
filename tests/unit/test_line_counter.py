"""Counting by lines gives what counting the whole text gives, to the token."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from services.tokens.counter import PIECE_CHARACTERS, default_counter
from services.tokens.lines import LineCounter

COUNT = default_counter()
LINES = LineCounter(COUNT)

_LINE = (
    st.one_of(
        st.text(alphabet="ab C1/.,!'\"-:;äß你ไ٣é\u0301\u200b🙂\x1c\x85\u2028", max_size=60),
        st.text(max_size=40),
    )
    .map(lambda text: " ".join(text.split()))
    .filter(bool)
)
LONG = ("word, " * (PIECE_CHARACTERS // 6)).strip()


@given(st.lists(_LINE, max_size=12))
@example(["a.", "/1"])
@example(["Go!", "/usr"])
@example([LONG, "b", LONG + "!", "c", "d" * 3 * PIECE_CHARACTERS])
@example(["x" * (PIECE_CHARACTERS - 1), "y", "z" * PIECE_CHARACTERS, "(end)"])
@example(["x" * PIECE_CHARACTERS, "y"])
def test_lines_count_as_their_text(lines: list[str]) -> None:
    assert LINES(lines) == COUNT("\n".join(lines))


@given(
    st.lists(st.sampled_from(["The ferry: 340 crowns.", "No!", "« Oui »", "你好。", "a-b/c"]), max_size=900)
)
def test_long_texts_count_as_they_do_in_pieces(lines: list[str]) -> None:
    assert LINES(lines) == COUNT("\n".join(lines))


def test_another_counter_is_asked_for_the_whole() -> None:
    asked: list[str] = []

    def count(text: str) -> int:
        asked.append(text)
        return len(text)

    assert LineCounter(count)(["ab", "c"]) == 4
    assert asked == ["ab\nc"]
