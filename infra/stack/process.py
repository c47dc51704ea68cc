"""A server as a child process: started on free ports, ready when it answers its protocol, stopped by its own pid.

| what dies | what follows | shown by |
|---|---|---|
| this process, by an exception or at exit | `Server.stop` from `close()` or atexit | test_stack.py |
| this process, by SIGKILL | the kernel kills the server (Linux; infra/stack/tether.py) | test_stack.py |
| the server | `Server.running` is False; `start` raises with the end of its log | test_stack.py |
"""

from __future__ import annotations

import atexit
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path

from infra.stack import tether
from infra.stack.ports import free_ports, listens

_POLL_S = 0.01
_TRIES = 5
_LOG_TAIL = 2_000


class StartFailed(RuntimeError):
    """A server did not come up; the message has the end of its log."""


class Server:
    """A running server process. `ports[0]` is the one that clients connect to."""

    def __init__(self, name: str, child: subprocess.Popen[bytes], ports: tuple[int, ...], log: Path) -> None:
        self.name = name
        self.ports = ports
        self.log = log
        self._child = child
        atexit.register(self.stop)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._child.pid

    @property
    def port(self) -> int:
        """Where clients connect, on loopback."""
        return self.ports[0]

    @property
    def running(self) -> bool:
        """Whether the process is alive."""
        return self._child.poll() is None

    def stop(self, grace: float = 15.0) -> None:
        """SIGTERM, after `grace` seconds SIGKILL; returns when the process is gone. May be called twice."""
        atexit.unregister(self.stop)
        if self._child.poll() is None:
            self._child.terminate()
            try:
                self._child.wait(grace)
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self) -> None:
        """SIGKILL; returns when the process is gone."""
        atexit.unregister(self.stop)
        self._child.kill()
        self._child.wait()


def start(
    name: str,
    command: Callable[[tuple[int, ...]], Sequence[str]],
    ready: Callable[[int], bool],
    log: Path,
    *,
    ports: int = 1,
    deadline: float = 30.0,
    environment: dict[str, str] | None = None,
) -> Server:
    """Start `command(ports)` and wait until `ready(port)`; it may raise OSError while nobody answers.

    Output goes to `log`. `environment` is added to this process's own. Raises StartFailed when the process ends
    or is not ready after `deadline` seconds. A start that lost its port to another process is tried again.
    """
    for _ in range(_TRIES):
        chosen = free_ports(ports)
        child = _spawn(command(chosen), log, environment)
        end = time.monotonic() + deadline
        while True:
            if child.poll() is None and listens(child.pid, chosen[0]) and _answers(ready, chosen[0]):
                return Server(name, child, chosen, log)
            if _ended(child):
                break
            if time.monotonic() > end:
                child.kill()
                child.wait()
                raise StartFailed(f"{name} was not ready after {deadline:g} s\n{_tail(log)}")
        if "in use" not in _tail(log).lower():
            raise StartFailed(f"{name} ended with exit code {child.returncode}\n{_tail(log)}")
    raise StartFailed(f"{name} lost its port to another process {_TRIES} times\n{_tail(log)}")


def _ended(child: subprocess.Popen[bytes]) -> bool:
    """Whether the child has ended; waits a moment for it, so that it is the pause of the polling, too."""
    try:
        child.wait(_POLL_S)
    except subprocess.TimeoutExpired:
        return False
    return True


def _answers(ready: Callable[[int], bool], port: int) -> bool:
    try:
        return ready(port)
    except OSError:
        return False


def _tail(log: Path) -> str:
    return log.read_bytes()[-_LOG_TAIL:].decode(errors="replace")


class _Spawner:
    """Forks in a thread of its own that lives as long as this process.

    The kernel takes the end of the *thread* that forked for the death of the parent: a server started from a
    worker thread of an event loop would be killed as soon as that thread ends.
    """

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._jobs: queue.SimpleQueue[
            tuple[Callable[[], subprocess.Popen[bytes]], Future[subprocess.Popen[bytes]]]
        ]
        self._jobs = queue.SimpleQueue()
        threading.Thread(target=self._run, name="afterturn-spawner", daemon=True).start()

    def _run(self) -> None:
        while True:
            job, future = self._jobs.get()
            try:
                future.set_result(job())
            except BaseException as error:
                future.set_exception(error)

    def spawn(self, job: Callable[[], subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
        future: Future[subprocess.Popen[bytes]] = Future()
        self._jobs.put((job, future))
        return future.result()


_lock = threading.Lock()
_spawner: _Spawner | None = None


def _spawn(command: Sequence[str], log: Path, environment: dict[str, str] | None) -> subprocess.Popen[bytes]:
    global _spawner
    with _lock:
        if _spawner is None or _spawner.pid != os.getpid():  # a fork does not copy the thread
            _spawner = _Spawner()
        spawner = _spawner
    if sys.platform == "linux":
        command = [sys.executable, "-I", "-S", tether.__file__, str(os.getpid()), *command]

    def job() -> subprocess.Popen[bytes]:
        with log.open("ab") as output:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {})},
                # not in the terminal's group: Ctrl-C is for the pipeline, which stops the servers last
                start_new_session=True,
            )

    return spawner.spawn(job)
