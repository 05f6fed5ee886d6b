"""Compares a record with its baseline: each committed fact becomes a budget on the present one.

Renamed kernels are recognized. Facts of removed variants and shapes give notes. A missing kernel without a successor
leaves a gap, which is *unmeasured*, never a pass.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date

from flashcore.gate.baseline import (
    ALL_SHAPES,
    CODE,
    FP64,
    LAUNCH,
    NO_KERNEL,
    Baseline,
    Kernel,
    Key,
    compilers,
    matched,
    noted,
    plain,
    present,
    renames,
)
from flashcore.gate.expand import PLAN_TOTALS, PLANNED, Expansion, Expectation, excess, expired, in_scope
from flashcore.model.catalogue import FACTS
from flashcore.model.cause import Cause
from flashcore.model.causes import GONE, PLAN_FAILED, DidNotCompile
from flashcore.model.gate_policy import ALLOWANCES, PREFIX
from flashcore.model.groups import grouped
from flashcore.model.record import Fact, Record, Subject, subject_of
from flashcore.model.suite import Budget, GateRule, RuleSeverity
from flashcore.model.text import count, matches_any, number


@dataclass(frozen=True, slots=True)
class BaselineLimits:
    """The limits that a baseline sets for a record, and what else differs from it.

    Args:
        expectations: each fact of the baseline as a budget, with the present facts.
        notes: renamed kernels, new facts, removed variants.
        relaxed: the manifest's rules that are looser than the defaults, in words.
        before: the baseline's value of each present fact, by name and subject.
    """

    expectations: tuple[tuple[Budget, Sequence[Expectation]], ...] = ()
    notes: tuple[str, ...] = ()
    relaxed: tuple[str, ...] = ()
    before: Mapping[tuple[str, Subject], float] = field(default_factory=dict)


def another_compiler(record: Record, old: Baseline) -> dict[str, str]:
    """By compiler, why its facts cannot be compared with this baseline; empty if all can."""
    file, made_by = old.file or "the baseline", compilers(record)
    if not old.compilers:  # only the baseline's kernels were recorded cubins
        return {
            name: f"built with {name} {version}, but {file} is from recorded cubins (write a new baseline)"
            for name, version in made_by.items()
        }
    return {
        name: f"built with {name} {made_by[name]}, but {file} was written with {recorded}: "
        "facts compare only within one version (install that version, or write a new baseline)"
        for name, recorded in old.compilers.items()
        if made_by.get(name, recorded) != recorded
    }


def compare(record: Record, old: Baseline, variants: Collection[str] | None, today: date | None) -> BaselineLimits:
    """Compares every fact of the baseline with the present one.

    Args:
        variants: compare only these; all if ``None``.
        today: the date for the rules' expiry.
    """
    suite = record.suite
    rules = [rule for rule in suite.gate.rules if not expired(rule, today)]
    facts = present(record)
    now = Baseline(
        suite.name, old.compilers, {key: fact.number or 0.0 for key, fact in facts.items()}, noted=noted(record)
    )
    old_names = renames(old, now)
    lines = matched(old.values, facts, old_names)
    before = {(key.fact, facts[key].subject): old.values[line] for key, line in lines.items()}
    facts_by_line = grouped((line, facts[key]) for key, line in lines.items())
    new_names = {old_kernel: kernel for kernel, old_kernel in old_names.items()}
    built = {(a.variant, a.arch): a.status for a in record.artifacts}
    planless = {
        (p.variant, arch): PLAN_FAILED(p.cause, p.shape)
        for p in record.plans
        if p.cause
        for arch in p.archs or suite.archs
    }
    removed: Counter[str] = Counter()
    expectations: list[tuple[Budget, Sequence[Expectation]]] = []
    for key, value in old.values.items():
        if variants is not None and key.variant not in variants:
            continue
        variant = suite.variants.get(key.variant)
        if variant is None or key.arch not in variant.where.archs:
            removed[f"{key.variant} for {key.arch}"] += 1
            continue
        if key[:2] not in built:
            continue  # excluded by CUDA_ARCH: neither built nor checked
        shape = None if key.shape == ALL_SHAPES else key.shape
        budget = limit_of(old, key, value, rules, subject_of(key.variant, shape, key.kernel, arch=key.arch))
        if budget is None:
            continue
        if key in facts_by_line:
            expectations.append((budget, [Expectation(fact.subject, fact) for fact in facts_by_line[key]]))
            continue
        if shape is not None and shape not in suite.shapes:
            removed[f"shape {shape}"] += 1
            continue
        cause: Cause = planless.get(key[:2], GONE()) if key.fact in PLANNED | PLAN_TOTALS else GONE()
        if built[key[:2]] == "failed":
            cause = DidNotCompile()
        kernel = None if key.kernel == NO_KERNEL else new_names.get(key[:3], key[:3])[2]
        expectations.append((budget, [Expectation(subject_of(key.variant, shape, kernel, arch=key.arch), None, cause)]))
    renamed = grouped(((variant, was, name), arch) for (variant, arch, name), (*_, was) in sorted(old_names.items()))
    notes = [
        f"kernel renamed: {was} is now {name} ({', '.join((variant, *archs))})"
        for (variant, was, name), archs in renamed.items()
    ]
    notes += [
        f"{name}: no longer in the suite, {count(n, 'fact')} of the baseline skipped" for name, n in removed.items()
    ]
    notes += _unlisted(old, facts, lines, old_names)
    notes += _changed(old, now, old_names)
    return BaselineLimits(tuple(expectations), tuple(notes), tuple(_relaxed(suite.gate.rules, today)), before)


def limit_of(old: Baseline, key: Key, value: float, rules: Iterable[GateRule], subject: Subject) -> Budget | None:
    """The limit that a line of the baseline sets; ``None`` if a rule ignores the fact."""
    allowance, reason = ALLOWANCES[key.fact], ""
    for rule in rules:
        if matches_any(key.fact, rule.facts) and in_scope(rule, subject, unknown=True):
            tolerance = allowance.tolerance if rule.tolerance is None else rule.tolerance
            allowance, reason = replace(allowance, tolerance=tolerance, severity=rule.severity), rule.reason
    if allowance.severity == "ignore":
        return None
    limit, unit = allowance.limit(value), FACTS[key.fact].unit
    line = f":{old.lines[key]}" if old.lines else ""
    source = f"baseline, {old.file.rsplit('/', 1)[-1] or 'saved'}{line}: {number(value, unit)}"
    return Budget(
        name=PREFIX + key.fact,
        fact=key.fact,
        unit=unit,
        tier="static",
        severity="limit" if allowance.severity == "fail" else "goal",
        source=f"{source} ({reason})" if reason else source,
        maximum=limit if allowance.better == "lower" else None,
        minimum=limit if allowance.better == "higher" else None,
    )


_ADDS = " (flashcore baseline save, or audit --save-baseline, adds them)"


def _unlisted(
    old: Baseline, facts: Mapping[Key, Fact], lines: Collection[Key], old_names: Collection[Kernel]
) -> Iterator[str]:
    """Notes on kernels and facts without a line. A fact of 0 that cannot get worse needs none."""
    listed = {key[:3] for key in old.values}
    kernels: set[str] = set()
    kernel_facts: set[str] = set()
    for key in facts.keys() - lines:
        kernel = f"{key.variant}/{key.kernel} ({key.arch})"
        if key[:3] not in listed and key[:3] not in old_names and key.kernel != NO_KERNEL:
            kernels.add(kernel)
        elif key[:3] in listed and (facts[key].number or ALLOWANCES[key.fact].better == "lower"):
            kernel_facts.add(f"{kernel} {key.fact}")
    if kernels:
        yield f"{len(kernels)} kernels or variants are not in the baseline yet: {_short(sorted(kernels))}{_ADDS}"
    if kernel_facts:
        names = _short(sorted(kernel_facts))
        yield f"{len(kernel_facts)} facts of kernels in the baseline have no line there, new or removed: {names}{_ADDS}"


def _changed(old: Baseline, now: Baseline, old_names: Mapping[Kernel, Kernel]) -> Iterator[str]:
    """Notes on other machine code, other launches, and FP64 instructions in kernels that had none."""
    lines = matched(old.noted, now.noted, old_names)
    with_code = {key[:3] for key in old.noted if key.fact == CODE}
    where: dict[str, dict[tuple[str, str, str], dict[str, None]]] = {}
    for key, text in now.noted.items():
        was = old.noted[lines[key]] if key in lines else ""
        is_new = key.fact == FP64 and not was and old_names.get(key[:3], key[:3]) in with_code
        if is_new or (was not in ("", text) and key.fact != FP64):
            change = f": {was} → {text}" if key.fact == LAUNCH else ""
            at = key.shape if key.fact == LAUNCH else key.arch
            where.setdefault(key.fact, {}).setdefault((key.variant, key.kernel, change), {})[at] = None
    titles = {CODE: "machine code changed", LAUNCH: "launch changed", FP64: "FP64 instructions are new"}
    for fact, changes in where.items():
        names = [f"{variant}/{kernel} ({', '.join(at)}){change}" for (variant, kernel, change), at in changes.items()]
        yield f"{titles[fact]}: {_short(names)}"


def _short(names: Sequence[str]) -> str:
    return "; ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


#: A rule's effect by severity, without and with a tolerance.
_RELAXED: Mapping[RuleSeverity, tuple[str, str]] = {
    "fail": ("", "may get worse by"),
    "show": ("shown only", "shown beyond"),
    "ignore": ("not compared", "not compared by"),
}


def _relaxed(rules: Iterable[GateRule], today: date | None) -> Iterator[str]:
    for rule in rules:
        if not rule.reason:
            continue
        allowed, beyond = _RELAXED[rule.severity]
        if rule.tolerance is not None:
            allowed = f"{beyond} {100 * rule.tolerance:g} %"
        where = ", ".join(rule.variants) if rule.variants != ("*",) else "all variants"
        until = f", {'expired on' if expired(rule, today) else 'until'} {rule.expires}" if rule.expires else ""
        yield f"{', '.join(rule.facts)} on {where}: {allowed}{until}: {rule.reason}"


# --- the ratchet ----------------------------------------------------------------------------------


def slack(record: Record) -> list[str]:
    """The static limits of the manifest that all values meet with slack, each with its tightest possible value."""
    messages = []
    expansion = Expansion(record)
    for budget in record.suite.budgets:
        bounds = {"max": budget.maximum, "min": budget.minimum}
        one_sided = [(name, limit) for name, limit in bounds.items() if limit is not None]
        if budget.tier != "static" or budget.severity != "limit" or len(one_sided) != 1:
            continue
        ((bound, limit),) = one_sided
        numbers = [e.fact.number for e in expansion.expand(budget) if e.fact is not None]
        measured = [value for value in numbers if value is not None]
        if not measured or len(measured) < len(numbers) or any(excess(budget, value) > 0 for value in measured):
            continue
        worst = max(measured) if bound == "max" else min(measured)
        if worst != limit:
            messages.append(f"{budget.name}: {bound} = {plain(limit)} could be {plain(worst)}")
    return messages
