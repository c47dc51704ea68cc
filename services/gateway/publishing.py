"""Publishing within a request: confirmed in time, or the request fails."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from schemas.delivery import Outgoing
from services.gateway.ports import Deps
from services.gateway.problems import unavailable

_LOG = logging.getLogger(__name__)


async def publish(deps: Deps, records: Sequence[Outgoing]) -> None:
    """Returns once the broker has confirmed all records. Raises Problem 503; they may be in the log all the same."""
    try:
        async with asyncio.timeout(deps.publish_timeout):
            await deps.publisher.publish(records)
    except Exception as error:
        # whatever the client library raises: without a confirmation the answer must not say that they are there
        _LOG.warning("records not confirmed", extra={"error": type(error).__name__, "records": len(records)})
        raise unavailable("Kafka") from error
