"""Servers on this machine, for the demo, `afterturn up` and the tests."""

from infra.stack.folders import DataInUse
from infra.stack.jars import KafkaUnavailable
from infra.stack.process import Server, StartFailed
from infra.stack.stack import APACHE, EMBEDDED, Stack

__all__ = ["APACHE", "EMBEDDED", "DataInUse", "KafkaUnavailable", "Server", "Stack", "StartFailed"]
