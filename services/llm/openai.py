"""Any OpenAI-compatible endpoint, through the openai SDK.

| the endpoint | what follows |
|---|---|
| refuses the connection; 401, 403, 404, 408, 502, 503, 504, 529 | Unanswered, outage: the record is not to blame |
| 429 | Unanswered, outage; no call of this process goes out before `Retry-After` has passed |
| does not answer in time, or with another status | Unanswered: this request may be the reason, the retry budget decides |
| answers with something else than what was asked for | told so once; then Unanswered |
| does not know `json_schema` (400 or 422 that names it) | from then on `json_object`, with the schema in the prompt |

A wrong key or model name is an outage, so that nothing is lost while it is put right: the reason says which it is.
No limit of output tokens and no temperature are sent: compatible endpoints disagree on their names and values.
The deadline and the check of the answer bound both.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

import openai
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletion
from pydantic import ValidationError

from services.llm.port import Answer, Complaint, Completion, Request, Unanswered
from services.llm.schema import strict_schema
from services.tokens.counter import TokenCounter

_OUTAGES = frozenset({401, 403, 404, 408, 429, 502, 503, 504, 529})
_CONNECT = 10.0
"""Seconds for the connection alone."""

_LONGEST_PAUSE = 300.0
"""Seconds; a longer `Retry-After` is taken for this one."""


class OpenAIModel:
    """One model of one endpoint. `timeout`: seconds for one call, from the request to the end of the answer."""

    def __init__(
        self,
        name: str,
        *,
        base_url: str | None,
        api_key: str | None,
        timeout: float,
        counter: TokenCounter,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name = name
        self._timeout = timeout
        self._counter = counter
        self._sleep = sleep
        self._monotonic = monotonic
        self._not_before = 0.0
        self._schemas_known = True
        self._client = AsyncOpenAI(
            base_url=base_url,
            # an endpoint without keys does not look at it; without one the SDK would not start
            api_key=api_key or "none",
            max_retries=0,
            timeout=openai.Timeout(timeout, connect=min(_CONNECT, timeout)),
        )

    @property
    def name(self) -> str:
        """Name of the model."""
        return self._name

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def complete(self, request: Request[Answer]) -> Completion[Answer]:
        """See LanguageModel."""
        messages = [
            {"role": "system", "content": request.instructions},
            {"role": "user", "content": request.data},
        ]
        spent = _Spent()
        answer: Answer | None = None
        for attempt in (1, 2):
            try:
                text = await self._call(messages, request.answer, spent)
            except Unanswered:
                if answer is None:
                    raise
                break
            found, complaint = _read(text, request)
            if found is not None and (answer is None or complaint is None or complaint.usable):
                answer = found
            if complaint is None or attempt == 2:
                break
            messages += [
                {"role": "assistant", "content": text},
                {"role": "user", "content": f"{complaint.text} Answer again, with the whole JSON object."},
            ]
        if answer is None:
            raise Unanswered(
                f"model {self._name} twice answered with something else than the JSON that was asked for",
                tokens_in=spent.tokens_in,
                tokens_out=spent.tokens_out,
            )
        return Completion(answer, self._name, spent.tokens_in, spent.tokens_out)

    async def _call(self, messages: list[dict[str, str]], answer: type[Answer], spent: _Spent) -> str:
        """One answer's text; adds to `spent`. Raises Unanswered with what was spent so far."""
        await self._wait(spent)
        schema = strict_schema(answer)
        try:
            async with asyncio.timeout(self._timeout):
                reply = await self._create(messages, schema)
        except (TimeoutError, openai.APITimeoutError):
            raise spent.failure(f"model {self._name} did not answer within {self._timeout:g} s") from None
        except openai.APIConnectionError:
            reason = f"the endpoint of model {self._name} cannot be reached"
            raise spent.failure(reason, outage=True) from None
        except openai.APIStatusError as error:
            raise self._refused(error, spent) from None
        except (openai.OpenAIError, ValueError) as error:
            # ValueError: a body that claims to be JSON and is not
            reason = (
                f"the endpoint of model {self._name} answered with no completion ({type(error).__name__})"
            )
            raise spent.failure(reason) from None
        # the SDK hands over what a compatible endpoint sends, without a check
        if not isinstance(reply, ChatCompletion) or not reply.choices or reply.choices[0].message is None:
            raise spent.failure(f"the endpoint of model {self._name} answered with no completion")
        text = reply.choices[0].message.content or ""
        if reply.usage:
            spent.add(reply.usage.prompt_tokens or 0, reply.usage.completion_tokens or 0)
        else:
            spent.add(sum(self._counter(message["content"]) for message in messages), self._counter(text))
        return text

    async def _create(self, messages: list[dict[str, str]], schema: dict[str, Any]) -> Any:
        if self._schemas_known:
            form = {"name": "answer", "strict": True, "schema": schema}
            try:
                return await self._send(messages, {"type": "json_schema", "json_schema": form})
            except (openai.BadRequestError, openai.UnprocessableEntityError) as error:
                told = str(error)
                if "response_format" not in told and "json_schema" not in told:
                    raise
                self._schemas_known = False
        first, *rest = messages
        described = f"{first['content']}\n\nAnswer with one JSON object of this schema:\n{json.dumps(schema)}"
        return await self._send([{**first, "content": described}, *rest], {"type": "json_object"})

    async def _send(self, messages: list[dict[str, str]], form: dict[str, Any]) -> Any:
        # the SDK's types spell out every role and form; ours are plain dictionaries
        create: Any = self._client.chat.completions.create
        return await create(model=self._name, messages=messages, response_format=form)

    async def _wait(self, spent: _Spent) -> None:
        pause = self._not_before - self._monotonic()
        if pause > self._timeout:
            reason = f"the endpoint of model {self._name} asked for a pause of another {pause:.0f} s"
            raise spent.failure(reason, outage=True)
        if pause > 0:
            await self._sleep(pause)

    def _refused(self, error: openai.APIStatusError, spent: _Spent) -> Unanswered:
        status = error.status_code
        if status == 429:
            pause = _seconds(error.response.headers.get("retry-after"))
            self._not_before = max(self._not_before, self._monotonic() + pause)
        hint = {
            401: "the key is wrong (OPENAI_API_KEY)",
            403: "the key may not use it",
            404: "no such model or path (AFTERTURN_SUMMARY_MODEL, OPENAI_BASE_URL)",
            429: "too many requests, or nothing left of the quota",
        }.get(status)
        reason = f"model {self._name}: the endpoint answered with status {status}" + (
            f": {hint}" if hint else ""
        )
        return spent.failure(reason, outage=status in _OUTAGES)


