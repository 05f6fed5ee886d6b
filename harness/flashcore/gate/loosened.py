"""Compares two states of a suite, and lists every limit that became looser."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from fnmatch import fnmatchcase
from math import inf
from operator import attrgetter

from flashcore.explain.verdict import Verdict
from flashcore.gate.baseline import ALL_SHAPES, Baseline, renames
from flashcore.gate.expand import expired, limit_text
from flashcore.gate.regressions import limit_of
from flashcore.model.catalogue import FACTS
from flashcore.model.gate_policy import ALLOWANCES, CORRECT, PREFIX, RUNS
from flashcore.model.groups import grouped
from flashcore.model.record import CodeSubject
from flashcore.model.suite import (
    AheadOfTime,
    Budget,
    CudaSource,
    ForeignLauncher,
    PythonCallable,
    RecordedCubins,
    Suite,
    VariantKind,
    Waiver,
)
from flashcore.model.text import abbreviated, count, matches_any, number

#: A suite with its baseline, if it has one.
State = tuple[Suite, Baseline | None]


@dataclass(frozen=True, slots=True)
class Loosened:
    """One limit that became looser.

    Args:
        kind: ``suite``, ``variant``, ``shape``, ``budget``, ``waiver``, ``rule``, ``baseline``, ``run``, or an
            extension's table.
        name: the name of the suite's folder, variant, shape, budget or table, or a rule's fact.
        gone: whether all variants of the limit were removed.
    """

    kind: str
    name: str
    text: str
    gone: bool = False

    @property
    def key(self) -> str:
        """The text that ``--allow`` matches: ``budget:registers``."""
        return f"{self.kind}:{self.name}"


def everything(before: State, after: State, today: date) -> list[Loosened]:
    """The looser limits of ``after``; variants and shapes first."""
    (old, old_lines), (new, new_lines) = before, after
    changes = [
        *_references(old, new),
        *_variants(old, new),
        *_shapes(old, new),
        *_budgets(old, new),
        *_waivers(old, new),
        *_tables(old, new),
    ]
    if added := ", ".join(sorted(_judged(new) - _judged(old))):  # a removed variant may have been renamed
        changes = [replace(c, gone=False, text=f"{c.text}; {added} added") if c.gone else c for c in changes]
    baselines = [lines for lines in (old_lines, new_lines) if lines]
    return [*changes, *_rules(old, new, baselines, today), *_lines(old, new, old_lines, new_lines)]


def _judged(suite: Suite) -> set[str]:
    return {name for name, variant in suite.variants.items() if not variant.is_reference}


def verdict(change: Loosened, revision: str, allowed: Sequence[str]) -> Verdict:
    """The verdict on a looser limit, which fails unless it is allowed."""
    glob = next((glob for glob in allowed if fnmatchcase(change.key, glob)), None)
    accepted = f" (allowed by --allow {glob})" if glob else " (it has no variant left)" if change.gone else ""
    return Verdict(
        budget="base",
        fact="loosened",
        subject=CodeSubject(change.key),
        tier="static",
        status="waived" if accepted else "fail",
        value=False,
        limit=f"as in {revision}",
        source=f"base revision {revision}",
        reason=change.text + accepted,
        required=True,
    )


# --- variants and shapes --------------------------------------------------------------------------


def _references(old: Suite, new: Suite) -> Iterator[Loosened]:
    """Changed references of answers and times."""
    if old.baseline != new.baseline:
        yield Loosened("suite", new.name, f"baseline {old.baseline} → {new.baseline}")
    for name in sorted(old.problems.keys() & new.problems.keys()):
        problem, now = old.problems[name], new.problems[name]
        if lost := sorted({*problem.seeds} - {*now.seeds}):
            yield Loosened("suite", new.name, f"problem {name} without seeds {', '.join(map(str, lost))}")
        if problem.arguments != now.arguments:
            yield Loosened("suite", new.name, f"problem {name} has another operator: its types decide what is right")
    for name in _compared(old, new):
        before, after = old.variants[name], new.variants.get(name)
        parts = ("config", "where") if before.is_reference else ("config",)
        if (
            after is None
            or _unplaced(before.kind) != _unplaced(after.kind)
            or any(getattr(before, what) != getattr(after, what) for what in parts)
        ):
            yield Loosened("variant", name, "reference removed" if after is None else "reference changed")


def moved(old: Suite, new: Suite) -> Iterator[str]:
    """A note for each reference whose file has another path; as after an edit, results of other code are stale."""
    for name in _compared(old, new):
        before, after = old.variants[name].kind.file, new.variants[name].kind.file if name in new.variants else ""
        if after not in ("", before):
            yield f"{name}: a reference of speedups, now in {after}, before in {before}"


def _compared(old: Suite, new: Suite) -> list[str]:
    """The variants of the base that answers or times are compared with."""
    return sorted({*old.variants} - _judged(old) | {old.baseline} & {*new.variants})


def _unplaced(kind: VariantKind) -> VariantKind:
    """A kind without the path of its file."""
    if isinstance(kind, CudaSource | ForeignLauncher):
        return replace(kind, file="")
    if isinstance(kind, AheadOfTime | RecordedCubins | PythonCallable):
        return replace(kind, callable=kind.callable.removeprefix(kind.file))
    return kind


def _variants(old: Suite, new: Suite) -> Iterator[Loosened]:
    for name in _judged(old):
        before, after = old.variants[name], new.variants.get(name)
        if after is None:
            yield Loosened("variant", name, "removed", gone=True)
            continue
        texts = ["now a reference, which has no budgets"] if after.is_reference else []
        archs = [arch for arch in before.where.archs if arch not in after.where.archs]
        both = [shape for shape in old.shapes.values() if before.runs_on(shape) and shape.name in new.shapes]
        shapes = [shape.name for shape in both if not after.runs_on(new.shapes[shape.name])]
        texts += [f"no longer on {', '.join(lost)}" for lost in (archs, shapes) if lost]
        for what in ("problem", "tolerance", "roof", "kind.type"):
            if (was := attrgetter(what)(before)) != (now := attrgetter(what)(after)):
                texts.append(f"{what} {was} → {now}")
        if texts:
            yield Loosened("variant", name, "; ".join(texts))


def _shapes(old: Suite, new: Suite) -> Iterator[Loosened]:
    for name, before in old.shapes.items():
        after = new.shapes.get(name)
        if after is None:
            yield Loosened("shape", name, "removed")
            continue
        texts = [f"without {stage}" for stage in before.stages if stage not in after.stages]
        if before.rank_by != after.rank_by:
            texts.append(f"ranked by {before.rank_by} → {after.rank_by}")
        if before.params != after.params:
            texts.append(f"{before.params_text} → {after.params_text}")
        if after.repeats < before.repeats:
            texts.append(f"repeats {before.repeats} → {after.repeats}")
        if texts:
            yield Loosened("shape", name, "; ".join(texts))


# --- budgets and waivers --------------------------------------------------------------------------


def _budgets(old: Suite, new: Suite) -> Iterator[Loosened]:
    present = {budget.name: budget for budget in new.budgets}
    for before in old.budgets:
        if before.severity != "limit":
            continue
        if (after := present.get(before.name)) is None:
            left = any(matches_any(name, before.variants) for name in _judged(old) & {*new.variants})
            yield Loosened("budget", before.name, f"removed: {before.fact} {limit_text(before)}", gone=not left)
        elif texts := [*_looser(before, after), *_narrower(before, after, new)]:
            yield Loosened("budget", before.name, "; ".join(texts))


def _looser(before: Budget, after: Budget) -> Iterator[str]:
    if before.fact != after.fact:
        yield f"{before.fact} → {after.fact}"
    if before.decision and not (after.decision and after.decision.covers(before.decision)):
        yield f"{before.decision} → {after.decision}"
    if after.severity != before.severity:
        yield "now a goal"
    (was_low, was_high), (low, high) = _range(before), _range(after)
    if low < was_low or high > was_high:
        yield f"{limit_text(before)} → {limit_text(after)}"
    if after.device not in (None, before.device):
        yield f"only on {after.device}"


def _range(budget: Budget) -> tuple[float, float]:
    """The least and the greatest accepted value."""
    low, high = budget.minimum, budget.maximum
    return -inf if low is None else low, inf if high is None else high


def _narrower(before: Budget, after: Budget, new: Suite) -> Iterator[str]:
    """The present variants, archs, shapes and kernels that a budget no longer selects."""
    for what in ("variants", "archs", "shapes"):
        was, now = getattr(before, what), getattr(after, what)
        names = _judged(new) if what == "variants" else {*getattr(new, what)}  # new ones too
        lost = sorted(name for name in names if matches_any(name, was) and not matches_any(name, now))
        if lost or ("*" in was and "*" not in now and what == "shapes"):
            yield f"not for {', '.join(lost) or 'all shapes'}"
    if not _covers_kernels(before.kernels, after.kernels):
        yield f"kernels {', '.join(before.kernels)} → {', '.join(after.kernels)}"


def _covers_kernels(inner: Sequence[str], outer: Sequence[str]) -> bool:
    """Whether the globs ``outer`` select all kernels of ``inner``, as far as equal globs show it."""
    excluded = {glob for glob in outer if glob[:1] == "!"}
    return excluded <= {*inner} and ("*" in outer or {glob for glob in inner if glob[:1] != "!"} <= {*outer})


def _waivers(old: Suite, new: Suite) -> Iterator[Loosened]:
    limits = {b.name: b for b in old.budgets}
    added = {b.name for b in new.budgets} - {*limits}
    for waiver in new.waivers:
        if waiver.budget in added:
            continue  # the budget is new
        before = [w for w in old.waivers if w.budget == waiver.budget]
        if not any(_covers(w, waiver, limits.get(waiver.budget), old, new) for w in before):
            where = ", ".join((*waiver.variants, *(f"on {a}" for a in (*waiver.archs, *waiver.shapes) if a != "*")))
            until = f" until {waiver.expires}" if waiver.expires else ""
            text = f"accepted {number(waiver.accepted)} for {where}{until}: {waiver.reason}"
            yield Loosened("waiver", waiver.budget, text)


def _covers(before: Waiver, after: Waiver, budget: Budget | None, old: Suite, new: Suite) -> bool:
    """Whether a waiver of the base accepts everything that ``after`` accepts."""
    if before.expires and not (after.expires and after.expires <= before.expires):
        return False
    worse = _is_above(budget, before.budget)
    if before.accepted != after.accepted and (worse is None or (after.accepted > before.accepted) is worse):
        return False
    for what in ("variants", "archs", "shapes"):
        outer, inner = getattr(before, what), getattr(after, what)
        names = {*getattr(old, what), *getattr(new, what)}
        if "*" not in outer and (
            "*" in inner or any(matches_any(n, inner) and not matches_any(n, outer) for n in names)
        ):
            return False
    return _covers_kernels(after.kernels, before.kernels)


def _is_above(budget: Budget | None, name: str) -> bool | None:
    """Whether greater values are worse; ``None`` if either may be."""
    if budget is not None:
        one_sided = (budget.maximum is None) != (budget.minimum is None)
        return budget.maximum is not None if one_sided else None
    if allowance := ALLOWANCES.get(name.removeprefix(PREFIX)):
        return allowance.better == "lower"
    return True if name in (CORRECT, RUNS) else None


def _tables(old: Suite, new: Suite) -> Iterator[Loosened]:
    """Changed and removed tables of extensions, whose limits only they understand."""
    for kind, tables in old.tables.items():
        for name, table in tables.items():
            now = new.tables.get(kind, {}).get(name)
            if now != table:
                yield Loosened(kind, name, "removed" if now is None else "changed: it may have a looser limit")


# --- the baseline and its rules -------------------------------------------------------------------


def _rules(old: Suite, new: Suite, baselines: Sequence[Baseline], today: date) -> Iterator[Loosened]:
    """The facts whose lines may get worse than under the base's rules, today or after a rule expires."""
    before, after = old.gate.rules, new.gate.rules
    if before == after:
        return
    ends = {date.fromisoformat(rule.expires) + timedelta(1) for rule in (*before, *after) if rule.expires}
    looser: dict[str, dict[str, None]] = {}
    for day in (today, *sorted(day for day in ends if day > today)):
        then, now = ([rule for rule in rules if not expired(rule, day)] for rules in (before, after))
        for lines in baselines:
            for key, value in lines.values.items():
                was, limit = limit_of(lines, key, value, then), limit_of(lines, key, value, now)
                if was and (limit is None or [*_looser(was, limit)]):
                    text = "not compared" if limit is None else f"{limit_text(limit)}, {limit.severity}"
                    change = f"{key} {limit_text(was)}, {was.severity} → {text}"
                    looser.setdefault(key.fact, {})[change] = None
    for fact, changes in looser.items():
        yield Loosened("rule", fact, abbreviated([*changes], 1))


