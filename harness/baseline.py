"""A baseline: the static facts of one day as committed text, that later ones are held to.

One fact a line, sorted, so that a change reads as a diff. What gets better is taken over by
``flashcore baseline save``; what gets worse is not: loosening needs a waiver in the manifest, with its
reason. Facts compare within one nvcc version only, whose name stands in the file.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

from harness.errors import UsageError
from harness.gate_policy import ALLOWANCES, PREFIX, Allowance
from harness.metrics import FACTS
from harness.model import Budget, Fact, GateRule, Record, RuleSeverity, Subject
from harness.promises import Promise, matches, number

HEADER = "# flashcore baseline 1"
EVERY = "*"  # all shapes alike, or a fact that no shape enters
NO_KERNEL = "-"


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """What a line is about. ``shape`` is ``*`` where all shapes agree."""

    variant: str
    arch: str
    kernel: str
    shape: str
    fact: str


@dataclass(frozen=True, slots=True)
class Baseline:
    """Facts by what they are about, of one suite and one nvcc version. ``lines`` says where each stands."""

    suite: str
    nvcc: str
    values: Mapping[Key, float]
    file: str = ""
    lines: Mapping[Key, int] | None = None

    def text(self) -> str:
        """The file: a header, then a fact a line, sorted."""
        rows = [
            f"{k.variant} {k.arch} {k.kernel} {k.shape} {k.fact} {_plain(v)}" for k, v in sorted(self.values.items())
        ]
        head = [
            f"{HEADER}: written by `flashcore baseline save`, read by `flashcore gate`",
            "# variant arch kernel shape fact value",
            f"suite {self.suite}",
            f"nvcc {self.nvcc}",
            "",
        ]
        return "\n".join([*head, *rows]) + "\n"


def _plain(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(value)


def read(path: Path) -> Baseline | None:
    """The baseline in ``path``; ``None`` if there is no such file.

    Raises:
        UsageError: it is no baseline, or a line of it cannot be read; names the line.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: expected a baseline, but it cannot be read: {error}") from error
    return parse(text, str(path))


def parse(text: str, file: str = "baseline") -> Baseline:
    """Reads a baseline's text.

    Raises:
        UsageError: see :func:`read`.
    """
    mend = "\n  to mend: resolve the conflict or the edit, or write it again with: flashcore baseline save"
    if not text.startswith(HEADER + ":"):
        found = text.splitlines()[0][:60] if text.strip() else "nothing"
        raise UsageError(f"{file}: expected {HEADER!r} on its first line, found {found!r}{mend}")
    heads: dict[str, str] = {}
    values: dict[Key, float] = {}
    lines: dict[Key, int] = {}
    for line_number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) == 2 and words[0] in ("suite", "nvcc"):
            heads[words[0]] = words[1]
            continue
        try:
            *names, value = words
            key = Key(*names)
            values[key], again = float(value), key in values
        except (TypeError, ValueError):
            raise UsageError(
                f"{file}:{line_number}: expected `variant arch kernel shape fact value`, found {line!r}{mend}"
            ) from None
        if key.fact not in ALLOWANCES or again or not abs(values[key]) < 1e15:  # NaN is not below either
            expected = "a line of its own for each fact" if again else "a fact that baselines hold, with its value"
            raise UsageError(f"{file}:{line_number}: expected {expected}, found {line!r}{mend}")
        lines[key] = line_number
    for name in ("suite", "nvcc"):
        if name not in heads:
            raise UsageError(f"{file}: expected a line `{name} …`, found none{mend}")
    return Baseline(heads["suite"], heads["nvcc"], values, file, lines)


# --- the present facts ---------------------------------------------------------------------------


def _shaped(key: Key, shape: str) -> Key:
    return replace(key, shape=shape)


def present(record: Record) -> dict[Key, Fact]:
    """The facts of a record that a baseline can hold, each with its own shape (or ``*``)."""
    found: dict[Key, Fact] = {}
    for name in ALLOWANCES:
        for fact in record.facts.named(name):
            s = fact.subject
            if s.arch is None:
                continue
            key = Key(s.variant, s.arch, s.kernel or NO_KERNEL, s.shape or EVERY, name)
            known = found.get(key)
            # A kernel launched several times counts with its worst launch.
            if known is None or known.number is None or fact.number is None:
                found[key] = fact if known is None or known.number is not None else known
            elif ALLOWANCES[name].improves(known.number, fact.number):
                found[key] = fact
    return found


