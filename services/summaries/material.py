"""What a prompt is about, as delimited data: one JSON object a line between markers that no text can guess.

A text cannot leave its line (JSON escapes line ends and quotes) and cannot name the marker, which is a digest of
all of it: the text of a chat is data, never an instruction.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from typing import Any

from schemas.summaries import Body
from services.summaries.port import SourceMessage

TOKENS = 24_000
"""A piece of a chat takes about so many tokens of a prompt at most, so that it fits models with a small window: a
single message may have 256 KiB."""


def of_messages(messages: Sequence[SourceMessage], tokens: int = TOKENS) -> str:
    """A piece of a chat. Over `tokens`, the longest messages lose their middle."""
    limit = fair_limit([message.tokens for message in messages], tokens)
    return delimited(
        {
            "n": message.seq,
            "role": message.role.value,
            "who": message.author,
            "text": _shortened(message.text, message.tokens, limit),
        }
        for message in messages
    )


def fair_limit(sizes: Sequence[int], total: int) -> int:
    """The largest bound for each that keeps their sum within `total`."""
    left, rest = total, len(sizes)
    for size in sorted(sizes):
        if size * rest > left:
            return left // rest
        left, rest = left - size, rest - 1
    return total


def _shortened(text: str, tokens: int, limit: int) -> str:
    if tokens <= limit:
        return text
    half = len(text) * limit // tokens // 2
    return f"{text[:half]} [... {tokens - limit} tokens left out ...] {text[len(text) - half :]}"


def of_bodies(bodies: Iterable[tuple[int, Body]]) -> str:
    """Bodies of summaries, each with its number."""
    return delimited(line for number, body in bodies for line in _lines(number, body))


def _lines(number: int, body: Body) -> Iterator[dict[str, Any]]:
    for line in body.timeline:
        span = {"first": line.first_seq, "last": line.last_seq}
        yield {"summary": number, "part": "timeline", "text": line.text, **span}
    named = {"promise": body.promises, "fact": body.facts, "state": body.state}
    for part, texts in named.items():
        for text in texts:
            yield {"summary": number, "part": part, "text": text}
    for rule in body.rules:
        yield {"summary": number, "part": "rule", "text": rule.quote}


def delimited(lines: Iterable[dict[str, Any]]) -> str:
    """Lines of any kind between markers."""
    text = "\n".join(json.dumps(line, ensure_ascii=False) for line in lines)
    mark = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"<<<data {mark}>>>\n{text}\n<<<end {mark}>>>"
