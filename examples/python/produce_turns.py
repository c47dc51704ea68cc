"""Writes finished turns to Afterturn with aiokafka: `python produce_turns.py 127.0.0.1:9092`.

The events follow schemas/generated/turn.recorded.schema.json; the key of a record is the chat's id. aiokafka hashes keys
with murmur2 by default, as Afterturn expects.
"""

from __future__ import annotations

import asyncio
import json
import sys

from aiokafka import AIOKafkaProducer

TALK = (
    ("Is the barograph ready?", "Two days early. Come before the cat does."),
    ("No, the Heron is 9.2 metres, not 9.5.", "Nine point two. I'll remember."),
)


async def main(bootstrap: str, chat: str = "python-0") -> None:
    """Send each turn once the one before is confirmed, so that the chat's order holds."""
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all") as producer:
        for number, (asked, answered) in enumerate(TALK):
            event = {
                "type": "turn.recorded",
                "id": f"{chat}-e{number}",
                "chat": {"id": chat, "surface": "web", "characters": ["mira"]},
                "turn": {"id": f"t{number}"},
                "messages": [
                    {"id": f"m{2 * number}", "role": "user", "text": asked},
                    {"id": f"m{2 * number + 1}", "role": "assistant", "text": answered},
                ],
            }
            await producer.send_and_wait("chat.turns.v1", json.dumps(event).encode(), key=chat.encode())


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
