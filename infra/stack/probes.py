"""Whether a server answers its protocol: one request over a plain loopback socket, within a second."""

from __future__ import annotations

import socket
import struct

from infra.stack.ports import LOOPBACK

_TIMEOUT_S = 1.0
_METADATA, _METADATA_VERSION, _CORRELATION = 3, 1, 1


def redis_answers(port: int) -> bool:
    """PING is answered; False while the data is still being loaded. Raises OSError when nobody answers."""
    with socket.create_connection((LOOPBACK, port), _TIMEOUT_S) as connection:
        connection.settimeout(_TIMEOUT_S)
        connection.sendall(b"PING\r\n")
        return connection.recv(64).startswith(b"+PONG")


def kafka_answers(port: int) -> bool:
    """The metadata names a broker, so that clients can start. Raises OSError when nobody answers."""
    # header: api key, version, correlation id, no client id; body: an empty list of topics
    request = struct.pack(">hhihi", _METADATA, _METADATA_VERSION, _CORRELATION, -1, 0)
    with socket.create_connection((LOOPBACK, port), _TIMEOUT_S) as connection:
        connection.settimeout(_TIMEOUT_S)
        connection.sendall(struct.pack(">i", len(request)) + request)
        with connection.makefile("rb") as answer:
            head = answer.read(12)  # size, correlation id, number of brokers
    return len(head) == 12 and int(struct.unpack(">iii", head)[2]) > 0