class _Spent:
    """Tokens of the attempts so far."""

    def __init__(self) -> None:
        self.tokens_in = 0
        self.tokens_out = 0

    def add(self, tokens_in: int, tokens_out: int) -> None:
        self.tokens_in += tokens_in
        self.tokens_out += tokens_out

    def failure(self, reason: str, *, outage: bool = False) -> Unanswered:
        return Unanswered(reason, outage=outage, tokens_in=self.tokens_in, tokens_out=self.tokens_out)


def _read(text: str, request: Request[Answer]) -> tuple[Answer | None, Complaint | None]:
    """The answer if it is valid, and what is to be complained about."""
    start, end = text.find("{"), text.rfind("}")
    try:
        # some models put the object into a fence, or a word before it
        answer = request.answer.model_validate_json(text[start : end + 1] if start >= 0 else text)
    except ValidationError as error:
        fields = {".".join(map(str, problem["loc"])) or "the whole" for problem in error.errors()[:5]}
        told = f"This is not the JSON object that was asked for (wrong: {', '.join(sorted(fields))})."
        return None, Complaint(told, usable=False)
    return answer, request.complaint(answer)


def _seconds(value: str | None) -> float:
    """`Retry-After` in seconds; a date or nonsense counts as one second."""
    try:
        return min(max(float(value or 1), 0.0), _LONGEST_PAUSE)
    except ValueError:
        return 1.0