def _lines(old: Suite, new: Suite, before: Baseline | None, after: Baseline | None) -> Iterator[Loosened]:
    """Each removed or worse line, except those of removed variants, archs and shapes."""
    if before is None or not before.values:
        return
    if after is None or not after.values:
        yield Loosened("baseline", "*", f"deleted, with its {count(len(before.values), 'fact')}")
        return
    new_names = {old_kernel: kernel for kernel, old_kernel in renames(before, after).items()}
    places = grouped(((*k[:3], k.fact), (k.shape, v)) for k, v in after.values.items())
    present = {place: dict(by_shape) for place, by_shape in places.items()}
    for key, value in before.values.items():
        variant = new.variants.get(key.variant)
        if variant is None or key.arch not in variant.where.archs:
            continue
        values = present.get((*new_names.get(key[:3], key[:3]), key.fact), {})
        shapes = [key.shape]
        if key.shape == ALL_SHAPES and ALL_SHAPES not in values:
            shapes = [s.name for s in new.shapes.values() if s.name in old.shapes and variant.runs_on(s)]
        elif key.shape != ALL_SHAPES and key.shape not in new.shapes:
            continue
        present_values = [values.get(shape, values.get(ALL_SHAPES)) for shape in shapes]
        worse = [v for v in present_values if v is not None and ALLOWANCES[key.fact].improves(value, v)]
        if None in present_values or worse or not present_values:
            now = ", ".join(number(v, FACTS[key.fact].unit) for v in dict.fromkeys(worse)) or "removed"
            yield Loosened("baseline", key.variant, f"{key} {number(value, FACTS[key.fact].unit)} → {now}")
