"""What goes into the context of the next reply, and what does not fit. Pure; sizes are in tokens.

Everything is in when it fits (W6: pending messages always stand between the summaries and the window). When it does
not, what is kept is a gapless end of the conversation: from the newest turn backwards through live messages,
pending messages, recent, merged and long-term summaries up to the first that does not fit. Of the summaries beyond
that point the rules of the user stay where they fit, because they hold whatever else was said (S5). Saved memories come
right after the newest turn, those that are not pinned with a share (services/context/memories.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pydantic_core import to_json

from schemas.context import Part, Reason
from schemas.summaries import Body, Rule, Tier
from services.context.memories import NO_MEMORIES, Memories, Memory, Share
from services.context.snapshot import Snapshot, StoredMessage, StoredSummary
from services.summaries.render import render

SEPARATOR = "\n\n"
SEPARATOR_TOKENS = 1
"""Between two summaries of one part; o200k_base has a token for it."""

_TIERS = ((Part.recent, Tier.recent), (Part.merged, Tier.merged), (Part.long_term, Tier.long_term))


class Included(NamedTuple):
    """A summary in the context: its text, or only its rules where `shortened`, as a JSON string. `tokens` are of
    `text`."""

    summary: StoredSummary
    text: bytes
    tokens: int
    shortened: bool = False


class Omission(NamedTuple):
    """Something left out: `ids` in the order of the part."""

    part: Part
    ids: tuple[str, ...]
    tokens: int
    reason: Reason


@dataclass(slots=True)
class Context:
    """What was chosen, each list oldest first. `budget` None: not limited."""

    model_context: int | None
    reserve: int
    budget: int | None
    memories: Sequence[Memory] = ()
    memory_tokens: int = 0
    summaries: dict[Part, list[Included]] = field(default_factory=dict)
    pending: Sequence[StoredMessage] = ()
    live: Sequence[StoredMessage] = ()
    left_out: list[Omission] = field(default_factory=list)
    tokens: int = 0

    @property
    def over_budget(self) -> bool:
        """Only the newest turn may be over the budget."""
        return self.budget is not None and self.tokens > self.budget

    def fits(self, tokens: int) -> bool:
        """Whether so much more can be taken in."""
        return self.budget is None or self.tokens + tokens <= self.budget


def tier_tokens(included: Sequence[Included]) -> int:
    """Tokens of a tier's text, separators counted."""
    return sum(each.tokens for each in included) + SEPARATOR_TOKENS * max(0, len(included) - 1)


def rules_text(summary: StoredSummary) -> str:
    """The rules of a summary as they stand in its text, exact quotes; '' without rules."""
    rules = tuple(map(Rule.model_validate, summary.data["body"].get("rules", ())))
    return render(Body(rules=rules))


def assemble(
    snapshot: Snapshot,
    model_context: int | None,
    reserve: int,
    count: Callable[[str], int],
    memories: Memories = NO_MEMORIES,
) -> Context:
    """The context for a model of `model_context` tokens (None: that of the chat's last model, where known), of
    which `reserve` are kept free. `count` counts tokens; it is called only for rules that stand alone."""
    window = model_context if model_context is not None else snapshot.model_context
    context = Context(window, reserve, None if window is None else max(0, window - reserve))
    share = Share(memories, context.budget)
    share.first(sum(message.tokens for message in _newest_turn(snapshot)))
    context.tokens = share.tokens
    whole = _take_messages(context, snapshot)
    for part, tier in _TIERS:
        whole = _take_summaries(context, part, snapshot.tier(tier), whole, count)
    messages_and_summaries = context.tokens - share.tokens
    share.rest(messages_and_summaries)
    context.memories, context.memory_tokens = share.taken(), share.tokens
    context.tokens = messages_and_summaries + share.tokens
    context.left_out += [Omission(Part.memories, *omitted) for omitted in share.omitted()]
    order = list(Part)
    context.left_out.sort(key=lambda omission: order.index(omission.part))
    return context


def _newest_turn(snapshot: Snapshot) -> Sequence[StoredMessage]:
    messages = snapshot.live or snapshot.pending
    start = len(messages)
    while start and messages[start - 1].turn == messages[-1].turn:
        start -= 1
    return messages[start:]


def _take_messages(context: Context, snapshot: Snapshot) -> bool:
    """Newest first, up to the first that does not fit. True: all are in."""
    messages = [*snapshot.pending, *snapshot.live]
    everything = sum(message.tokens for message in messages)
    if context.fits(everything):
        context.tokens += everything
        context.pending, context.live = snapshot.pending, snapshot.live
        return True
    # the newest turn stays, even alone over the budget (W4)
    newest = _newest_turn(snapshot)
    start = len(messages) - len(newest)
    context.tokens += sum(message.tokens for message in newest)
    while start and context.fits(messages[start - 1].tokens):
        start -= 1
        context.tokens += messages[start].tokens
    border = len(snapshot.pending)
    context.pending = messages[start:border]
    context.live = messages[max(start, border) :]
    if start:
        _omit_messages(context, Part.live, messages[border:start], first=True)
        _omit_messages(context, Part.pending, messages[: min(start, border)], first=start <= border)
    return start == 0


def _omit_messages(context: Context, part: Part, messages: Sequence[StoredMessage], *, first: bool) -> None:
    """`first`: the newest of these is the one that did not fit; what is older is beyond the hole."""
    beyond = messages[:-1] if first else messages
    for group, reason in ((beyond, Reason.hole), (messages[len(beyond) :], Reason.over_budget)):
        if group:
            tokens = sum(message.tokens for message in group)
            context.left_out.append(Omission(part, tuple(message.id for message in group), tokens, reason))


def _take_summaries(
    context: Context, part: Part, summaries: Sequence[StoredSummary], whole: bool, count: Callable[[str], int]
) -> bool:
    """Newest first. `whole`: nothing nearer was left out; returns the same for what is farther."""
    included: list[Included] = []
    for summary in reversed(summaries):
        separator = SEPARATOR_TOKENS if included else 0
        if whole and context.fits(summary.tokens + separator):
            included.append(Included(summary, summary.text, summary.tokens))
            context.tokens += summary.tokens + separator
            continue
        reason, left = (Reason.over_budget if whole else Reason.hole), summary.tokens
        whole = False
        rules = rules_text(summary)
        tokens = count(rules) if rules else 0
        if rules and context.fits(tokens + separator):
            included.append(Included(summary, to_json(rules), tokens, shortened=True))
            context.tokens += tokens + separator
            reason, left = Reason.rules_only, max(0, summary.tokens - tokens)
        context.left_out.append(Omission(part, (summary.id,), left, reason))
    included.reverse()
    context.summaries[part] = included
    return whole
