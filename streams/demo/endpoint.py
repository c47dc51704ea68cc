"""One small question to the model before the demo starts: the agents themselves wait for an endpoint without an end."""

from __future__ import annotations

from pydantic import BaseModel

from services.failures import Transient
from services.llm.port import Request, Unanswered
from services.settings import Settings
from services.tokens.counter import default_counter
from streams.resources import language_model


class Ready(BaseModel):
    """What the model is asked to say."""

    ready: bool


async def ask(settings: Settings) -> None:
    """Raises Transient with what to look at where the model gives no usable answer. Some 50 tokens, which nobody books."""
    model = language_model(settings, default_counter())
    try:
        instructions = 'Answer with the JSON object {"ready": true} and nothing else.'
        await model.complete(Request(instructions, "Are you ready?", Ready))
    except Unanswered as error:
        hint = "see --model, --base-url or OPENAI_BASE_URL, and OPENAI_API_KEY"
        raise Transient(f"{error}; {hint}") from error
    finally:
        await model.close()
