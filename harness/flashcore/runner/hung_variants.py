"""The variants that hung on a shape, which are run on no other: a time limit passes only once for each."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from flashcore.model.causes import Hang, HungBefore
from flashcore.runner.journal import TaskResult, read_journal


def hung(results: Iterable[TaskResult]) -> dict[str, HungBefore]:
    """Variants that hung → why their other cases are skipped. The variant comes from the task's name, or else from its
    step."""
    causes: dict[str, HungBefore] = {}
    for r in results:
        variant = r.name.rpartition("/")[0] or r.step.variant
        if variant and isinstance(r.cause, Hang):
            causes.setdefault(variant, HungBefore(r.name.rpartition("/")[2], r.cause))
    return causes


def hung_before(folder: Path) -> dict[str, HungBefore]:
    """The variants that hung so far (see :func:`hung`). Only a parent answers for a process that hangs, so the
    processes' journals, which grow with each sample, are not read."""
    return hung(m for m in read_journal(folder / "supervisor.jsonl") if isinstance(m, TaskResult))
