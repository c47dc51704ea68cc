"""`make bench`: all benchmarks, or some; and their tables in docs/benchmarks.md.

python -m tests.bench [--broker apache|embedded] [--only NAME ...] [--quick] [--locomo PATH] [--json FILE]
python -m tests.bench --write [--json FILE]     tables of docs/benchmarks.md from the results in FILE, without a run
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import uvloop

from infra.stack import APACHE, EMBEDDED, jars
from tests.bench import (
    context,
    context_memories,
    length,
    machine,
    memories,
    memory,
    quality,
    rewind,
    visible,
    window,
)
from tests.bench.report import Outcome, markdown, rewrite

RESULTS = machine.ROOT / "build" / "bench.json"
DOCUMENT = machine.ROOT / "docs" / "benchmarks.md"

Progress = Callable[[str], None]
Run = Callable[[Progress], Awaitable[Sequence[Outcome]]]

NAMES = (
    "window",
    "length",
    "rewind",
    "context",
    "context-memories",
    "visible",
    "memories",
    "memory",
    "rules",
    "retention",
)


def plan(options: argparse.Namespace) -> Iterator[tuple[str, Run]]:
    """What is to be run, in order. The ratios are measured on both brokers, the rest on the first of them."""
    wanted = options.only or NAMES
    quick, brokers = options.quick, _brokers(options.broker)
    if "window" in wanted:
        for broker in brokers:
            yield f"window, {broker}", partial(window.run, broker, quick)
    if "length" in wanted:
        yield "length", partial(length.run, quick)
    if "rewind" in wanted:
        yield "rewind", partial(rewind.run, quick)
    if "context" in wanted:
        yield f"context, {brokers[0]}", partial(context.run, brokers[0], quick)
    if "context-memories" in wanted:
        yield f"context-memories, {brokers[0]}", partial(context_memories.run, brokers[0], quick)
    if "visible" in wanted:
        for broker in brokers:
            yield f"visible, {broker}", partial(visible.run, broker, quick)
    if "memories" in wanted:
        for broker in brokers:
            yield f"memories, {broker}", partial(memories.run, broker, quick)
    if "memory" in wanted:
        yield f"memory, {brokers[0]}", partial(memory.run, brokers[0], quick)
    if "rules" in wanted:
        yield "rules", quality.rules_found
    if "retention" in wanted and options.locomo:
        yield "retention", partial(quality.retention, options.locomo, quick)


def _brokers(asked: str | None) -> tuple[str, ...]:
    if asked:
        return (asked,)
    reason = jars.missing()
    if reason:
        print(f"Apache Kafka is left out: {reason}")
        return (EMBEDDED,)
    return (APACHE, EMBEDDED)


def main() -> None:
    """Run, print, keep the results."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__.splitlines()[0])
    parser.add_argument("--broker", choices=(APACHE, EMBEDDED), help="by default both, where both can run")
    parser.add_argument("--only", action="append", choices=NAMES, metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--quick", action="store_true", help="small sizes: shows that it runs, not how fast")
    parser.add_argument("--locomo", type=Path, help="locomo10.json, for the retention of summaries")
    parser.add_argument("--json", type=Path, default=RESULTS, help="file of results, added to")
    parser.add_argument("--write", action="store_true", help="no run: results into docs/benchmarks.md")
    options = parser.parse_args()
    if options.write:
        outcomes = [Outcome.read(stored) for stored in _stored(options.json).values()]
        DOCUMENT.write_text(rewrite(DOCUMENT.read_text("utf-8"), outcomes), "utf-8")
        print(f"{len(outcomes)} tables of {DOCUMENT.name} are from {options.json}")
        return
    logging.basicConfig(level=logging.CRITICAL)  # what a client retries is no news here
    machine.leave_the_worker_core()
    described = machine.describe()
    print(described)
    for title, run in plan(options):
        started = time.monotonic()
        print(f"\n{title}", flush=True)
        busy = os.getloadavg()[0]
        found = uvloop.run(_collected(run))
        for outcome in found:
            at = datetime.now(UTC).date().isoformat()
            outcome = replace(outcome, machine=f"{described}; load {busy:.1f} before", at=at)
            _keep(options.json, outcome)
            print(f"\n{outcome.name}\n{markdown(outcome)}", flush=True)
        print(f"({time.monotonic() - started:.0f} s)")


async def _collected(run: Run) -> list[Outcome]:
    return list(await run(lambda line: print(f"  {line}", flush=True)))


def _stored(path: Path) -> dict[str, dict[str, object]]:
    if not path.is_file():
        return {}
    stored: dict[str, dict[str, object]] = json.loads(path.read_text("utf-8"))
    return stored


def _keep(path: Path, outcome: Outcome) -> None:
    stored = _stored(path) | {outcome.name: outcome.as_dict()}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(stored, indent=1, ensure_ascii=False), "utf-8")


if __name__ == "__main__":
    main()
