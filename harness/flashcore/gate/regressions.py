"""Compares a record with its baseline: each committed fact becomes a budget on the present one, and what changed is a
comparison.

Renamed kernels are recognized. Facts of removed variants and shapes are skipped with a note. A missing kernel without a
successor leaves a gap, which is *unmeasured*, never a pass.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date

from flashcore.explain.compare_records import compare
from flashcore.explain.comparison import Comparison, Side
from flashcore.gate.baseline import (
    ALL_SHAPES,
    CODE,
    FP64,
    NO_KERNEL,
    NOTED,
    Baseline,
    KernelPlace,
    LineKey,
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
from flashcore.model.record import Fact, Facts, Record, Source, Subject, Value, subject_of
from flashcore.model.suite import Budget, GateRule, RuleSeverity
from flashcore.model.text import count, matches_any, number


@dataclass(frozen=True, slots=True)
class BaselineLimits:
    """The limits that a baseline sets for a record, and what else differs from it.

    Args:
        expectations: each fact of the baseline as a budget, with the present facts.
        notes: removed variants and shapes.
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


def limits(record: Record, old: Baseline, variants: Collection[str] | None, today: date | None) -> BaselineLimits:
    """The limit that each fact of the baseline is for the present one.

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
        budget = limit_of(old, key, value, rules)
        if budget is None:
            continue
        if key in facts_by_line:
            expectations.append((budget, [Expectation(fact.subject, fact) for fact in facts_by_line[key]]))
            continue
        shape = None if key.shape == ALL_SHAPES else key.shape
        if shape is not None and shape not in suite.shapes:
            removed[f"shape {shape}"] += 1
            continue
        cause: Cause = planless.get(key[:2], GONE()) if key.fact in PLANNED | PLAN_TOTALS else GONE()
        if built[key[:2]] == "failed":
            cause = DidNotCompile()
        kernel = None if key.kernel == NO_KERNEL else new_names.get(key[:3], key[:3])[2]
        expectations.append((budget, [Expectation(subject_of(key.variant, shape, kernel, arch=key.arch), None, cause)]))
    notes = (
        f"{name}: no longer in the suite, {count(n, 'fact')} of the baseline skipped" for name, n in removed.items()
    )
    return BaselineLimits(tuple(expectations), tuple(notes), tuple(_relaxed(suite.gate.rules, today)), before)


def limit_of(old: Baseline, key: LineKey, value: float, rules: Iterable[GateRule]) -> Budget | None:
    """The limit that a line of the baseline sets; ``None`` if a rule ignores the fact."""
    allowance, reason = ALLOWANCES[key.fact], ""
    subject = subject_of(key.variant, None if key.shape == ALL_SHAPES else key.shape, key.kernel, arch=key.arch)
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


# --- what changed ---------------------------------------------------------------------------------


def changed(record: Record, old: Baseline, variants: Collection[str] | None = None, name: str = "") -> Comparison:
    """What changed of the code since a baseline was written.

    Args:
        variants: compare only these, by name; all if ``None``.
        name: of the earlier side; empty for the baseline's file.
    """
    measured = {key: fact.number for key, fact in present(record).items()}
    numbers = {key: value for key, value in measured.items() if value is not None}
    now = Baseline(record.suite.name, compilers(record), numbers, noted=noted(record))
    old_names, nvcc = renames(old, now), old.compilers.get("nvcc")
    before, after = ({**of.values, **_with_fp64(of.noted)} for of in (old, now))
    lines = matched(before, after, old_names)
    used = {*lines.values()}
    values = {LineKey(*old_names.get(key[:3], key[:3]), *key[3:]): before[line] for key, line in lines.items()}
    values |= {line: value for line, value in before.items() if line not in used and line.fact not in NOTED}
    # A baseline omits zeros that can only rise, and older files note nothing.
    added = {k: v for k, v in numbers.items() if k not in lines and (v or ALLOWANCES[k.fact].better == "lower")}
    earlier = replace(record, environment=replace(record.environment, nvcc=nvcc))
    compared = compare(
        _described(earlier, values, variants),
        _described(record, {key: after[key] for key in lines} | added, variants),
    )
    notes = [*compared.notes, *_renamed(old_names)]
    if added and not name:
        notes.append(f"{count(len(added), 'fact')} not in the baseline: {_ADDS}")
    return replace(compared, before=Side(name or old.file or "baseline", old.suite, nvcc=nvcc), notes=notes)


_ADDS = "flashcore baseline save, or audit --save-baseline, adds them"


def _renamed(old_names: Mapping[KernelPlace, KernelPlace]) -> Iterator[str]:
    archs = grouped(((variant, was, name), arch) for (variant, arch, name), (*_, was) in sorted(old_names.items()))
    for (variant, was, name), of in archs.items():
        yield f"kernel renamed: {was} is now {name} ({', '.join((variant, *of))})"


def _with_fp64(texts: Mapping[LineKey, str]) -> dict[LineKey, Value]:
    """What a baseline notes, with the number of FP64 instructions of every kernel, which it notes only if there are
    any."""
    zeros: dict[LineKey, Value] = {key._replace(fact=FP64): 0 for key in texts if key.fact == CODE}
    return zeros | {key: int(text) if key.fact == FP64 else text for key, text in texts.items()}


def _described(record: Record, values: Mapping[LineKey, Value], variants: Collection[str] | None) -> Record:
    """The record with these facts alone, of kernels and shapes that it could have."""
    suite, built = record.suite, {(a.variant, a.arch) for a in record.artifacts if a.status != "failed"}
    facts = []
    for key, value in values.items():
        declared = suite.variants.get(key.variant)
        built_here = key[:2] in built or declared is None or key.arch not in declared.where.archs
        if built_here and key.shape in (ALL_SHAPES, *suite.shapes) and (variants is None or key.variant in variants):
            shape, kernel = (None if of in (ALL_SHAPES, NO_KERNEL) else of for of in (key.shape, key.kernel))
            subject = subject_of(key.variant, shape, kernel, arch=key.arch)
            facts.append(Fact(subject, key.fact, value, FACTS[key.fact].unit, Source.CUBIN))
    return replace(record, artifacts=(), outcomes=(), facts=Facts(facts))


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
