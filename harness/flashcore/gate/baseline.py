"""A baseline: the static facts of one day as committed text, which later ones are compared with.

One fact a line, sorted, so that a change reads as a diff. What gets better is taken over by
``flashcore baseline save``; what gets worse is not: loosening needs a waiver in the manifest, with its
reason. Facts compare within one nvcc version only, which the file names.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from flashcore.errors import UsageError
from flashcore.model.catalogue import FACTS
from flashcore.model.gate_policy import ALLOWANCES, PREFIX, Allowance
from flashcore.model.record import Fact, Record
from flashcore.model.suite import AheadOfTime
from flashcore.model.text import number

HEADER = "# flashcore baseline 1"
DEFAULT = "baseline.txt"  # in the suite's folder, where the manifest names no other
ALL_SHAPES = "*"  # all shapes alike, or a fact that no shape enters
NO_KERNEL = "-"


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """What a line is about. ``shape`` is ``*`` where all shapes agree."""

    variant: str
    arch: str
    kernel: str
    shape: str
    fact: str


#: The line of a suite whose kernels were all recorded: their facts are of no compiler here.
_RECORDED = {"cubins": "recorded"}
#: A line above the facts.
_HEAD = re.compile(r"(?=suite |cubins recorded|\w+ [0-9]+\.)([a-z]\w*) (\S+)")


@dataclass(frozen=True, slots=True)
class Baseline:
    """Facts by what they are about, of one suite and one version of each of the ``compilers`` that were used.
    ``lines`` says where each stands."""

    suite: str
    compilers: Mapping[str, str]
    values: Mapping[Key, float]
    file: str = ""
    lines: Mapping[Key, int] | None = None

    def text(self) -> str:
        """The file: a header, then a fact a line, sorted."""
        rows = [
            f"{k.variant} {k.arch} {k.kernel} {k.shape} {k.fact} {plain(v)}" for k, v in sorted(self.values.items())
        ]
        head = [
            f"{HEADER}: written by `flashcore baseline save`, read by `flashcore gate`",
            "# variant arch kernel shape fact value",
            f"suite {self.suite}",
            *(f"{name} {version}" for name, version in (self.compilers or _RECORDED).items()),
            "",
        ]
        return "\n".join([*head, *rows]) + "\n"


def plain(value: float) -> str:
    """A value as written in the file: whole numbers without a point, others exactly."""
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
    hint = "\n  hint: resolve the conflict or the edit, or write it again with: flashcore baseline save"
    if not text.startswith(HEADER + ":"):
        first_line = text.splitlines()[0][:60] if text.strip() else "nothing"
        raise UsageError(f"{file}: expected {HEADER!r} on its first line, found {first_line!r}{hint}")
    heads: dict[str, str] = {}
    values: dict[Key, float] = {}
    lines: dict[Key, int] = {}
    for line_number, line in enumerate(text.splitlines(), 1):
        parts = line.split()
        if not parts or parts[0].startswith("#"):
            continue
        if head := _HEAD.fullmatch(" ".join(parts)):
            heads[head[1]] = head[2]
            continue
        try:
            *names, value = parts
            key = Key(*names)
            values[key], duplicate = float(value), key in values
        except (TypeError, ValueError):
            raise UsageError(
                f"{file}:{line_number}: expected `variant arch kernel shape fact value`, found {line!r}{hint}"
            ) from None
        if key.fact not in ALLOWANCES or duplicate or not abs(values[key]) < 1e15:  # NaN is not below it either
            expected = "one line for each fact" if duplicate else "a fact that baselines hold, with its value"
            raise UsageError(f"{file}:{line_number}: expected {expected}, found {line!r}{hint}")
        lines[key] = line_number
    suite = heads.pop("suite", "")
    if not suite or not heads:
        raise UsageError(f"{file}: expected a line `{'nvcc' if suite else 'suite'} …`, found none{hint}")
    versions = {name: version for name, version in heads.items() if name not in _RECORDED}
    return Baseline(suite, versions, values, file, lines)


# --- the present facts ---------------------------------------------------------------------------


def shaped(key: Key, shape: str) -> Key:
    """The same fact at another shape."""
    return replace(key, shape=shape)


def compilers(record: Record) -> dict[str, str]:
    """Compiler → the version that made the record's static facts."""
    languages = {v.kind.language for v in record.suite.variants.values() if isinstance(v.kind, AheadOfTime)}
    machine = record.environment
    versions = {"nvcc": machine.nvcc, **{name: machine.libraries.get(name) for name in sorted(languages)}}
    return {name: version for name, version in versions.items() if version}


