"""One draft of a body: what stands already and has to stay comes first, the timeline gets the rest of the budget."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import fsum

from schemas.summaries import Body
from services.summaries.extractive import composition
from services.summaries.extractive.facts import may_name, names_and_numbers
from services.summaries.extractive.selection import choose, exchange, fit, worthwhile
from services.summaries.extractive.sources import Reading
from services.summaries.extractive.terms import Use, capitals_are_common, tokens, weights
from services.summaries.extractive.units import Unit, joined
from services.summaries.extractive.wording import cleaned
from services.summaries.render import line_of, lines, render
from services.summaries.text import shorten
from services.tokens.counter import TokenCounter
from services.tokens.lines import LineCounter

SECTIONS_FROM = 120
"""Tokens from which on a first summary has sections: in a smaller one their headings would cost too much of it."""

_STATE = 0.2
_PROMISES = 0.35
_FACTS = 0.2
_EDITED = 0.6
_NEW_STATE = 0.15
_NEW_PROMISES = 0.25
_NEW_FACTS = 0.1
_PER_PERIOD = 4
_AROUND = 3
"""Clauses on either side that tell how the language of a clause uses capitals: a chat may have several."""


@dataclass(frozen=True, slots=True)
class Plan:
    """`budget` is in tokens of the rendered body. `oldest` is the worth of the oldest unit relative to the newest;
    `new_message`, `again` and `least` go to the selection. With `periods` the older half becomes one line per period."""

    budget: int
    oldest: float = 1.0
    new_message: float = 1.0
    again: float = 0.0
    least: float = 0.0
    sections: bool = True
    periods: bool = False


def draft(reading: Reading, plan: Plan, count: TokenCounter) -> Body:
    """The best body within the budget, without rules; an empty one where not even a few words fit."""
    units = _aged(reading.units, plan.oldest)
    worth = weights([Use(u.tokens, u.author, u.question, u.bracketed) for u in units], reading.speakers)
    body = Body()
    taken: set[int] = set()
    if plan.sections:
        body, taken = _standing(reading, worth, plan, count)
    covered = _terms([*body.promises, *body.state, *body.facts])
    reserved = int(_NEW_FACTS * plan.budget * plan.sections)
    room = plan.budget - count(render(body)) - reserved
    fixed = _edited(units, worth, room, covered, count)
    covered = covered.union(*(unit.terms for unit in fixed))
    left = [unit for unit in units if unit.position not in taken and unit not in fixed]

    candidates = worthwhile(left, worth, plan.least, count)

    def with_timeline(chosen: Sequence[Unit]) -> Body:
        timeline = composition.lines(chosen, _periods(chosen, units, plan))
        return body.model_copy(update={"timeline": tuple(timeline)})

    line_texts, line_tokens, standing = composition.Lines(), LineCounter(count), lines(body)

    def fit_together(chosen: Sequence[Unit]) -> bool:
        timeline = map(line_of, line_texts(chosen, _periods(chosen, units, plan)))
        return line_tokens([*timeline, *standing]) <= plan.budget - reserved

    def fits(chosen: Sequence[Unit]) -> bool:
        return fit_together([*fixed, *chosen])

    # more than fits: what is estimated as too long may fit between its neighbours
    chosen = choose(
        candidates,
        worth,
        room * 4 // 3 + 4,
        count=count,
        covered=covered,
        new_message=plan.new_message,
        again=plan.again,
    )
    if not fits([]):
        fixed = fit(fixed, fit_together)
    fitting = [*fixed, *exchange(fit(chosen, fits), candidates, worth, covered, fits)]
    if not fitting and not render(body) and left:
        fitting = _shortened(left, worth, fits)
    body = _without_repeated(with_timeline(fitting))
    return _with_facts(body, left, worth, plan, count) if plan.sections else body


def _without_repeated(body: Body) -> Body:
    """The body without facts that its other lines tell."""
    told = _terms([*(line.text for line in body.timeline), *body.promises, *body.state])
    return body.model_copy(update={"facts": tuple(fact for fact in body.facts if _terms([fact]) - told)})


def _aged(units: Sequence[Unit], oldest: float) -> list[Unit]:
    if oldest == 1.0 or len(units) < 2:
        return list(units)
    step = (1.0 - oldest) / (len(units) - 1)
    return [replace(unit, worth=unit.worth * (oldest + step * at)) for at, unit in enumerate(units)]


def _edited(
    units: Sequence[Unit], worth: Mapping[str, float], room: int, covered: set[str], count: TokenCounter
) -> list[Unit]:
    """What a person looked over comes before all other lines, up to a share of the room (S6)."""
    edited = [unit for unit in units if unit.edited]
    return choose(edited, worth, int(_EDITED * room), count=count, covered=covered) if edited else []


def _terms(entries: Sequence[str]) -> set[str]:
    return {token.term for entry in entries for token in tokens(entry)}


def _value(unit: Unit, worth: Mapping[str, float]) -> float:
    return fsum([worth.get(term, 0.0) for term in unit.terms]) * unit.worth


def _standing(
    reading: Reading, worth: Mapping[str, float], plan: Plan, count: TokenCounter
) -> tuple[Body, set[int]]:
    """Promises, facts and state: those that stand, the newest first as far as their shares reach; in a first summary
    the best clauses for them. With the positions of the units that they took."""
    if plan.budget <= 0:
        return Body(), set()
    taken: set[int] = set()
    state = _newest(reading.state, _STATE * plan.budget, count)
    if not state:
        latest = [unit for unit in reading.latest if count(unit.text) <= _NEW_STATE * plan.budget]
        if latest:
            best = max(latest, key=lambda unit: _value(unit, worth))
            state = (composition.said([best]),)
            taken.add(best.position)
    promises = _newest(reading.promises, _PROMISES * plan.budget, count)
    groups = {group[0].position: group for group in reading.promised}
    chosen = choose(
        [joined(group) for group in groups.values() if not any(unit.position in taken for unit in group)],
        worth,
        int(_NEW_PROMISES * plan.budget),
        count=count,
        covered=_terms([*state, *promises]),
    )
    promises += tuple(line.text for line in composition.lines(chosen))
    taken.update(unit.position for promise in chosen for unit in groups[promise.position])
    body = Body(promises=promises, facts=_newest(reading.facts, _FACTS * plan.budget, count), state=state)
    for without in ({"facts": ()}, {"promises": ()}, {"state": ()}):
        if count(render(body)) <= plan.budget:
            return body, taken
        body = body.model_copy(update=without)
    return Body(), set()


def _newest(entries: Sequence[str], room: float, count: TokenCounter) -> tuple[str, ...]:
    """The newest entries that together take at most `room` tokens, in their order."""
    kept: list[str] = []
    for entry in reversed(entries):
        cost = count(f"\n{entry}")
        if cost <= room:
            kept.append(entry)
            room -= cost
    return tuple(reversed(kept))


def _periods(chosen: Sequence[Unit], units: Sequence[Unit], plan: Plan) -> list[int]:
    """Where the periods of the older half end, so that each has a few of the chosen units."""
    if not plan.periods or not units:
        return []
    middle = units[len(units) // 2].first_seq
    old = sorted(unit.first_seq for unit in chosen if unit.first_seq < middle)
    return sorted({*old[_PER_PERIOD::_PER_PERIOD], middle} if old else set())


def _shortened(
    units: Sequence[Unit], worth: Mapping[str, float], fits: Callable[[Sequence[Unit]], bool]
) -> list[Unit]:
    """The beginning of the best unit, where none fits whole."""
    best = max(units, key=lambda unit: _value(unit, worth))
    size = min(len(best.text), 400)
    while size > 3:
        text = cleaned(shorten(best.text, size))
        if text and fits([replace(best, text=text)]):
            return [replace(best, text=text)]
        size = size * 3 // 4
    return []


def _with_facts(
    body: Body, units: Sequence[Unit], worth: Mapping[str, float], plan: Plan, count: TokenCounter
) -> Body:
    """Names and numbers that no line says, as far as the budget reaches."""
    known = _terms([render(body)])
    room = plan.budget - count(render(body)) - count("\nFacts:")
    terms = lru_cache(maxsize=None)(lambda fact: _terms([fact]))
    costs = lru_cache(maxsize=None)(lambda fact: count(f"\n{fact}"))
    found: list[tuple[float, int, str]] = []
    for at, unit in enumerate(units):
        if not may_name(unit.text):
            continue
        around = units[max(0, at - _AROUND) : at + _AROUND + 1]
        single = not capitals_are_common([near.tokens for near in around])
        for fact in names_and_numbers(unit.text, single=single):
            gain = fsum([worth.get(term, 0.0) for term in terms(fact) - known])
            found.append((gain * unit.worth / max(1, costs(fact)), unit.position, fact))
    kept: list[tuple[int, str]] = []
    for value, position, fact in sorted(found, key=lambda item: (-item[0], item[1])):
        new = terms(fact) - known
        cost = costs(fact)
        if value > 0 and new and cost <= min(room, _NEW_FACTS * plan.budget):
            kept.append((position, fact))
            known |= new
            room -= cost
    facts = [*body.facts, *(fact for _, fact in sorted(kept))]
    told = [*map(terms, facts)]
    facts = [
        fact
        for at, fact in enumerate(facts)
        if at < len(body.facts) or not any(told[at] < other for other in told)
    ]
    while len(facts) > len(body.facts):
        full = body.model_copy(update={"facts": tuple(facts)})
        if count(render(full)) <= plan.budget:
            return full
        facts.pop()
    return body
