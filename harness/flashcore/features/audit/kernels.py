"""Groups the kernels of an audit's record by template, the worst first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf

from flashcore.model.groups import grouped
from flashcore.model.record import Fact, Record, Subject
from flashcore.model.text import matches_any
from flashcore.readers.kernel_names import without_arguments

SPILL_FACTS = ("spill_store_bytes", "spill_load_bytes")


@dataclass(frozen=True, slots=True)
class Group:
    """Kernels of one template, file and arch.

    Args:
        worst: the kernel with the most spills, then the largest; ``facts`` are its facts by name.
        name: the template's, or the only kernel's.
        spills: bytes stored and loaded by each kernel; ``None`` where unmeasured.
        code_bytes: the machine code of all its kernels.
    """

    worst: Subject
    facts: Mapping[str, Fact]
    name: str
    spills: tuple[float | None, ...]
    code_bytes: float


def groups(record: Record, names: str = "*", *, each: bool = False) -> list[Group]:
    """The kernels whose names match, unmeasured spills first, then the most.

    Args:
        each: whether each kernel is a group.
    """
    by_kernel = grouped(
        (f.subject, f) for f in record.facts if f.subject.arch and matches_any(f.subject.kernel or "", (names,))
    )
    kernels = [(subject, {fact.name: fact for fact in facts}) for subject, facts in by_kernel.items()]
    kernels.sort(key=lambda kernel: _rank(kernel[1]))
    members = grouped(
        (s if each else replace(s, kernel=without_arguments(s.kernel or "")), (s, facts)) for s, facts in kernels
    )
    return [_group(template, of) for template, of in members.items()]


def _group(template: Subject, members: list[tuple[Subject, dict[str, Fact]]]) -> Group:
    worst, facts = members[0]
    name = (template if len(members) > 1 else worst).kernel or ""
    spills = tuple(_sum(of, *SPILL_FACTS) for _, of in members)
    return Group(worst, facts, name, spills, sum(_sum(of, "code_bytes") or 0.0 for _, of in members))


def _sum(facts: Mapping[str, Fact], *names: str) -> float | None:
    """The sum of these facts; ``None`` if one is unmeasured."""
    values = [facts[name].number if name in facts else None for name in names]
    return None if None in values else sum(filter(None, values))


def _rank(facts: Mapping[str, Fact]) -> tuple[float, ...]:
    spilled = _sum(facts, *SPILL_FACTS)
    return -(inf if spilled is None else spilled), *(-(_sum(facts, n) or 0.0) for n in ("stack_bytes", "code_bytes"))
