"""The audit passes whatever was taken back, at every moment; what is due once all is summarised is merged."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import invariant, run_state_machine_as_test

from services.audit.service import audit
from tests.integration.test_takeback_model import TakeBackMachine, runner

__all__ = ["runner"]


class AuditMachine(TakeBackMachine):
    """The histories of the model, looked at by the audit."""

    @invariant()
    def the_audit_passes(self) -> None:
        report = self.run(audit(self.redis, None))
        assert report.findings == []
        assert report.read.deleted_chats == len(self.deleted)

    def teardown(self) -> None:
        self.summarise_all()
        report = self.run(audit(self.redis, None, at_rest=True))
        super().teardown()
        assert report.findings == []


@pytest.mark.rule("W7", "W8", "S2")
def test_what_is_left_after_taking_back_passes_at_every_moment(
    redis_url: str, runner: asyncio.Runner
) -> None:
    AuditMachine.redis_url = redis_url
    AuditMachine.runner = runner
    run_state_machine_as_test(
        AuditMachine,
        settings=settings(
            max_examples=10, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
