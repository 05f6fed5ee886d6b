"""The note on a verdict: the use of local memory, and the change that lets one more block fit on an SM."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from flashcore.chips import occupancy
from flashcore.model.case import Case
from flashcore.model.cause import cause_text
from flashcore.model.causes import Decided
from flashcore.model.record import CaseSubject, CodeSubject, Fact, Plan, Record, Subject
from flashcore.model.text import whole

#: Facts that the use of local memory causes.
LOCAL = frozenset(
    (
        "spill_store_bytes",
        "spill_load_bytes",
        "stack_bytes",
        "sass_ldl",
        "sass_stl",
        "sass_local_loop",
        "local_load_instructions",
        "local_store_instructions",
        "spill_instructions",
    )
)
OCCUPANCY = frozenset(("theoretical_occupancy", "blocks_per_sm"))


def note_on(record: Record, plans: Mapping[Case, Plan], fact: str, subject: Subject) -> str:
    """The note on a fact in one line; empty if there is none.

    Args:
        plans: the plans for the subject's arch by case.
    """
    match record.facts.get(fact, subject):
        case (Fact(detail=Decided()) | Fact(name="compiler_warnings")) as result:
            return result.note
    if fact in LOCAL:
        return local_memory(record, subject)
    if fact in OCCUPANCY and subject.case and subject.arch and subject.kernel:
        steps = [step for step in what_ifs(record, plans.get(subject.case), subject.arch) if step.subject == subject]
        return "; ".join(line for step in steps for line in step.lines)
    return ""


# --- local memory -------------------------------------------------------------------------------

_EXECUTED = (
    ("local_load_instructions", "loads"),
    ("local_store_instructions", "stores"),
    ("spill_instructions", "of them spills"),
)


def local_memory(record: Record, subject: Subject) -> str:
    """The kernel's use of local memory, its source line, and how often it ran, as far as recorded."""
    notes = [
        f.note
        for f in record.facts.named("local_memory")
        if f.subject.variant == subject.variant
        and f.value not in (None, "none")
        and subject.arch in (None, f.subject.arch)
        and subject.kernel in (None, f.subject.kernel)
    ]
    if not notes:
        return ""
    runs = _executed(record, subject)
    return notes[0] + (f"; executed: {runs}" if runs else "")


def _executed(record: Record, subject: Subject) -> str:
    if subject.arch is not None and subject.arch != record.gpu_arch:
        return ""
    shapes = [subject.shape] if subject.shape else list(record.suite.shapes)
    for shape in shapes:
        values = [
            (text, record.facts.number(name, CaseSubject(Case(subject.variant, shape), kernel=subject.kernel)))
            for name, text in _EXECUTED
        ]
        if any(value is not None for _, value in values):
            counts = ", ".join(f"{whole(value)} {text}" for text, value in values if value is not None)
            return f"{counts} on {shape}"
    return ""


# --- occupancy ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LaunchOccupancy:
    """A kernel's occupancy on one arch and shape, and the change needed for one more block per SM.

    Args:
        now: the present occupancy.
        then: the change needed for one more block; ``None`` if unknown.
    """

    subject: Subject
    now: occupancy.Occupancy
    then: occupancy.WhatIf | None

    @property
    def lines(self) -> list[str]:
        """``limited by registers: 8 registers fewer give 3 blocks instead of 2``, and the free resources."""
        if self.then is None:
            return [cause_text(self.now.cause)] if self.now.cause else []
        head = f"limited by {self.now.limiter}" if self.now.limiters else cause_text(self.now.cause)
        lines = self.then.lines()
        if lines and (self.then.target is not None or self.then.obstacle):
            return [f"{head}: {lines[0]}", *lines[1:]]
        return [head, *lines]


def what_ifs(record: Record, plan: Plan | None, arch: str) -> list[LaunchOccupancy]:
    """The occupancy of each kernel that the plan launches on ``arch``, once per distinct launch."""
    if plan is None:
        return []
    steps: dict[tuple[object, ...], LaunchOccupancy] = {}
    for launch in plan.launches:
        kernel = CodeSubject(plan.variant, arch, kernel=launch.kernel)
        registers, smem = (record.facts.number(name, kernel) for name in ("registers", "static_smem"))
        if registers is None or smem is None:
            continue
        resources = (prod(launch.block), int(registers), int(smem), launch.dynamic_smem, prod(launch.cluster))
        steps[launch.kernel, *resources] = LaunchOccupancy(
            CaseSubject(plan.case, kernel=launch.kernel, arch=arch),
            occupancy.occupancy(arch, *resources),
            occupancy.what_if(arch, *resources),
        )
    return list(steps.values())
