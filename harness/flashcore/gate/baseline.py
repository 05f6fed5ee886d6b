"""Reads and writes baselines: committed static facts that later builds are compared with.

A baseline has one fact per line, sorted, so that diffs are readable; archs and shapes with equal values share a line.
``flashcore baseline save`` only saves improvements: loosening needs a waiver in the manifest, with a reason. Facts
compare within one compiler version, which the file names.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple, TypeVar

from flashcore.errors import UsageError
from flashcore.explain import pairs
from flashcore.model.catalogue import FACTS
from flashcore.model.gate_policy import ALLOWANCES, PREFIX
from flashcore.model.groups import grouped
from flashcore.model.record import Fact, Launch, Record
from flashcore.model.text import number

HEADER = "# flashcore baseline 1"
DEFAULT = "baseline.txt"  # in the suite's folder; the manifest may name another file
ALL_SHAPES = "*"  # one value at all shapes, or a fact that does not depend on the shape
NO_KERNEL = "-"
CODE, LAUNCH, FP64 = "code", "launch", "sass_fp64"
#: What is noted about a kernel and never judged: the hash of its machine code, its launches, its FP64 instructions.
NOTED = (CODE, LAUNCH, FP64)

_Value = TypeVar("_Value", float, str)
#: Variant, arch, kernel.
KernelPlace = tuple[str, str, str]


class LineKey(NamedTuple):
    """The columns of a line before its value."""

    variant: str
    arch: str
    kernel: str
    shape: str
    fact: str

    @property
    def at_all_shapes(self) -> LineKey:
        return self._replace(shape=ALL_SHAPES)

    def __str__(self) -> str:
        return " ".join(self)


#: The header line, in place of compilers, of a suite whose kernels are all recorded cubins.
_RECORDED = {"cubins": "recorded"}
#: A header line: the suite, or a compiler's version.
_HEAD = re.compile(r"(?=suite |cubins recorded|\w+ [0-9]+\.)([a-z]\w*) (\S+)")


@dataclass(frozen=True, slots=True)
class Baseline:
    """The facts of one suite by one version of each of its ``compilers``. ``lines`` has their line numbers.

    ``noted`` is the text of :data:`NOTED`, which older files lack.
    """

    suite: str
    compilers: Mapping[str, str]
    values: Mapping[LineKey, float]
    file: str = ""
    lines: Mapping[LineKey, int] | None = None
    noted: Mapping[LineKey, str] = field(default_factory=dict)

    def text(self) -> str:
        """The file's content: a header, then the sorted facts."""
        head = [
            f"{HEADER}: written by `flashcore baseline save`, read by `flashcore gate`",
            "# variant arch kernel shape fact value",
            f"suite {self.suite}",
            *(f"{name} {version}" for name, version in (self.compilers or _RECORDED).items()),
            "",
        ]
        texts = {**self.noted, **{key: plain(value) for key, value in self.values.items()}}
        shapes = grouped(((key._replace(shape=""), text), key.shape) for key, text in sorted(texts.items()))
        archs = grouped(
            ((key._replace(arch="", shape=",".join(of)), text), key.arch) for (key, text), of in shapes.items()
        )
        lines = sorted((key._replace(arch=",".join(of)), text) for (key, text), of in archs.items())
        return "\n".join([*head, *(f"{key} {text}" for key, text in lines)]) + "\n"

    @property
    def kernels(self) -> dict[tuple[str, str], list[pairs.KernelIdentity]]:
        """The kernels of each variant and arch. Those of binaries have no values: unrelated ones share some."""
        facts = grouped((key[:3], (key.shape, key.fact, value)) for key, value in self.values.items())
        codes = {key[:3]: text for key, text in self.noted.items() if key.fact == CODE}
        return grouped(
            (
                at[:2],
                pairs.KernelIdentity(at[2], codes.get(at, ""), frozenset(v for v in of if v[2] and self.compilers)),
            )
            for at, of in facts.items()
            if at[2] != NO_KERNEL
        )


def plain(value: float) -> str:
    """A value in the file's format: whole numbers without a point, others exactly."""
    return str(int(value)) if float(value).is_integer() else repr(value)


