"""Apache Kafka as one process: a KRaft node that is broker and controller, on loopback."""

from __future__ import annotations

import base64
import shutil
import subprocess
import uuid
from collections.abc import Callable
from pathlib import Path

from infra.stack import jars, process
from infra.stack.ports import LOOPBACK
from infra.stack.probes import kafka_answers

_HEAP = "-Xmx512m"
_FORMAT_DEADLINE_S = 60.0

_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller}
listeners=BROKER://{host}:{broker},CONTROLLER://{host}:{controller}
advertised.listeners=BROKER://{host}:{broker}
listener.security.protocol.map=BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=BROKER
controller.listener.names=CONTROLLER
log.dirs={logs}
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
broker.session.timeout.ms=6000
num.network.threads=2
num.io.threads=4
log.cleaner.dedupe.buffer.size=8388608
"""


def start(folder: Path, log: Path, report: Callable[[str], None] | None = None) -> process.Server:
    """A broker on two free loopback ports (clients, controller). What is in `folder` from before is kept.

    The first start fetches the jars (infra/stack/jars.py, which says what it reports and raises) and formats
    `folder`. Raises StartFailed.
    """
    lib = jars.fetch(report)
    java = shutil.which("java")
    if java is None:
        raise jars.KafkaUnavailable("Apache Kafka needs java on PATH")
    logs, properties, scratch = folder / "log", folder / "server.properties", folder / "tmp"
    scratch.mkdir(parents=True, exist_ok=True)
    run = [
        java,
        *(_HEAP, "-XX:+ExitOnOutOfMemoryError", "-cp", f"{lib}/*"),
        # neither performance counters nor unpacked native libraries in the system's folder for temporary files
        *("-XX:-UsePerfData", f"-Djava.io.tmpdir={scratch}"),
        f"-Dlog4j2.configurationFile={jars.KAFKA / 'log4j2.properties'}",
    ]

    def command(ports: tuple[int, ...]) -> list[str]:
        broker, controller = ports
        properties.write_text(
            _PROPERTIES.format(host=LOOPBACK, broker=broker, controller=controller, logs=logs)
        )
        if not (logs / "meta.properties").is_file():
            _format(run, properties)
        return [*run, "kafka.Kafka", str(properties)]

    return process.start("Apache Kafka", command, kafka_answers, log, ports=2, deadline=90.0)


def cluster_id(random: Callable[[], uuid.UUID] = uuid.uuid4) -> str:
    """22 characters; never a dash first, which the storage tool would take for an option (one id in 64)."""
    while True:
        text = base64.urlsafe_b64encode(random().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text


def _format(run: list[str], properties: Path) -> None:
    """Write the storage's identity. The quorum is named in the properties, so that its port may change."""
    done = subprocess.run(
        [*run, "kafka.tools.StorageTool", "format", "-t", cluster_id(), "-c", str(properties)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_FORMAT_DEADLINE_S,
        check=False,
    )
    if done.returncode != 0:
        raise process.StartFailed(
            f"Apache Kafka's storage could not be formatted\n{done.stdout}{done.stderr}"
        )
