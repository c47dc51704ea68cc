"""Counts tokens of a text of lines, of which most were counted before."""

from __future__ import annotations

from collections.abc import Sequence

from services.tokens.counter import PIECE_CHARACTERS, TokenCounter, default_counter


class LineCounter:
    """Tokens of lines with a line end between them: what the counter gives for the whole text, for less work.

    The lines are not empty, without line ends in them and without white space at their ends. No token of `o200k_base`
    reaches from one into the next, except where that begins with a slash: then, and with any other counter, the
    whole text is counted.
    """

    def __init__(self, count: TokenCounter) -> None:
        self._count = count
        self._by_line = count is default_counter()
        self._known: dict[str, int] = {}

    def __call__(self, lines: Sequence[str]) -> int:
        """Tokens of the text."""
        if not lines:
            return 0
        if not self._by_line or any(line[0] == "/" for line in lines):
            return self._count("\n".join(lines))
        known = self._known
        total, left = 0, PIECE_CHARACTERS
        last = len(lines) - 1
        for at, line in enumerate(lines):
            text = line if at == last else f"{line}\n"
            # the counter cuts a long text: the two parts of a line at a cut are counted as it does
            if len(text) > left:
                total += self._count(text[:left])
                rest = text[left:]
                total += self._count(rest)
                left = PIECE_CHARACTERS - len(rest) % PIECE_CHARACTERS
                continue
            left -= len(text)
            tokens = known.get(text)
            if tokens is None:
                tokens = known[text] = self._count(text)
            total += tokens
        return total
