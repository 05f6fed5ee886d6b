"""A record against its baseline: each committed fact becomes a budget on the present one.

Renamed kernels are recognised; what is no longer in the suite is noted; a kernel that is missing without a successor
leaves a gap, which is *unmeasured* and no pass.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date

from flashcore.gate.baseline import ALL_SHAPES, NO_KERNEL, Baseline, Key, compilers, plain, present, renames, shaped
from flashcore.gate.expand import PLAN_TOTALS, PLANNED, Expansion, Expectation, excess
from flashcore.model.catalogue import FACTS
from flashcore.model.causes import Cause, DidNotCompile, Gone, PlanFailed
from flashcore.model.gate_policy import ALLOWANCES, PREFIX, Allowance
from flashcore.model.record import Fact, Record, Subject
from flashcore.model.suite import Budget, GateRule, RuleSeverity
from flashcore.model.text import matches_any, number


@dataclass(frozen=True, slots=True)
class Comparison:
    """A record compared with a baseline.

    Args:
        promises: each fact of the baseline as a budget, with the present fact.
        notes: renamed kernels, facts that are new, variants that are no longer there.
        relaxed: the manifest's rules that are looser than the default rules, in words.
    """

    expectations: tuple[tuple[Budget, Expectation], ...] = ()
    notes: tuple[str, ...] = ()
    relaxed: tuple[str, ...] = ()


def another_compiler(record: Record, old: Baseline) -> dict[str, str]:
    """Compiler → why its facts cannot be compared with this baseline; empty if all can."""
    file, made_by = old.file or "the baseline", compilers(record)
    if not old.compilers:  # its kernels were recorded, and these are not
        return {
            name: f"built with {name} {version}, but {file} is of recorded cubins (write a new baseline)"
            for name, version in made_by.items()
        }
    return {
        name: f"built with {name} {made_by[name]}, but {file} was written with {recorded}: "
        "facts compare only within one version (install that one, or write a new baseline)"
        for name, recorded in old.compilers.items()
        if made_by.get(name, recorded) != recorded
    }


def compare(record: Record, old: Baseline, variants: Collection[str] | None, today: date | None) -> Comparison:
    """Every fact of the baseline as a budget on the present one.

    Args:
        variants: look only at these; all if ``None``.
        today: the day that the rules' dates are compared with.
    """
    rules = [r for r in record.suite.gate.rules if not (r.expires and today and date.fromisoformat(r.expires) < today)]
    facts = present(record)
    old_names = renames(old, {k: f.number or 0.0 for k, f in facts.items()})
    notes = [
        f"kernel renamed: {old_name} is now {new_name} ({v}, {a})"
        for (v, a, new_name), old_name in sorted(old_names.items())
    ]
    new_names = {(v, a, old_name): new_name for (v, a, new_name), old_name in old_names.items()}
    built = {(a.variant, a.arch): a.status for a in record.artifacts}
    planless = {p.variant: PlanFailed(p.cause, p.shape) for p in record.plans if p.cause}
    shapes: dict[Key, dict[str, Fact]] = {}
    for key, fact in facts.items():
        shapes.setdefault(shaped(key, ALL_SHAPES), {})[key.shape] = fact
    removed: dict[str, int] = {}
    expectations: list[tuple[Budget, Expectation]] = []
    for key, value in old.values.items():
        if variants is not None and key.variant not in variants:
            continue
        variant = record.suite.variants.get(key.variant)
        if variant is None or key.arch not in variant.where.archs:
            removed[f"{key.variant} for {key.arch}"] = removed.get(f"{key.variant} for {key.arch}", 0) + 1
            continue
        if (key.variant, key.arch) not in built:
            continue  # CUDA_ARCH left it out: it is neither built nor judged
        current_key = replace(key, kernel=new_names.get((key.variant, key.arch, key.kernel), key.kernel))
        allowance, rule = _allowance(key, rules)
        if allowance.severity == "ignore":
            continue
        budget = _budget(old, key, value, allowance, rule)
        by_shape = shapes.get(shaped(current_key, ALL_SHAPES), {})
        if key.shape == ALL_SHAPES:
            # Shapes that the baseline names itself are judged by their own lines.
            matching = {s: f for s, f in by_shape.items() if s == ALL_SHAPES or shaped(key, s) not in old.values}
        else:
            matching = {s: f for s, f in by_shape.items() if s == key.shape}
            if not matching and key.shape not in record.suite.shapes:
                removed[f"shape {key.shape}"] = removed.get(f"shape {key.shape}", 0) + 1
                continue
        if not matching:
            kernel = None if current_key.kernel == NO_KERNEL else current_key.kernel
            subject = Subject(key.variant, key.arch, None if key.shape == ALL_SHAPES else key.shape, kernel)
            if built[key.variant, key.arch] == "failed":
                cause: Cause = DidNotCompile()
            elif key.variant in planless and key.fact in PLANNED | PLAN_TOTALS:
                cause = planless[key.variant]
            else:
                cause = Gone()
            expectations.append((budget, Expectation(subject, None, cause)))
        expectations += [(budget, Expectation(fact.subject, fact)) for fact in matching.values()]
    notes += [f"{what}: no longer in the suite, {n} facts of the baseline left out" for what, n in removed.items()]
    new_kernels, new_facts = _unlisted_kernels(old, facts, old_names), _unlisted_facts(old, facts)
    if new_kernels:
        notes.append(f"{len(new_kernels)} kernels or variants are not in the baseline yet: {_short(new_kernels)}")
    if new_facts:
        notes.append(
            f"{len(new_facts)} facts of kernels in the baseline have no line in it, "
            f"new or taken out: {_short(new_facts)}"
        )
    return Comparison(tuple(expectations), tuple(notes), tuple(_relaxed(record.suite.gate.rules, today)))


def _allowance(key: Key, rules: Iterable[GateRule]) -> tuple[Allowance, GateRule | None]:
    allowance, last = ALLOWANCES[key.fact], None
    for rule in rules:
        if (
            matches_any(key.fact, rule.facts)
            and matches_any(key.variant, rule.variants)
            and matches_any(key.arch, rule.archs)
            and (key.shape == ALL_SHAPES or matches_any(key.shape, rule.shapes))
            and matches_any(key.kernel, rule.kernels)
        ):
            tolerance = allowance.tolerance if rule.tolerance is None else rule.tolerance
            allowance = replace(allowance, tolerance=tolerance, severity=rule.severity)
            last = rule
    return allowance, last


def _budget(old: Baseline, key: Key, value: float, allowance: Allowance, rule: GateRule | None) -> Budget:
    limit = allowance.limit(value)
    line = f":{old.lines[key]}" if old.lines else ""
    source = f"baseline, {old.file.rsplit('/', 1)[-1] or 'saved'}{line}: {number(value, FACTS[key.fact].unit)}"
    severity: RuleSeverity = allowance.severity
    return Budget(
        name=PREFIX + key.fact,
        fact=key.fact,
        unit=FACTS[key.fact].unit,
        tier="static",
        severity="limit" if severity == "fail" else "goal",
        source=source + (f" ({rule.reason})" if rule and rule.reason else ""),
        maximum=limit if allowance.better == "lower" else None,
        minimum=limit if allowance.better == "higher" else None,
    )


def _short(names: Sequence[str]) -> str:
    more = " …" if len(names) > 3 else ""
    return f"{', '.join(names[:3])}{more} (flashcore baseline save adds them)"


def _unlisted_kernels(old: Baseline, facts: Iterable[Key], names: Mapping[tuple[str, str, str], str]) -> list[str]:
    listed = {(k.variant, k.arch, k.kernel) for k in old.values}
    new = {
        f"{k.variant}/{k.kernel} ({k.arch})"
        for k in facts
        if k.kernel != NO_KERNEL
        and (k.variant, k.arch, k.kernel) not in listed
        and (k.variant, k.arch, k.kernel) not in names
    }
    return sorted(new)


def _unlisted_facts(old: Baseline, facts: Mapping[Key, Fact]) -> list[str]:
    """Facts without a line although their kernel is in the baseline. A fact of 0 that cannot get worse needs no
    line."""
    listed = {(k.variant, k.arch, k.kernel) for k in old.values}
    return sorted(
        {
            f"{key.variant}/{key.kernel} ({key.arch}) {key.fact}"
            for key, fact in facts.items()
            if (key.variant, key.arch, key.kernel) in listed
            and key not in old.values
            and shaped(key, ALL_SHAPES) not in old.values
            and (fact.number or ALLOWANCES[key.fact].better == "lower")
        }
    )


def _relaxed(rules: Iterable[GateRule], today: date | None) -> Iterator[str]:
    for rule in rules:
        if not rule.reason:
            continue
        allowed = {"fail": "", "show": "shown only", "ignore": "not compared"}[rule.severity]
        if rule.tolerance is not None:
            allowed = f"{allowed or 'may get worse'} by {100 * rule.tolerance:g} %".replace(
                "shown only by", "shown beyond"
            )
        where = ", ".join(rule.variants) if rule.variants != ("*",) else "all variants"
        late = rule.expires and today and date.fromisoformat(rule.expires) < today
        until = f", expired on {rule.expires}" if late else (f", until {rule.expires}" if rule.expires else "")
        yield f"{', '.join(rule.facts)} on {where}: {allowed}{until}: {rule.reason}"


# --- the ratchet ----------------------------------------------------------------------------------


def slack(record: Record) -> list[str]:
    """Static limits of the manifest that all their subjects keep with slack, and how far each could be tightened."""
    messages = []
    expansion = Expansion(record)
    for budget in record.suite.budgets:
        if (
            budget.tier != "static"
            or budget.severity != "limit"
            or (budget.maximum is None) == (budget.minimum is None)
        ):
            continue
        numbers = [p.fact.number for p in expansion.expand(budget) if p.fact is not None]
        measured = [v for v in numbers if v is not None]
        if not measured or len(measured) < len(numbers) or any(excess(budget, v) > 0 for v in measured):
            continue
        limit = budget.maximum if budget.maximum is not None else budget.minimum
        bound, worst = ("max", max(measured)) if budget.maximum is not None else ("min", min(measured))
        if worst != limit:
            messages.append(f"{budget.name}: {bound} = {plain(limit or 0.0)} could be {plain(worst)}")
    return messages
