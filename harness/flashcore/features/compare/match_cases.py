"""Selects the cases of two builds of a suite that differ and can be timed against each other."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from flashcore.explain.comparison import Change, Difference, Outcome
from flashcore.model.case import Case
from flashcore.model.groups import grouped
from flashcore.model.record import Built, CaseSubject
from flashcore.model.suite import Shape, Variant
from flashcore.stages.context import Context


class MatchedCase(NamedTuple):
    """A case whose code differs: the variant before and after, on one shape, and the names of the identical ones."""

    before: Variant
    after: Variant
    shape: Shape
    names: tuple[str, ...]

    @property
    def case(self) -> str:
        return f"{self.after.name}/{self.shape.name}"

    def row(self, outcome: Outcome, reason: str = "", changes: Sequence[Change] = ()) -> Difference:
        """The outcome of the case."""
        return Difference(
            CaseSubject(Case(self.after.name, self.shape.name)), outcome, changes, reason, shapes=self.names
        )


class BuiltSuite(NamedTuple):
    """A suite that is compared: the job and its build."""

    job: Context
    built: Built


def pair(before: BuiltSuite, after: BuiltSuite, revision: str) -> tuple[list[Difference], list[MatchedCase]]:
    """Every case of ``after`` that bench would time, of identical shapes the first: the outcomes of those not timed,
    and the pairs to time."""
    alike = grouped(((v.name, after.job.suite.computation(s)), (v, s)) for v, s in after.job.cases("bench"))
    matches = [_pair(before, after, of[0][0], [s for _, s in of], revision) for of in alike.values()]
    return [m for m in matches if isinstance(m, Difference)], [m for m in matches if isinstance(m, MatchedCase)]


def _pair(
    before: BuiltSuite, after: BuiltSuite, variant: Variant, shapes: Sequence[Shape], revision: str
) -> Difference | MatchedCase:
    shape, names = shapes[0], tuple(s.name for s in shapes)
    row = partial(Difference, CaseSubject(Case(variant.name, shape.name)), shapes=names)
    if trouble := _trouble(after, variant, shape):
        failed, reason = trouble
        return row("failed" if failed else "unsupported", reason=reason)
    old = before.job.suite.variants.get(variant.name)
    reason = ""
    if old is None:
        reason = f"{revision} does not have it"
    elif shape.name not in before.job.suite.shapes:
        reason = f"in {revision} the operator takes other arguments"
    elif not old.runs_on(shape):
        reason = f"{revision} does not have it on this shape"
    elif trouble := _trouble(before, old, shape):
        failed, why = trouble
        if failed:  # it exists, but its time is unknown
            return row("undecided", reason=f"{revision}: {why}")
        reason = f"{revision}: {why}"
    if old is None or reason:
        return row("nothing to compare with", reason=reason)
    return (
        row("same code") if _same_code(before, after, old, variant, shape) else MatchedCase(old, variant, shape, names)
    )


def _trouble(side: BuiltSuite, variant: Variant, shape: Shape) -> tuple[bool, str] | None:
    """Whether it failed, and why it cannot run; ``None`` if it can."""
    if variant.is_reference:
        return None
    artifacts = [a for a in side.built.artifacts if a.variant == variant.name and side.job.gpu_arch in (None, a.arch)]
    for artifact in artifacts:
        if artifact.status == "failed":
            return True, f"does not compile for {artifact.arch}: {artifact.message}"
    if not any(a.status == "ok" for a in artifacts):
        return False, artifacts[0].message if artifacts else f"not declared for {side.job.gpu_arch}"
    plan = side.built.plan(variant.name, shape.name, side.job.gpu_arch)
    return (plan.failed, plan.error) if plan is not None and not plan.can_run else None


def _same_code(before: BuiltSuite, after: BuiltSuite, old: Variant, new: Variant, shape: Shape) -> bool:
    """Whether a GPU gets the same work from both. The problem's file does not matter, unlike for the freshness of a
    recorded time: both are timed on the present inputs."""
    work = work_of(before, old, shape)
    return work is not None and work == work_of(after, new, shape)


def work_of(side: BuiltSuite, variant: Variant, shape: Shape) -> object | None:
    """What a GPU gets to do, for comparisons: machine code, host code and launches; ``None`` if they are unknown."""
    if variant.is_reference:
        return variant.kind, python_of(side.job)
    built = side.built
    codes = {
        a.arch: (a.code, a.host, a.cxx, a.calls.get(shape.name))
        for a in built.artifacts
        if a.variant == variant.name and a.code
    }
    plans = {
        arch: (plan.launches, plan.workspace_bytes)
        for arch in codes
        if (plan := built.plan(variant.name, shape.name, arch))
    }
    return (codes, plans) if codes and plans else None


def python_of(job: Context) -> dict[str, str]:
    """All Python of the suite by file, since any file may import any other; comments left out."""
    root = Path(job.suite.root)
    files = {path.relative_to(root): path.read_text(encoding="utf-8", errors="replace") for path in root.rglob("*.py")}
    # A folder that begins with a dot is a virtual environment, not part of the suite.
    return {str(n): _uncommented(t) for n, t in files.items() if not any(part.startswith(".") for part in n.parts)}


def _uncommented(text: str) -> str:
    try:
        return ast.dump(ast.parse(text))
    except (SyntaxError, ValueError):  # it cannot be imported; its text is compared
        return text