def read(path: Path) -> Baseline | None:
    """The baseline in ``path``; ``None`` if there is no such file.

    Raises:
        UsageError: it is not a baseline, or has an invalid line; the message names the line.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: expected a baseline, but it cannot be read: {error}") from error
    return parse(text, str(path))


def parse(text: str, file: str = "baseline") -> Baseline:
    """Parses a baseline's text.

    Raises:
        UsageError: see :func:`read`.
    """
    hint = f"\n  hint: take one side of a merge conflict (git checkout --theirs {file}), then flashcore baseline save"
    if not text.startswith(HEADER + ":"):
        first_line = text.splitlines()[0][:60] if text.strip() else "nothing"
        raise UsageError(f"{file}: expected {HEADER!r} on its first line, found {first_line!r}{hint}")
    heads: dict[str, str] = {}
    values: dict[LineKey, float] = {}
    noted: dict[LineKey, str] = {}
    lines: dict[LineKey, int] = {}
    for line_number, line in enumerate(text.splitlines(), 1):
        parts = line.split()
        if not parts or parts[0].startswith("#"):
            continue
        if head := _HEAD.fullmatch(" ".join(parts)):
            heads[head[1]] = head[2]
            continue
        try:
            variant, archs, kernel, shapes, fact, first, *more = parts
            text_value = " ".join((first, *more))
            value = 0.0 if fact in NOTED else float(text_value)
        except (TypeError, ValueError):
            expected = "`variant arch kernel shape fact value`"
            raise UsageError(f"{file}:{line_number}: expected {expected}, found {line!r}{hint}") from None
        for arch, shape in itertools.product(archs.split(","), shapes.split(",")):
            key = LineKey(variant, arch, kernel, shape, fact)
            if key in lines or fact not in (*NOTED, *ALLOWANCES) or not abs(value) < 1e15:  # rejects NaN too
                expected = "one line per fact" if key in lines else "a fact of a baseline, and its value"
                raise UsageError(f"{file}:{line_number}: expected {expected}, found {line!r}{hint}")
            lines[key] = line_number
            if fact in NOTED:
                noted[key] = text_value
            else:
                values[key] = value
    suite = heads.pop("suite", "")
    if not suite or not heads:
        raise UsageError(f"{file}: expected a line `{'nvcc' if suite else 'suite'} …`, found none{hint}")
    versions = {name: version for name, version in heads.items() if name not in _RECORDED}
    return Baseline(suite, versions, values, file, lines, noted)


# --- the present facts ---------------------------------------------------------------------------


def compilers(record: Record) -> dict[str, str]:
    """The version of each compiler of the record's static facts; of several, all."""
    by_variant = {variant.name: variant.kind.compiler for variant in record.suite.variants.values()}
    built = [(by_variant.get(artifact.variant, "nvcc"), artifact.cxx) for artifact in record.artifacts] or [
        ("nvcc", "")
    ]
    versions: dict[str, set[str]] = {}
    for compiler, cxx in built:
        version = (record.environment.nvcc or "") if compiler == "nvcc" else cxx.removeprefix(f"{compiler} ")
        versions.setdefault(compiler, set()).add(version if compiler else "")
    return {name: " and ".join(sorted(of - {""})) for name, of in versions.items() if of - {""}}


def present(record: Record) -> dict[LineKey, Fact]:
    """The record's facts that belong in a baseline, by the key of their line at one shape."""
    facts: dict[LineKey, Fact] = {}
    for name, allowance in ALLOWANCES.items():
        for s, fact in {fact.subject: fact for fact in record.facts.named(name)}.items():
            if s.arch is None:
                continue
            key = LineKey(s.variant, s.arch, s.kernel or NO_KERNEL, s.shape or ALL_SHAPES, name)
            worst = facts[key].number if key in facts else math.nan
            # Of several launches of a kernel the worst counts; an unmeasured one is worst.
            if key not in facts or (
                worst is not None and (fact.number is None or allowance.improves(worst, fact.number))
            ):
                facts[key] = fact
    return facts


