"""The gateway as an ASGI app."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import Depends, FastAPI

from services.gateway import (
    audit,
    characters,
    commands,
    context,
    health,
    live,
    memories,
    memory,
    memory_clear,
    memory_drafts,
    memory_history,
    memory_tools,
    openapi,
    problems,
    start,
    summaries,
    turns,
)
from services.gateway.draft_uses import DraftUses
from services.gateway.edge import Edge
from services.gateway.hub import Hub
from services.gateway.parameters import refuse_unknown
from services.gateway.ports import Deps

VERSION = "1"


def create_app(deps: Deps) -> FastAPI:
    """An app over these stores. Its lifespan owns the live channels and the drafter; the stores stay the caller's to
    close."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.hub.start()
        app.state.draft_uses.start()
        try:
            yield
        finally:
            await app.state.hub.close()
            await app.state.draft_uses.close()
            if deps.drafter is not None:
                await deps.drafter.close()

    app = FastAPI(
        title="Afterturn",
        version=VERSION,
        description="The memory behind a chat with a character: turns in, the context of the next reply out.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        # stored summaries leave out what is null: optional in the documents as well
        separate_input_output_schemas=False,
    )
    app.state.deps = deps
    app.state.hub = Hub(deps.redis)
    app.state.draft_uses = DraftUses(deps)
    app.state.streams = 0
    problems.install(app)
    saved = (memory_history, memory_clear, memory_drafts, memories, characters, commands, memory_tools)
    for module in (turns, context, memory, summaries, live, *saved, audit):
        app.include_router(module.router, dependencies=[Depends(refuse_unknown)])
    # whoever asks these two adds what it likes
    for module in (health, start):
        app.include_router(module.router)
    app.add_middleware(Edge, metrics=deps.metrics)
    app.openapi = lambda: openapi.document(app)  # type: ignore[method-assign]
    return app
