"""Precision and recall of the rules found without a model, on messages that were labelled for this.

    python -m tests.bench.rules

Lines with an even number were used while the cue lists were made, the odd ones only to measure.
A found quote is right when it and a labelled one share at least half of what they cover together.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import NamedTuple

from services.summaries.rules import quotes

DATA = Path(__file__).parent / "data" / "rules_labelled.jsonl"


class Labelled(NamedTuple):
    text: str
    lang: str
    quotes: tuple[str, ...]


@dataclass
class Score:
    right: int = 0
    found: int = 0
    labelled: int = 0

    @property
    def precision(self) -> float:
        return self.right / self.found if self.found else 1.0

    @property
    def recall(self) -> float:
        return self.right / self.labelled if self.labelled else 1.0


def load() -> list[Labelled]:
    with DATA.open(encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    return [Labelled(row["text"], row["lang"], tuple(row["quotes"])) for row in rows]


def held_out(rows: Sequence[Labelled]) -> Sequence[Labelled]:
    return rows[1::2]


def score(rows: Iterable[Labelled], wrong: list[str] | None = None) -> dict[str, Score]:
    """By language, and all of them under "all". What was missed or invented is added to `wrong`."""
    scores: dict[str, Score] = defaultdict(Score)
    for row in rows:
        found = quotes(row.text)
        right = sum(any(_same(quote, label) for label in row.quotes) for quote in found)
        for key in ("all", row.lang):
            scores[key].right += right
            scores[key].found += len(found)
            scores[key].labelled += len(row.quotes)
        if wrong is not None and not right == len(found) == len(row.quotes):
            wrong.append(f"{row.lang}: {row.text!r} labelled {row.quotes}, found {found}")
    return scores


def _same(quote: str, label: str) -> bool:
    shared = SequenceMatcher(None, quote, label, autojunk=False).find_longest_match().size
    return shared >= 0.5 * (len(quote) + len(label) - shared)


def main() -> None:
    rows = load()
    for name, part in (("tuned", rows[0::2]), ("held out", held_out(rows)), ("all", rows)):
        scores = score(part)
        print(
            f"{name:9} {len(part)} messages, {scores['all'].labelled} rules: "
            f"precision {scores['all'].precision:.3f} recall {scores['all'].recall:.3f}"
        )
    for lang, value in sorted(score(rows).items()):
        if lang != "all":
            print(
                f"  {lang} {value.labelled:3} rules  precision {value.precision:.2f}  recall {value.recall:.2f}"
            )


if __name__ == "__main__":
    main()