def noted(record: Record) -> dict[LineKey, str]:
    """What a baseline notes, by the key of its line at one shape."""
    texts = {
        LineKey(s.variant, s.arch, s.kernel, ALL_SHAPES, fact.name): str(fact.value)
        for name in (CODE, FP64)
        for fact in record.facts.named(name)
        if (s := fact.subject) and s.arch and s.kernel and fact.value
    }
    for plan in record.plans:
        for kernel, launches in grouped((x.kernel, _launch(x)) for x in plan.launches).items():
            text = " ".join(f"{one} ({n} times)" if n > 1 else one for one, n in Counter(launches).items())
            for arch in plan.archs or record.suite.archs:
                texts[LineKey(plan.variant, arch, kernel, plan.shape, LAUNCH)] = text
    return texts


def _launch(launch: Launch) -> str:
    """``grid=128x8 block=256 smem=1024``."""
    dims = {"grid": launch.grid, "block": launch.block, "cluster": launch.cluster, "smem": (launch.dynamic_smem,)}
    texts = ((name, "x".join(map(str, sizes))) for name, sizes in dims.items())
    words = (f"{name}={re.sub('(x1)+$', '', text)}" for name, text in texts)
    return " ".join(word for word in words if word not in ("cluster=1", "smem=0"))


def renames(old: Baseline, now: Baseline) -> dict[KernelPlace, KernelPlace]:
    """The names in the old baseline of kernels that have another now."""
    before = old.kernels
    return {
        (*place, name): (*place, was)
        for place, kernels in now.kernels.items()
        for name, was in pairs.paired(before.get(place, ()), kernels).items()
        if name != was
    }


def matched(
    old: Collection[LineKey], now: Iterable[LineKey], old_names: Mapping[KernelPlace, KernelPlace]
) -> dict[LineKey, LineKey]:
    """The line in the baseline of each present fact: of its shape, else of all shapes."""
    lines: dict[LineKey, LineKey] = {}
    for key in now:
        line = LineKey(*old_names.get(key[:3], key[:3]), key.shape, key.fact)
        if line not in old:
            line = line.at_all_shapes
        if line in old:
            lines[key] = line
    return lines


def _collapse(values: Mapping[LineKey, _Value]) -> dict[LineKey, _Value]:
    """Merges shapes with equal values to ``*``, and omits facts that cannot get worse."""
    collapsed: dict[LineKey, _Value] = {}
    for key, shapes in grouped((key.at_all_shapes, (key, value)) for key, value in values.items()).items():
        distinct = {value for _, value in shapes}
        if key.fact in NOTED or ALLOWANCES[key.fact].better == "lower" or any(distinct):
            collapsed.update([(key, shapes[0][1])] if len(distinct) == 1 else shapes)
    return collapsed


@dataclass(frozen=True, slots=True)
class Saved:
    """A new baseline, and its differences from the old one.

    Args:
        tightened: saved improvements, as text.
        regressions: unsaved regressions, as text with the waiver that accepts them.
        failed: variants whose old facts remain, because they do not build or have no plan.
        gone: kernels of the old baseline that have no facts now.
    """

    baseline: Baseline
    tightened: tuple[str, ...] = ()
    regressions: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()