def present(record: Record) -> dict[Key, Fact]:
    """The facts of a record that a baseline can hold, each with its own shape (or ``*``)."""
    facts: dict[Key, Fact] = {}
    for name in ALLOWANCES:
        latest = {fact.subject: fact for fact in record.facts.named(name)}
        for s, fact in latest.items():
            if s.arch is None:
                continue
            key = Key(s.variant, s.arch, s.kernel or NO_KERNEL, s.shape or ALL_SHAPES, name)
            worst = facts.get(key)
            # A kernel launched several times counts with its worst launch.
            if worst is None or worst.number is None or fact.number is None:
                facts[key] = fact if worst is None or worst.number is not None else worst
            elif ALLOWANCES[name].improves(worst.number, fact.number):
                facts[key] = fact
    return facts


def _collapse(values: Mapping[Key, float]) -> dict[Key, float]:
    """Shapes that all agree become ``*``; so does what cannot get worse, which is left out."""
    groups: dict[Key, dict[str, float]] = {}
    for key, value in values.items():
        groups.setdefault(shaped(key, ALL_SHAPES), {})[key.shape] = value
    collapsed: dict[Key, float] = {}
    for key, shapes in groups.items():
        if ALLOWANCES[key.fact].better == "higher" and not any(shapes.values()):
            continue
        if len(set(shapes.values())) == 1:
            collapsed[key] = next(iter(shapes.values()))
        else:
            collapsed.update({shaped(key, shape): value for shape, value in shapes.items()})
    return collapsed


@dataclass(frozen=True, slots=True)
class Saved:
    """A new baseline, and the outcome of the old one's facts.

    Args:
        tightened: what was taken over since it is better, as text.
        kept: what is worse and therefore not taken over, as text with the way to loosen it.
        failed: the variants whose facts stay as they were, since they do not build or have no plan.
    """

    baseline: Baseline
    tightened: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()


def save(record: Record, old: Baseline | None, *, ratchet: bool = False) -> Saved:
    """The record's facts as a baseline. One of another nvcc or suite is replaced as a whole.

    Args:
        ratchet: only tighten: facts that the old one lacks stay out.

    Raises:
        UsageError: the record names no nvcc, or ``ratchet`` has nothing to tighten.
    """
    made_by = compilers(record)
    used = {v.kind.compiler for v in record.suite.variants.values() if not v.is_reference}
    if not made_by and used != {""}:
        raise UsageError("expected facts made by a known nvcc, found a record that names none")
    facts = {k: f.number for k, f in present(record).items()}
    planless = {p.variant for p in record.plans if p.error}
    built = {(a.variant, a.arch): a.status != "failed" and a.variant not in planless for a in record.artifacts}
    failed = tuple(f"{variant} for {arch}" for (variant, arch), usable in built.items() if not usable)
    now = {k: v for k, v in facts.items() if v is not None and math.isfinite(v) and built.get((k.variant, k.arch))}
    if old is None or old.suite != record.suite.name or {**old.compilers, **made_by} != {**made_by, **old.compilers}:
        if ratchet:
            previous = "none" if old is None else f"one of {old.suite}, {words(old.compilers)}"
            raise UsageError(
                f"--ratchet: expected a baseline of {record.suite.name}, {words(made_by)}, found {previous}\n"
                "  hint: flashcore baseline save"
            )
        return Saved(Baseline(record.suite.name, made_by, _collapse(now)), failed=failed)
    names = renames(old, now)
    before = {k: v for k, v in _expanded(old, now, names).items() if v is not None}
    merged: dict[Key, float] = {}
    tightened: list[str] = []
    worse: list[str] = []
    for key, value in now.items():
        old_value = before.get(key)
        if old_value is None:
            # What was zero and can only rise is left out of a baseline, and is no new fact.
            if not ratchet or ALLOWANCES[key.fact].better == "higher":
                merged[key] = value
            continue
        allowance = ALLOWANCES[key.fact]
        merged[key] = value if allowance.improves(value, old_value) else old_value
        change = f"{_name(key)} {number(old_value)} → {number(value, FACTS[key.fact].unit)}"
        if allowance.improves(value, old_value):
            tightened.append(change)
        elif value != old_value and _worse(allowance, value, old_value):
            worse.append(f"{change}: {_loosening(key, value)}")
    # What was not built this time (--variant, CUDA_ARCH, a compile error) keeps its lines.
    untouched = {
        k: v
        for k, v in old.values.items()
        if not built.get((k.variant, k.arch))
        and (variant := record.suite.variants.get(k.variant)) is not None
        and k.arch in variant.where.archs
    }
    values = {**_collapse(merged), **untouched}
    return Saved(Baseline(record.suite.name, made_by, values), tuple(tightened), tuple(worse), failed)


