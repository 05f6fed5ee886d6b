"""A stage: one kind of measurement of the cases, in processes that it borrows from the pool."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from flashcore.measure.context import Context
from flashcore.measure.workers.kernel_call import Case
from flashcore.model.record import StageResult


class Stage(Protocol):
    """Check, bench, profile, sanitize: each is a module with these functions, and knows none of the others."""

    def prepare(self, context: Context) -> None:
        """Starts the stage's first processes before their cases are known: they import while the build compiles.

        Raises:
            CapabilityError: a tool that the stage needs is missing; :meth:`run` says so again.
        """
        ...

    def run(self, context: Context, cases: Sequence[Case]) -> StageResult:
        """Measures the cases, or what is left of them if ``context.folder`` holds an earlier attempt.

        Raises:
            CapabilityError: the machine lacks what the stage needs.
            FlashcoreError: the folder cannot be written; what was measured is kept.
        """
        ...
