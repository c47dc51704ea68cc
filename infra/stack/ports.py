"""Free loopback ports, and who listens on one."""

from __future__ import annotations

import os
import socket
import sys
from contextlib import ExitStack
from pathlib import Path

LOOPBACK = "127.0.0.1"
_LISTENING = "0A"  # the state column of /proc/net/tcp


def free_ports(count: int) -> tuple[int, ...]:
    """`count` different ports that nobody listened on a moment ago.

    Another process may take one before it is bound: `process.start` notices and tries others.
    """
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((LOOPBACK, 0))
        return tuple(each.getsockname()[1] for each in sockets)


def listens(pid: int, port: int) -> bool:
    """Whether it is process `pid` that listens on `port`, not another one that was quicker.

    Where there is no /proc the answer is True: then only a successful probe counts.
    """
    if sys.platform != "linux":
        return True
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            rows = Path(table).read_text().splitlines()[1:]
        except FileNotFoundError:  # no IPv6
            continue
        for row in rows:
            fields = row.split()
            if fields[3] == _LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                inodes.add(f"socket:[{fields[9]}]")
    return bool(inodes) and any(link in inodes for link in _open_files(pid))


def _open_files(pid: int) -> list[str]:
    """What the process has open; empty when it is gone."""
    folder = f"/proc/{pid}/fd"
    links = []
    try:
        for name in os.listdir(folder):
            try:
                links.append(os.readlink(f"{folder}/{name}"))
            except FileNotFoundError:  # closed meanwhile
                continue
    except FileNotFoundError:
        return []
    return links
