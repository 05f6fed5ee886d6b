"""Exit codes of commands that build and measure."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flashcore.cli import build as cli_build
from flashcore.cli import check
from flashcore.errors import Exit
from flashcore.model.causes import CompilerStopped, Hang, PlanRefused
from flashcore.model.record import Artifact, CaseOutcome, Plan
from tests import factory

OK, FAILED = factory.artifact("a", "sm_80"), factory.artifact("b", "sm_80", "failed", "a.cu(1): error: no")
STOPPED = replace(FAILED, cause=CompilerStopped("Killed"))
PLAN = Plan("a", "s", (), 0, PlanRefused("too large"))


@pytest.mark.parametrize(
    ("artifacts", "plans", "code"),
    [
        ([OK, factory.artifact("c", "sm_80", "unsupported")], [PLAN], Exit.OK),
        ([OK, FAILED], [], Exit.FAILED),
        ([STOPPED, OK], [], Exit.INCAPABLE),
        ([STOPPED, FAILED], [], Exit.FAILED),
        ([OK], [replace(PLAN, cause=Hang(2))], Exit.FAILED),
    ],
)
def test_a_build_fails_unless_only_the_machine_stopped_it(
    artifacts: list[Artifact], plans: list[Plan], code: Exit
) -> None:
    assert cli_build.exit_code(artifacts, plans) is code


def test_a_failure_that_was_joined_is_none_of_this_run() -> None:
    record = factory.record()
    wrong = CaseOutcome("fast", "mission", "check", "failed")
    assert check.failed(record) is Exit.OK
    assert check.failed(replace(record, outcomes=(*record.outcomes, wrong))) is Exit.FAILED
    assert check.failed(replace(record, outcomes=(replace(wrong, origin="20260101T000000Z-0001"),))) is Exit.OK
    assert check.failed(replace(record, artifacts=(FAILED,))) is Exit.FAILED