def words(versions: Mapping[str, str]) -> str:
    """``nvcc 13.0.88, triton 3.6.0``."""
    return ", ".join(f"{name} {version}" for name, version in (versions or _RECORDED).items())


def _worse(allowance: Allowance, value: float, old_value: float) -> bool:
    return allowance.improves(allowance.limit(old_value), value)


def _name(key: Key) -> str:
    return f"{key.variant} {key.arch} {key.kernel} {key.shape} {key.fact}"


def _loosening(key: Key, value: float) -> str:
    shape = "" if key.shape == ALL_SHAPES else f', shapes = ["{key.shape}"]'
    return (
        f'[[waiver]] budget = "{PREFIX}{key.fact}", variants = ["{key.variant}"], archs = ["{key.arch}"]{shape}, '
        f'accepted = {plain(value)}, reason = "…"'
    )


def _expanded(
    old: Baseline, now: Collection[Key], names: Mapping[tuple[str, str, str], str]
) -> dict[Key, float | None]:
    """The old value of each present fact, ``None`` if there is none."""
    old_values: dict[Key, float | None] = {}
    for key in now:
        old_key = replace(key, kernel=names.get((key.variant, key.arch, key.kernel), key.kernel))
        old_values[key] = old.values.get(old_key, old.values.get(shaped(old_key, ALL_SHAPES)))
    return old_values


def renames(old: Baseline, now: Mapping[Key, float]) -> dict[tuple[str, str, str], str]:
    """(variant, arch, present kernel) → its name in the baseline, for kernels that only one side has.

    Of several candidates, the pair that shares the most values is taken as the same kernel.
    """

    def kernels(keys: Iterable[Key]) -> dict[tuple[str, str], set[str]]:
        by_variant: dict[tuple[str, str], set[str]] = {}
        for k in keys:
            if k.kernel != NO_KERNEL:
                by_variant.setdefault((k.variant, k.arch), set()).add(k.kernel)
        return by_variant

    def values(numbers: Mapping[Key, float], *kernel: str) -> set[tuple[str, str, float]]:
        return {(k.shape, k.fact, v) for k, v in numbers.items() if (k.variant, k.arch, k.kernel) == kernel}

    before, after = kernels(old.values), kernels(now)
    old_names: dict[tuple[str, str, str], str] = {}
    for (variant, arch), names in after.items():
        new = names - before.get((variant, arch), set())
        removed = before.get((variant, arch), set()) - names
        if not new or not removed:
            continue
        facts = {n: values(now, variant, arch, n) for n in new}
        old_facts = {n: values(old.values, variant, arch, n) for n in removed}
        pairs = sorted((-len(facts[n] & old_facts[g]), n, g) for n in new for g in removed)
        for _, name, old_name in pairs:
            if name in new and old_name in removed:
                old_names[variant, arch, name] = old_name
                new.discard(name)
                removed.discard(old_name)
    return old_names
