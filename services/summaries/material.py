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


def of_messages(messages: Sequence[SourceMessage]) -> str:
    """A piece of a chat."""
    return _delimited(
        {"n": message.seq, "role": message.role.value, "who": message.author, "text": message.text}
        for message in messages
    )


def of_bodies(bodies: Iterable[tuple[int, Body]]) -> str:
    """Bodies of summaries, each with its number."""
    return _delimited(line for number, body in bodies for line in _lines(number, body))


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


def _delimited(lines: Iterable[dict[str, Any]]) -> str:
    text = "\n".join(json.dumps(line, ensure_ascii=False) for line in lines)
    mark = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"<<<data {mark}>>>\n{text}\n<<<end {mark}>>>"