def _collapse(values: Mapping[Key, float]) -> dict[Key, float]:
    """Shapes that all agree become ``*``; so does what cannot get worse, which is left out."""
    groups: dict[Key, dict[str, float]] = {}
    for key, value in values.items():
        groups.setdefault(_shaped(key, EVERY), {})[key.shape] = value
    made: dict[Key, float] = {}
    for key, shapes in groups.items():
        if ALLOWANCES[key.fact].better == "higher" and not any(shapes.values()):
            continue
        if len(set(shapes.values())) == 1:
            made[key] = next(iter(shapes.values()))
        else:
            made.update({_shaped(key, shape): value for shape, value in shapes.items()})
    return made


@dataclass(frozen=True, slots=True)
class Saved:
    """A new baseline, and what became of the old one's facts.

    Args:
        tightened: what was taken over since it is better, as text.
        kept: what is worse and therefore not taken over, as text with the way to loosen it.
    """

    baseline: Baseline
    tightened: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()


def save(record: Record, old: Baseline | None, *, ratchet: bool = False) -> Saved:
    """The record's facts as a baseline. One of another nvcc or suite is replaced as a whole.

    Args:
        ratchet: only tighten: facts that the old one lacks stay out.

    Raises:
        UsageError: the record names no nvcc, or ``ratchet`` has nothing to tighten.
    """
    nvcc = record.environment.nvcc
    if nvcc is None:
        raise UsageError("expected facts made by a known nvcc, found a record that names none")
    facts = {k: f.number for k, f in present(record).items()}
    now = {k: v for k, v in facts.items() if v is not None}
    if old is None or (old.nvcc, old.suite) != (nvcc, record.suite.name):
        if ratchet:
            found = "none" if old is None else f"one of {old.suite}, nvcc {old.nvcc}"
            raise UsageError(
                f"--ratchet: expected a baseline of {record.suite.name}, nvcc {nvcc}, found {found}\n"
                "  to mend: flashcore baseline save"
            )
        return Saved(Baseline(record.suite.name, nvcc, _collapse(now)))
    names = renames(old, now)
    before = {k: v for k, v in _expanded(old, now, names).items() if v is not None}
    made: dict[Key, float] = {}
    tightened: list[str] = []
    kept: list[str] = []
    for key, value in now.items():
        was = before.get(key)
        if was is None:
            # What was zero and can only rise is left out of a baseline, and is no new fact.
            if not ratchet or ALLOWANCES[key.fact].better == "higher":
                made[key] = value
            continue
        allowance = ALLOWANCES[key.fact]
        made[key] = value if allowance.improves(value, was) else was
        words = f"{_name(key)} {number(was)} → {number(value, FACTS[key.fact].unit)}"
        if allowance.improves(value, was):
            tightened.append(words)
        elif value != was and _worse(allowance, value, was):
            kept.append(f"{words}: {_loosening(key, value)}")
    return Saved(Baseline(record.suite.name, nvcc, _collapse(made)), tuple(tightened), tuple(kept))


def _worse(allowance: Allowance, value: float, was: float) -> bool:
    return allowance.improves(allowance.limit(was), value)


def _name(key: Key) -> str:
    return f"{key.variant} {key.arch} {key.kernel} {key.shape} {key.fact}"


def _loosening(key: Key, value: float) -> str:
    shape = "" if key.shape == EVERY else f', shapes = ["{key.shape}"]'
    return (
        f'[[waiver]] budget = "{PREFIX}{key.fact}", variants = ["{key.variant}"], archs = ["{key.arch}"]{shape}, '
        f'accepted = {_plain(value)}, reason = "…"'
    )


def _expanded(
    old: Baseline, now: Collection[Key], names: Mapping[tuple[str, str, str], str]
) -> dict[Key, float | None]:
    """The old value of each present fact, ``None`` if there is none."""
    found: dict[Key, float | None] = {}
    for key in now:
        was = replace(key, kernel=names.get((key.variant, key.arch, key.kernel), key.kernel))
        found[key] = old.values.get(was, old.values.get(_shaped(was, EVERY)))
    return found


def renames(old: Baseline, now: Mapping[Key, float]) -> dict[tuple[str, str, str], str]:
    """(variant, arch, present kernel) → its name in the baseline, for kernels that only one side has.

    Of several, those that share the most values are the same.
    """

    def kernels(keys: Iterable[Key]) -> dict[tuple[str, str], set[str]]:
        found: dict[tuple[str, str], set[str]] = {}
        for k in keys:
            if k.kernel != NO_KERNEL:
                found.setdefault((k.variant, k.arch), set()).add(k.kernel)
        return found

    before, after = kernels(old.values), kernels(now)
    made: dict[tuple[str, str, str], str] = {}
    for (variant, arch), names in after.items():
        new = names - before.get((variant, arch), set())
        gone = before.get((variant, arch), set()) - names
        if not new or not gone:
            continue
        facts = {
            n: {(k.shape, k.fact, v) for k, v in now.items() if (k.variant, k.arch, k.kernel) == (variant, arch, n)}
            for n in new
        }
        lost = {
            n: {
                (k.shape, k.fact, v)
                for k, v in old.values.items()
                if (k.variant, k.arch, k.kernel) == (variant, arch, n)
            }
            for n in gone
        }
        pairs = sorted(((-len(facts[n] & lost[g]), n, g) for n in new for g in gone))
        for _, name, was in pairs:
            if name in new and was in gone:
                made[variant, arch, name] = was
                new.discard(name)
                gone.discard(was)
    return made


