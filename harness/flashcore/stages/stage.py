"""The interface of a stage: one kind of measurement, in processes borrowed from the pool."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from flashcore.model.record import StageResult
from flashcore.runner.kernel_call import KernelCall
from flashcore.stages.context import Context


class StageModule(Protocol):
    """Check, bench, profile, sanitize: independent modules with these functions."""

    def prepare(self, context: Context) -> None:
        """Starts the stage's first processes before their cases are known, so that they import during the build.

        Raises:
            CapabilityError: a tool that the stage needs is missing; :meth:`run` reports it again.
        """
        ...

    def run(self, context: Context, cases: Sequence[KernelCall]) -> StageResult:
        """Measures the cases, or the remaining ones if ``context.folder`` contains an earlier attempt.

        Raises:
            CapabilityError: the machine lacks something that the stage needs.
            FlashcoreError: the folder cannot be written; earlier results are kept.
        """
        ...
