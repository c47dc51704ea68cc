"""How good the summaries without a model are: rules found, and what the summaries keep of a conversation."""

from __future__ import annotations

import asyncio
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from services.tokens.counter import default_counter
from tests.bench import rules
from tests.bench.report import Outcome, Target
from tests.bench.retention import extractive

SHARES = ((0.15, 0.50), (0.25, 0.66))
"""Budget as a share of the chunk's tokens, and the retention that is to be reached."""
CHUNK = 10
LEAST, MOST = 40, 400

# function words of the questions' language: the measure's, the summariser knows none
_STOP = frozenset(
    """
    a an the is are was were be been being do does did have has had of to in on at for with and or but if i you he she
    it we they me him her us them my your his its our their this that these those what which who whom when where why
    how so not yes no
    """.split()  # noqa: SIM905 (a list of 72 words would fill a page)
)


async def rules_found(progress: Callable[[str], None]) -> list[Outcome]:
    """Precision and recall on the labelled messages; the half that was not looked at while the cues were made."""
    rows = rules.load()
    table = []
    for name, part in (("tuned on", rows[0::2]), ("held out", rules.held_out(rows))):
        found = rules.score(part)["all"]
        table.append((name, str(len(part)), str(found.labelled), found.precision, found.recall))
    languages = len({row.lang for row in rows})
    return [
        Outcome(
            name="rules",
            how=f"{len(rows)} labelled messages in {languages} languages.",
            columns=("half", "messages", "rules", "precision", "recall"),
            rows=table,
        )
    ]


class Question(NamedTuple):
    """What is asked, answered, and the turns that show it."""

    text: str
    answer: str
    evidence: tuple[str, ...]


Turns = Sequence[tuple[str, str, str]]
"""(id, author, text)"""


def conversations(path: Path) -> Iterator[tuple[Turns, list[Question]]]:
    """Those of LoCoMo, with the questions that have an answer and evidence (categories 1, 3 and 4)."""
    for sample in json.loads(path.read_text("utf-8")):
        sessions = {name: said for name, said in sample["conversation"].items() if isinstance(said, list)}
        turns = [
            (said["dia_id"], said["speaker"], _told(said))
            for name in sorted(sessions, key=lambda name: int(name.split("_")[1]))
            for said in sessions[name]
        ]
        questions = [
            Question(
                asked["question"],
                str(asked["answer"]),
                tuple(turn for text in asked["evidence"] for turn in re.findall(r"D\d+:\d+", text)),
            )
            for asked in sample["qa"]
            if asked["category"] in (1, 3, 4) and "answer" in asked and asked["evidence"]
        ]
        yield turns, questions


def _told(said: dict[str, Any]) -> str:
    picture = said.get("blip_caption")
    return str(said["text"]) + (f" [shares {picture}]" if picture else "")


def words(text: str) -> set[str]:
    """Content words."""
    return {word for word in re.findall(r"[^\W_]+", text.lower()) if word not in _STOP}


def kept(turns: Turns, questions: Sequence[Question], share: float) -> list[float]:
    """Per question: of the answer's words that its chunks have, the share that their summaries still have."""
    count = default_counter()
    chunks = [turns[at : at + CHUNK] for at in range(0, len(turns), CHUNK)]
    where = {id: at for at, chunk in enumerate(chunks) for id, _, _ in chunk}
    full, short = [], []
    for chunk in chunks:
        said = [(author, text) for _, author, text in chunk]
        everything = "\n".join(f"{author}: {text}" for author, text in said)
        budget = min(MOST, max(LEAST, int(share * count(everything))))
        full.append(words(everything))
        short.append(words(extractive(said, budget)))
    shares = []
    for question in questions:
        places = {where[id] for id in question.evidence if id in where}
        wanted = words(question.answer) - words(question.text)
        there = wanted & set().union(*(full[at] for at in places))
        if there:
            still = there & set().union(*(short[at] for at in places))
            shares.append(len(still) / len(there))
    return shares


TUNED = 5


async def retention(path: Path, quick: bool, progress: Callable[[str], None]) -> list[Outcome]:
    """The first five conversations were used while the summariser was made, the others only to measure."""
    halves: dict[tuple[float, int], list[float]] = defaultdict(list)
    for number, (turns, questions) in enumerate(list(conversations(path))[: 2 if quick else None]):
        for share, _ in SHARES:
            # the summariser is called as a plain function, and runs an event loop of its own
            halves[share, int(number >= TUNED)] += await asyncio.to_thread(kept, turns, questions, share)
        progress(f"conversation {number + 1}: {len(turns)} turns")
    rows, targets = [], []
    for share, bound in SHARES:
        tuned, held = halves[share, 0], halves[share, 1]
        overall = fmean(tuned + held)
        rows.append((f"{share:.0%} of the tokens", fmean(tuned), fmean(held), overall))
        targets.append(Target(f"retention at {share:.0%}", overall, bound, at_least=True))
    questions_asked = sum(len(halves[SHARES[0][0], half]) for half in (0, 1))
    return [
        Outcome(
            name="retention",
            how=f"LoCoMo, {questions_asked:,} questions, chunks of {CHUNK} messages.",
            columns=("summaries of", "tuned on", "held out", "all"),
            rows=rows,
            targets=targets,
            quick=quick,
        )
    ]
