"""A record against its baseline: each committed fact becomes a budget on the present one.

Renamed kernels are recognised; what is no longer in the suite is noted; a kernel that is missing without a successor
leaves a gap, which is *unmeasured* and no pass.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date

from flashcore.gate.baseline import EVERY, NO_KERNEL, Baseline, Key, compilers, plain, present, renames, shaped
from flashcore.gate.expand import PLANNED, WHOLE_PLAN, Promise, Promises, excess
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

    promises: tuple[tuple[Budget, Promise], ...] = ()
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
        name: f"built with {name} {made_by[name]}, but {file} was written with {then}: "
        "facts compare only within one version (install that one, or write a new baseline)"
        for name, then in old.compilers.items()
        if made_by.get(name, then) != then
    }


def compare(record: Record, old: Baseline, variants: Collection[str] | None, today: date | None) -> Comparison:
    """Every fact of the baseline as a budget on the present one.

    Args:
        variants: look only at these; all if ``None``.
        today: the day that the rules' dates are compared with.
    """
    rules = [r for r in record.suite.gate.rules if not (r.expires and today and date.fromisoformat(r.expires) < today)]
    facts = present(record)
    names = renames(old, {k: f.number or 0.0 for k, f in facts.items()})
    notes = [f"kernel renamed: {was} is now {now} ({v}, {a})" for (v, a, now), was in sorted(names.items())]
    now_called = {(v, a, was): now for (v, a, now), was in names.items()}
    built = {(a.variant, a.arch): a.status for a in record.artifacts}
    planless = {p.variant: PlanFailed(p.cause, p.shape) for p in record.plans if p.cause}
    shapes: dict[Key, dict[str, Fact]] = {}
    for key, fact in facts.items():
        shapes.setdefault(shaped(key, EVERY), {})[key.shape] = fact
    gone: dict[str, int] = {}
    found: list[tuple[Budget, Promise]] = []
    for key, value in old.values.items():
        if variants is not None and key.variant not in variants:
            continue
        variant = record.suite.variants.get(key.variant)
        if variant is None or key.arch not in variant.where.archs:
            gone[f"{key.variant} for {key.arch}"] = gone.get(f"{key.variant} for {key.arch}", 0) + 1
            continue
        if (key.variant, key.arch) not in built:
            continue  # CUDA_ARCH left it out: it is neither built nor judged
        here = replace(key, kernel=now_called.get((key.variant, key.arch, key.kernel), key.kernel))
        allowance, rule = _allowance(key, rules)
        if allowance.severity == "ignore":
            continue
        budget = _budget(old, key, value, allowance, rule)
        own = shapes.get(shaped(here, EVERY), {})
        if key.shape == EVERY:
            # Shapes that the baseline names itself are judged by their own lines.
            chosen = {s: f for s, f in own.items() if s == EVERY or shaped(key, s) not in old.values}
        else:
            chosen = {s: f for s, f in own.items() if s == key.shape}
            if not chosen and key.shape not in record.suite.shapes:
                gone[f"shape {key.shape}"] = gone.get(f"shape {key.shape}", 0) + 1
                continue
        if not chosen:
            kernel = None if here.kernel == NO_KERNEL else here.kernel
            subject = Subject(key.variant, key.arch, None if key.shape == EVERY else key.shape, kernel)
            if built[key.variant, key.arch] == "failed":
                cause: Cause = DidNotCompile()
            elif key.variant in planless and key.fact in PLANNED | WHOLE_PLAN:
                cause = planless[key.variant]
            else:
                cause = Gone()
            found.append((budget, Promise(subject, None, cause)))
        found += [(budget, Promise(fact.subject, fact)) for fact in chosen.values()]
    notes += [f"{what}: no longer in the suite, {n} facts of the baseline left out" for what, n in gone.items()]
    new, bare = _unknown(old, facts, names), _unlisted(old, facts)
    if new:
        notes.append(f"{len(new)} kernels or variants are not in the baseline yet: {_short(new)}")
    if bare:
        notes.append(
            f"{len(bare)} facts of kernels in the baseline have no line in it, new or taken out: {_short(bare)}"
        )
    return Comparison(tuple(found), tuple(notes), tuple(_relaxed(record.suite.gate.rules, today)))


def _allowance(key: Key, rules: Iterable[GateRule]) -> tuple[Allowance, GateRule | None]:
    allowance, last = ALLOWANCES[key.fact], None
    for rule in rules:
        if (
            matches_any(key.fact, rule.facts)
            and matches_any(key.variant, rule.variants)
            and matches_any(key.arch, rule.archs)
            and (key.shape == EVERY or matches_any(key.shape, rule.shapes))
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


def _unknown(old: Baseline, facts: Iterable[Key], names: Mapping[tuple[str, str, str], str]) -> list[str]:
    known = {(k.variant, k.arch, k.kernel) for k in old.values}
    new = {
        f"{k.variant}/{k.kernel} ({k.arch})"
        for k in facts
        if k.kernel != NO_KERNEL
        and (k.variant, k.arch, k.kernel) not in known
        and (k.variant, k.arch, k.kernel) not in names
    }
    return sorted(new)


def _unlisted(old: Baseline, facts: Mapping[Key, Fact]) -> list[str]:
    """Facts without a line although their kernel is in the baseline. A fact of 0 that cannot get worse needs no
    line."""
    known = {(k.variant, k.arch, k.kernel) for k in old.values}
    return sorted(
        {
            f"{key.variant}/{key.kernel} ({key.arch}) {key.fact}"
            for key, fact in facts.items()
            if (key.variant, key.arch, key.kernel) in known
            and key not in old.values
            and shaped(key, EVERY) not in old.values
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
    found = []
    promises = Promises(record)
    for budget in record.suite.budgets:
        if (
            budget.tier != "static"
            or budget.severity != "limit"
            or (budget.maximum is None) == (budget.minimum is None)
        ):
            continue
        own = [p.fact.number for p in promises.expand(budget) if p.fact is not None]
        known = [v for v in own if v is not None]
        if not known or len(known) < len(own) or any(excess(budget, v) > 0 for v in known):
            continue
        limit = budget.maximum if budget.maximum is not None else budget.minimum
        word, worst = ("max", max(known)) if budget.maximum is not None else ("min", min(known))
        if worst != limit:
            found.append(f"{budget.name}: {word} = {plain(limit or 0.0)} could be {plain(worst)}")
    return found
