"""What every token counter keeps: 0 for nothing, never raises, quick for any text; the default one is tiktoken's count."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable

import pytest
import tiktoken
from hypothesis import given
from hypothesis import strategies as st

from services.tokens.counter import ENCODING, PIECE_CHARACTERS, TokenCounter, default_counter


def _characters(text: str) -> int:
    """One token a character: what other tests count with."""
    return len(text)


COUNTERS: dict[str, Callable[[], TokenCounter]] = {
    "default": default_counter,
    "characters": lambda: _characters,
}


@pytest.fixture(params=COUNTERS)
def counter(request: pytest.FixtureRequest) -> TokenCounter:
    """Each implementation in turn."""
    return COUNTERS[request.param]()


@pytest.fixture(scope="module")
def encoding() -> tiktoken.Encoding:
    """tiktoken itself, with the table that the default counter has put in place."""
    default_counter()
    return tiktoken.get_encoding(ENCODING)


def test_nothing_is_nothing(counter: TokenCounter) -> None:
    assert counter("") == 0


@pytest.mark.parametrize(
    "text",
    [
        "<|endoftext|>",
        "<|endofprompt|> <|fim_prefix|>",
        "\x00\x01\x7f",
        "\ud800",
        "a\udfffb",
        "\ufeff",
        "ก็",
        "👩‍👩‍👧‍👦" * 50,
    ],
)
def test_no_text_is_refused(counter: TokenCounter, text: str) -> None:
    assert counter(text) > 0


@given(st.text(st.characters(codec=None), max_size=200))
def test_any_text(text: str) -> None:
    for create in COUNTERS.values():
        count = create()(text)
        assert isinstance(count, int)
        assert (count == 0) == (text == "")
        assert count == create()(text)


@given(st.text(max_size=300))
def test_the_default_is_what_tiktoken_counts(text: str) -> None:
    assert default_counter()(text) == len(tiktoken.get_encoding(ENCODING).encode_ordinary(text))


def test_known_counts(encoding: tiktoken.Encoding) -> None:
    count = default_counter()
    for text in ("Hello, world!", "Der Leuchtturm steht seit 1893.", "สวัสดีครับ", "print('x')\n\n\n"):
        assert count(text) == len(encoding.encode_ordinary(text))
    assert count("hello world") == 2


def test_a_process_has_the_table_once() -> None:
    counter = default_counter()
    assert not tiktoken.get_encoding(ENCODING)._mergeable_ranks
    assert counter("It was not there, and nobody asked.") == 9


def test_pieces_of_a_long_text_count_nearly_the_same(encoding: tiktoken.Encoding) -> None:
    text = "The keeper wrote the 14th letter, then he climbed the stairs again. " * 2_000
    exact = len(encoding.encode_ordinary(text))
    # a cut may split a token; not more than two tokens for each
    assert abs(default_counter()(text) - exact) <= 2 * (len(text) // PIECE_CHARACTERS + 1)


@pytest.mark.parametrize("text", ["a", " ", "ก", "ab", "=", "\n", "😀"])
def test_a_text_at_the_size_limit_is_quick(counter: TokenCounter, text: str) -> None:
    counter("warm")
    long = text * (262_144 // len(text.encode()))
    started = time.process_time()
    assert counter(long) > 0
    # 0.3 s where this was written; minutes where a text without spaces is encoded as a whole
    assert time.process_time() - started < 5.0


def test_counting_needs_no_network(tmp_path: object) -> None:
    """In a process of its own, with an empty cache and without sockets."""
    program = (
        "import socket\n"
        "def refuse(*a, **k): raise OSError('no network here')\n"
        "socket.socket.connect = refuse\n"
        "socket.getaddrinfo = refuse\n"
        "from services.tokens.counter import default_counter\n"
        "print(default_counter()('hello world'))\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={"TIKTOKEN_CACHE_DIR": str(tmp_path), "PATH": "", "HOME": str(tmp_path)},
        timeout=60,
        check=False,
    )
    assert (ran.stdout.strip(), ran.returncode) == ("2", 0), ran.stderr
