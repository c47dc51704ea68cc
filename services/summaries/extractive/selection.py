"""Which units to keep: the most new information per token, until the budget is used."""

from __future__ import annotations

import heapq
from bisect import bisect, insort
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from math import fsum
from statistics import median

from services.summaries.extractive.units import Unit
from services.tokens.counter import TokenCounter

COST_EXPONENT = 0.8
"""Value is divided by tokens to this power: below 1, a long clause that says much beats scraps."""

_TRIED = 40
_MANY = 150
_EXCHANGES = 6
_COMPARED = 5_000
_BETTER = 1.01
_WORTHWHILE = 0.05

_JOIN = 1
"""Tokens of what stands between two clauses, at most."""


def choose(
    units: Sequence[Unit],
    weights: Mapping[str, float],
    budget: int,
    *,
    count: TokenCounter,
    covered: Collection[str] = (),
    new_message: float = 1.0,
    again: float = 0.0,
) -> list[Unit]:
    """Units in the order of choice, together about `budget` tokens with the names in front of them. A term that
    is covered already counts `again` times its worth. `new_message` multiplies the value of the first unit of a message.

    Lazy greedy: values only fall while terms get covered, so a unit is looked at again only when it is on top.
    """
    known = set(covered)
    labels = {
        author: count(f"\n{author}:") if author else _JOIN for author in {unit.author for unit in units}
    }
    costs = [count(f" {unit.text}") for unit in units]
    taken: list[int] = []
    heard: set[int] = set()
    chosen: list[Unit] = []
    used = 0

    def extra(at: int) -> int:
        """Tokens that names cost more with this unit than without it."""
        place = bisect(taken, at)
        before = units[taken[place - 1]].author if place else None
        after = units[taken[place]].author if place < len(taken) else None
        author = units[at].author
        cost = labels[author] if author != before else _JOIN
        if after is not None:
            cost += (labels[after] if after != author else _JOIN) - (
                labels[after] if after != before else _JOIN
            )
        return cost

    def score(at: int) -> tuple[float, int]:
        unit = units[at]
        gain = unit.worth * fsum(
            [weights.get(term, 0.0) * (again if term in known else 1.0) for term in unit.terms]
        )
        if unit.message not in heard:
            gain *= new_message
        cost = max(1, costs[at] + extra(at))
        return gain / cost**COST_EXPONENT, cost

    values = [score(at)[0] for at in range(len(units))]
    heap = [(-values[at], at) for at in range(len(units)) if costs[at] <= budget]
    heapq.heapify(heap)
    done: set[int] = set()
    while heap and used < budget:
        claimed, at = heapq.heappop(heap)
        if at in done:
            continue
        value, cost = score(at)
        if value <= 0:
            continue
        if heap and -value > heap[0][0] and -value > claimed:
            heapq.heappush(heap, (-value, at))
            continue
        if used + cost > budget:
            continue
        done.add(at)
        insort(taken, at)
        chosen.append(units[at])
        heard.add(units[at].message)
        used += cost
        known |= units[at].terms
        # the neighbours may now go without a name in front: their value can rise
        for other in (at - 1, at + 1):
            if 0 <= other < len(units) and other not in done and used + costs[other] <= budget:
                heapq.heappush(heap, (-score(other)[0], other))
    return chosen


def worthwhile(
    units: Sequence[Unit], weights: Mapping[str, float], least: float, count: TokenCounter
) -> list[Unit]:
    """The units that say something: at least `least` times the median value per token, and not just a word or two
    without a name or a number ("Lovely!"). All of them where nothing else is left."""
    values = [
        fsum([weights.get(term, 0.0) for term in unit.terms])
        * unit.worth
        / (1 + count(unit.text)) ** COST_EXPONENT
        for unit in units
    ]
    floor = least * median(values) if values else 0.0
    found = [unit for unit, value in zip(units, values, strict=True) if value >= floor and not unit.remark]
    return found or list(units)


def fit(chosen: Sequence[Unit], fits: Callable[[Sequence[Unit]], bool]) -> list[Unit]:
    """The longest beginning of the choice that fits, then what still fits of the rest. [] where nothing does."""
    low, high = 0, len(chosen)
    while low < high:
        middle = (low + high + 1) // 2
        if fits(chosen[:middle]):
            low = middle
        else:
            high = middle - 1
    kept = list(chosen[:low])
    # each try renders the whole: with many units few tries are enough to fill what is left
    for unit in chosen[low : low + (_TRIED if len(chosen) <= _MANY else _TRIED // 8)]:
        if fits([*kept, unit]):
            kept.append(unit)
    return kept


def exchange(
    kept: Sequence[Unit],
    units: Sequence[Unit],
    weights: Mapping[str, float],
    covered: Collection[str],
    fits: Callable[[Sequence[Unit]], bool],
) -> list[Unit]:
    """The choice after exchanging single units for others that say more, as long as all fit: the greedy choice is off by
    what its first picks make superfluous. Only where the texts are small; at most a few exchanges."""
    chosen = list(kept)
    if len(chosen) * len(units) > _COMPARED:
        return chosen
    for _ in range(_EXCHANGES):
        better = _exchanged(chosen, units, weights, covered, fits)
        if better is None:
            break
        chosen = better
    return chosen


def _exchanged(
    chosen: Sequence[Unit],
    units: Sequence[Unit],
    weights: Mapping[str, float],
    covered: Collection[str],
    fits: Callable[[Sequence[Unit]], bool],
) -> list[Unit] | None:
    """The first better choice that differs in one unit, filled up; None where there is none."""

    def gain(unit: Unit, known: Collection[str]) -> float:
        return fsum([weights.get(term, 0.0) for term in unit.terms if term not in known]) * unit.worth

    among = set(chosen)
    others = [unit for unit in units if unit not in among]
    told = Counter(term for unit in chosen for term in unit.terms)
    told.update(covered)
    gains = [(other, gain(other, told)) for other in others]
    for out in chosen:
        # without this one, all but what only it tells is known
        alone = {term for term in out.terms if told[term] == 1}
        known = told.keys() - alone
        floor = gain(out, known) * _BETTER
        for other, value in gains:
            if not alone.isdisjoint(other.terms):
                value = gain(other, known)
            if value > floor and fits([*(rest := [unit for unit in chosen if unit is not out]), other]):
                return _filled(
                    [*rest, other], [*others, out], floor * _WORTHWHILE, known | other.terms, gain, fits
                )
    return None


def _filled(
    chosen: list[Unit],
    others: Sequence[Unit],
    least: float,
    known: set[str],
    gain: Callable[[Unit, Collection[str]], float],
    fits: Callable[[Sequence[Unit]], bool],
) -> list[Unit]:
    """The choice with what else fits and adds more than `least` to what is known."""
    found = list(chosen)
    gains = [(unit, gain(unit, known)) for unit in others]
    more = sorted(
        ((unit, value) for unit, value in gains if value > least),
        key=lambda entry: (-entry[1], entry[0].position),
    )
    for unit, _ in more[:_TRIED]:
        if unit not in found and gain(unit, known) > 0 and fits([*found, unit]):
            found.append(unit)
            known |= unit.terms
    return found