# --- what it promises ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Comparison:
    """A record held to a baseline.

    Args:
        promises: each fact of the baseline as a budget, with what there is of it now.
        notes: renamed kernels, facts that are new, variants that are gone.
        relaxed: the manifest's rules that are looser than what holds by themselves, in words.
    """

    promises: tuple[tuple[Budget, Promise], ...] = ()
    notes: tuple[str, ...] = ()
    relaxed: tuple[str, ...] = ()


def another_nvcc(record: Record, old: Baseline) -> str:
    """Why the record cannot be held to this baseline; empty if it can."""
    found = record.environment.nvcc
    if found is None or found == old.nvcc:
        return ""
    return (
        f"built with nvcc {found}, but {old.file or 'the baseline'} was written with {old.nvcc}: "
        "facts compare only within one version (install that one, or write a new baseline)"
    )


def compare(record: Record, old: Baseline, variants: Collection[str] | None, today: date | None) -> Comparison:
    """Every fact of the baseline as a budget on what there is now.

    Args:
        variants: look at these alone; all if ``None``.
        today: the day that the rules' dates are held against.
    """
    rules = [r for r in record.suite.gate.rules if not (r.expires and today and date.fromisoformat(r.expires) < today)]
    facts = present(record)
    names = renames(old, {k: f.number or 0.0 for k, f in facts.items()})
    notes = [f"kernel renamed: {was} is now {now} ({v}, {a})" for (v, a, now), was in sorted(names.items())]
    now_called = {(v, a, was): now for (v, a, now), was in names.items()}
    built = {(a.variant, a.arch): a.status for a in record.artifacts}
    shapes: dict[Key, dict[str, Fact]] = {}
    for key, fact in facts.items():
        shapes.setdefault(_shaped(key, EVERY), {})[key.shape] = fact
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
            continue  # CUDA_ARCH left it out: nobody built it, nobody judges it
        here = replace(key, kernel=now_called.get((key.variant, key.arch, key.kernel), key.kernel))
        allowance, rule = _allowance(key, rules)
        if allowance.severity == "ignore":
            continue
        budget = _budget(old, key, value, allowance, rule)
        own = shapes.get(_shaped(here, EVERY), {})
        if key.shape == EVERY:
            # Shapes that the baseline names itself are judged by their own lines.
            chosen = {s: f for s, f in own.items() if s == EVERY or _shaped(key, s) not in old.values}
        else:
            chosen = {s: f for s, f in own.items() if s == key.shape}
            if not chosen and key.shape not in record.suite.shapes:
                gone[f"shape {key.shape}"] = gone.get(f"shape {key.shape}", 0) + 1
                continue
        if not chosen:
            kernel = None if here.kernel == NO_KERNEL else here.kernel
            subject = Subject(key.variant, key.arch, None if key.shape == EVERY else key.shape, kernel)
            why = "it does not build" if built[key.variant, key.arch] == "failed" else "no such kernel or fact any more"
            found.append((budget, Promise(subject, None, f"{why} (if that is meant: flashcore baseline save)")))
        found += [(budget, Promise(fact.subject, fact)) for fact in chosen.values()]
    notes += [f"{what}: gone from the suite, {n} facts of the baseline left out" for what, n in gone.items()]
    new = _unknown(old, facts, names)
    if new:
        notes.append(f"{len(new)} kernels or variants are not in the baseline yet: {', '.join(new[:3])}"
                     f"{' …' if len(new) > 3 else ''} (flashcore baseline save adds them)")  # fmt: skip
    return Comparison(tuple(found), tuple(notes), tuple(_relaxed(record.suite.gate.rules, today)))


def _allowance(key: Key, rules: Iterable[GateRule]) -> tuple[Allowance, GateRule | None]:
    allowance, last = ALLOWANCES[key.fact], None
    for rule in rules:
        if (
            matches(key.fact, rule.facts)
            and matches(key.variant, rule.variants)
            and matches(key.arch, rule.archs)
            and (key.shape == EVERY or matches(key.shape, rule.shapes))
            and matches(key.kernel, rule.kernels)
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
    """Static limits of the manifest that everything they name keeps with room to spare, and how far
    each could be tightened."""
    from harness.promises import Promises, excess

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
            found.append(f"{budget.name}: {word} = {_plain(limit or 0.0)} could be {_plain(worst)}")
    return found
