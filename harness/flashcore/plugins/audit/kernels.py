"""The kernels of an audit's record, the worst first, with the instantiations of a template as one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from flashcore.model.groups import grouped
from flashcore.model.record import Fact, Record, Subject
from flashcore.model.text import matches_any
from flashcore.readers.kernel_names import without_arguments

_SPILLS = ("spill_store_bytes", "spill_load_bytes")


@dataclass(frozen=True, slots=True)
class Group:
    """Kernels of one template, file and arch.

    Args:
        worst: the kernel with the most spills, then the largest; ``facts`` are its facts by name.
        name: the template's, or the only kernel's.
        spills: bytes stored and loaded by each kernel; ``None`` where unmeasured.
        code_bytes: of all its kernels.
    """

    worst: Subject
    facts: Mapping[str, Fact]
    name: str
    spills: tuple[float | None, ...]
    code_bytes: float


def groups(record: Record, names: str = "*", *, each: bool = False) -> list[Group]:
    """The kernels whose names match, unmeasured spills first, then the most.

    Args:
        each: a group for each kernel.
    """
    by_kernel = grouped(
        (f.subject, f) for f in record.facts if f.subject.arch and matches_any(f.subject.kernel or "", (names,))
    )
    kernels = [(subject, {fact.name: fact for fact in facts}) for subject, facts in by_kernel.items()]
    kernels.sort(key=lambda kernel: _rank(kernel[1]))
    members = grouped((subject if each else _template(subject), (subject, facts)) for subject, facts in kernels)
    return [_group(template, of) for template, of in members.items()]


def _group(template: Subject, members: list[tuple[Subject, dict[str, Fact]]]) -> Group:
    worst, facts = members[0]
    name = (template if len(members) > 1 else worst).kernel or ""
    spills = tuple(_spilled(of) for _, of in members)
    return Group(worst, facts, name, spills, sum(_number(of, "code_bytes") or 0.0 for _, of in members))


def _template(subject: Subject) -> Subject:
    return Subject(subject.variant, subject.arch, kernel=without_arguments(subject.kernel or ""))


def _number(facts: Mapping[str, Fact], name: str) -> float | None:
    return facts[name].number if name in facts else None


def _spilled(facts: Mapping[str, Fact]) -> float | None:
    stores, loads = (_number(facts, name) for name in _SPILLS)
    return None if stores is None or loads is None else stores + loads


def _rank(facts: Mapping[str, Fact]) -> tuple[float, ...]:
    spilled = _spilled(facts)
    sizes = (_number(facts, name) or 0.0 for name in ("stack_bytes", "code_bytes"))
    return -(float("inf") if spilled is None else spilled), *(-size for size in sizes)