def save(record: Record, old: Baseline | None, *, ratchet: bool = False) -> Saved:
    """The record's facts as a baseline. An old one of another suite is replaced entirely; of another version of a
    compiler, the facts of all its variants.

    Args:
        ratchet: only tighten: do not add facts that the old baseline lacks.

    Raises:
        UsageError: the record names no compiler, or ``ratchet`` has no baseline to tighten.
    """
    suite, made_by = record.suite, compilers(record)
    used = {v.kind.compiler for v in suite.variants.values() if not v.is_reference}
    if not made_by and used != {""}:
        raise UsageError("expected a record that names its nvcc, found none")
    built = _usable(record)
    failed = tuple(f"{variant} for {arch}" for (variant, arch), usable in built.items() if not usable)
    facts = {key: fact.number for key, fact in present(record).items() if built.get(key[:2])}
    now = {key: value for key, value in facts.items() if value is not None and math.isfinite(value)}
    kernels = {key[:3] for key in now}
    notes = _collapse({key: text for key, text in noted(record).items() if key[:3] in kernels})
    new = Baseline(suite.name, made_by, now, noted=notes)
    before = old.compilers if old else {}
    upgraded = {name for name, version in made_by.items() if before.get(name, version) != version}
    if ratchet and (old is None or old.suite != suite.name or upgraded):
        previous = "none" if old is None else f"one of {old.suite}, {words(old.compilers)}"
        raise UsageError(
            f"--ratchet: expected a baseline of {suite.name}, {words(made_by)}, found {previous}\n"
            "  hint: flashcore baseline save"
        )
    if old is None or old.suite != suite.name:
        return Saved(replace(new, values=_collapse(now)), failed=failed)
    made_with = {variant.name: variant.kind.compiler for variant in suite.variants.values()}
    comparable = {key: value for key, value in old.values.items() if made_with.get(key.variant) not in upgraded}
    old = replace(old, values=comparable)
    old_names = renames(old, new)
    kernels |= {*old_names.values()}
    gone = {key[:3]: None for key in old.values if built.get(key[:2]) and key[:3] not in kernels}
    lines = matched(old.values, now, old_names)
    kept_values = {key: old.values[line] for key, line in lines.items()}
    # A baseline omits zeros that can only rise, so such a fact is not new.
    added = {k: v for k, v in now.items() if k not in lines and (not ratchet or ALLOWANCES[k.fact].better == "higher")}
    better, worse = _moved(now, kept_values)
    merged = {key: now[key] if key in better else value for key, value in kept_values.items()} | added

    def stays(key: LineKey) -> bool:
        """Whether an old line remains: its variant was not built (--variant, --arch, a compile error)."""
        if key.variant not in suite.variants or key.arch not in suite.variants[key.variant].where.archs:
            return False
        return not built.get(key[:2]) or (ratchet and key[:3] in gone)

    values = {**_collapse(merged), **{key: value for key, value in old.values.items() if stays(key)}}
    compared = {key[:3] for key in values}
    notes |= {key: text for key, text in old.noted.items() if stays(key) and key[:3] in compared}
    remaining = {made_with[key.variant] for key in values}
    kept = {name: version for name, version in before.items() if name in remaining}
    names = tuple(f"{variant}/{kernel} ({arch})" for variant, arch, kernel in gone if not ratchet)
    saved = replace(new, compilers={**kept, **made_by}, values=values, noted=notes)
    return Saved(saved, tuple(better.values()), tuple(worse), failed, names)


def _usable(record: Record) -> dict[tuple[str, str], bool]:
    """Whether each variant was built for an arch, and has its launch plans."""
    planless = {(p.variant, arch) for p in record.plans if p.error for arch in p.archs or record.suite.archs}
    return {(a.variant, a.arch): a.status != "failed" and (a.variant, a.arch) not in planless for a in record.artifacts}


def _moved(now: Mapping[LineKey, float], old: Mapping[LineKey, float]) -> tuple[dict[LineKey, str], list[str]]:
    """The improvements of the values of ``old``, and the regressions beyond their allowance, in words."""
    better, worse = {}, []
    for key, was in old.items():
        allowance, value = ALLOWANCES[key.fact], now[key]
        change = f"{key} {number(was)} → {number(value, FACTS[key.fact].unit)}"
        if allowance.improves(value, was):
            better[key] = change
        elif allowance.improves(allowance.limit(was), value):
            worse.append(f"{change}: {_loosening(key, value)}")
    return better, worse


def words(versions: Mapping[str, str]) -> str:
    """The versions as text: ``nvcc 13.0.88, triton 3.6.0``."""
    return ", ".join(f"{name} {version}" for name, version in (versions or _RECORDED).items())


def _loosening(key: LineKey, value: float) -> str:
    shape = "" if key.shape == ALL_SHAPES else f', shapes = ["{key.shape}"]'
    return (
        f'[[waiver]] budget = "{PREFIX}{key.fact}", variants = ["{key.variant}"], archs = ["{key.arch}"]{shape}, '
        f'accepted = {plain(value)}, reason = "…"'
    )
