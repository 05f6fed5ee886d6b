"""Derives advice from facts by rules: a change of the code, its evidence, and an upper bound of its gain.

The rules are in ``advice.toml``. Most need only static facts. Counters add the bound of the gain, from the parts of the
case's time (:mod:`flashcore.explain.limiter`).
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from operator import eq, ge, gt, le, lt
from pathlib import Path
from typing import Any

from flashcore.chips.occupancy import WARP
from flashcore.explain.limiter import WORTH, Remedy, TimeParts, remedies, time_parts
from flashcore.explain.readings import Readings, per_readings
from flashcore.explain.resources import Part
from flashcore.explain.roofline import sm_count
from flashcore.explain.verdict_note import what_ifs
from flashcore.model.case import Case
from flashcore.model.catalogue import spec_of
from flashcore.model.record import CaseSubject, Fact, Subject, Value
from flashcore.model.suite import Shape
from flashcore.model.text import in_words, percentage, same_hardware, significant
from flashcore.records.lookup import ROOFS_SUITE

#: A cause in the code that may take this share of the time, %, comes before busy resources and waits.
MUCH = 10.0
UNTIMED = "nothing was timed"
_COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {"<": lt, "<=": le, "==": eq, ">=": ge, ">": gt}


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of ``advice.toml``, which describes the fields."""

    id: str
    facts: Sequence[str]
    when: Sequence[str]
    action: str
    removes: Sequence[str]
    effect: bool = False

    def applies(self, values: Mapping[str, Any]) -> bool:
        """Whether all its conditions hold; false if one of their facts is unmeasured."""
        for condition in self.when:
            name, comparison, limit = condition.split()
            value, other = values.get(name), values.get(limit) if limit[0].isalpha() else float(limit)
            if value is None or other is None or not _COMPARISONS[comparison](value, other):
                return False
        return True


@cache
def rules() -> tuple[Rule, ...]:
    """Returns all rules in the file's order."""
    table = tomllib.loads(Path(__file__).with_name("advice.toml").read_text(encoding="utf-8"))
    return tuple(Rule(name, **fields) for name, fields in table.items())


@dataclass(frozen=True, slots=True)
class Advice:
    """A rule's advice on a case.

    Args:
        subject: variant and shape, and for static evidence arch and kernel.
        evidence: names, values and units of facts.
        gain: the most that it can save, % of the time; ``None`` if unbounded.
        bound: the derivation of the gain, or why there is none.
        limiter: the kind of the largest part of the time that it can remove; empty if none was measured.
        remedy: the ladder's step that reduced this limiter the most.
        effect: whether it only names a busy resource or a wait, not a cause in the code.
    """

    rule: str
    subject: Subject
    action: str
    evidence: tuple[tuple[str, Value, str], ...]
    gain: float | None
    bound: str
    limiter: str = ""
    remedy: Remedy | None = None
    effect: bool = False

    @property
    def precedent(self) -> str:
        """The effect of :attr:`remedy` in words; empty without one."""
        if not (r := self.remedy):
            return ""
        cut = f"{r.variant} cut {self.limiter.replace('_', ' ')} from {r.before:.0f} to {percentage(r.after)}"
        return f"{cut} and was {significant(r.faster, 3)} × faster than {r.parent}"

    @property
    def at_most(self) -> str:
        """The gain in words."""
        return (
            f"gain unmeasured: {self.bound}"
            if self.gain is None
            else f"saves at most {percentage(self.gain)} of its time"
        )

    @property
    def values(self) -> str:
        """The evidence in words."""
        return ", ".join(f"{name} {v if isinstance(v, str) else in_words(v, unit)}" for name, v, unit in self.evidence)


def sentence(advice: Advice) -> str:
    """The advice in words: action, precedent, gain and evidence."""
    values = f" ({advice.values})" if advice.values else ""
    return "; ".join(filter(None, (advice.action, advice.precedent, advice.at_most))) + values


def as_data(advice: Advice) -> dict[str, Any]:
    """The advice as JSON data, in the form of ``gate.schema.json``."""
    names = ("variant", "arch", "shape", "kernel", "launch")
    return asdict(advice) | {
        "subject": {name: value for name in names if (value := getattr(advice.subject, name)) is not None},
        "evidence": {name: {"value": value, "unit": unit} for name, value, unit in advice.evidence},
    }


# --- facts of a case ------------------------------------------------------------------------------


@per_readings
def advice(readings: Readings, case: Case, arch: str | None = None) -> tuple[Advice, ...]:
    """Returns the advice on a case, in :func:`order`; none on a reference, on a shape that is only checked, and on
    kernels that measure roofs.

    Args:
        arch: the arch of the static facts; by default the measured or usual one, the only one with counters.
    """
    results: dict[tuple[str, object], Advice] = {}
    if not (is_timed(readings.record.suite.shapes[case.shape]) or time_parts(readings, case).timed):
        return ()
    for item in _every(readings, case, arch):
        results.setdefault((item.rule, item.evidence), item)  # kernels with equal evidence give one item
    return tuple(sorted(results.values(), key=order))


def unadvised(readings: Readings, case: Case) -> Part | None:
    """The part of which the most lies above the floor, if no advice can remove some of it."""
    part, removes = time_parts(readings, case).next, {rule.id: rule.removes for rule in rules()}
    return None if part and any(part.kind in removes[x.rule] for x in advice(readings, case)) else part


def is_timed(shape: Shape) -> bool:
    """Whether the manifest has a shape timed or profiled; others are only checked."""
    return not {"bench", "profile"}.isdisjoint(shape.stages)


def order(item: Advice) -> tuple[bool, float]:
    """The sort key of advice: first causes that may take :data:`MUCH` of the time, then the rest, by falling gain."""
    gain = item.gain or 0.0
    return item.effect or gain < MUCH, -gain


def _every(readings: Readings, case: Case, arch: str | None) -> Iterator[Advice]:
    """The advice on each kernel of a case."""
    record = readings.record
    if record.suite.variants[case.variant].is_reference or record.suite.name == ROOFS_SUITE:
        return
    arch = arch or readings.arch
    measured = readings.arch is None or arch is None or same_hardware(arch, readings.arch)
    time = time_parts(readings, case)
    unbounded = "its part of the time was not counted" if time.timed else UNTIMED
    kernels: dict[str | None, dict[str, Fact]] = {}
    counters: dict[str, Fact] = {}
    for fact in record.facts.of(case.variant):
        s = fact.subject
        if fact.value is None or s.shape not in (None, case.shape):
            continue
        if s.arch is not None and s.arch == arch and s.kernel:
            kernels.setdefault(s.kernel, {})[fact.name] = fact
        elif s.arch is None and s.kernel is None and (measured or fact.name.startswith("formula_")):
            counters[fact.name] = fact
    for kernel, static in (kernels or {None: {}}).items():
        subject = CaseSubject(case, kernel, arch=arch if kernel else None)
        facts = counters | static
        values = _values(readings, subject, facts, time if measured else None)
        for rule in rules():
            if rule.applies(values):
                about = subject if static.keys() & {*rule.facts} else CaseSubject(case)
                item = _advice(readings, rule, about, values, time if measured else None, unbounded)
                if item.gain is None or item.gain >= WORTH:
                    yield item


#: Facts of the code → facts of a launch that replace missing ones, as in imported reports.
_AS_LAUNCHED = {
    "registers": "ncu_registers",
    "threads": "ncu_block_size",
    "blocks": "ncu_grid_size",
    "theoretical_occupancy": "ncu_theoretical_occupancy",
}


def _atomic_conflicts(f: Mapping[str, Any]) -> float:
    """Bank conflicts of neither loads nor stores, in code that has atomics."""
    if not f.get("sass_atom"):
        return 0.0
    return float(max(f["bank_conflicts"] - f["bank_conflicts_load"] - f["bank_conflicts_store"], 0))


def _shared_use(f: Mapping[str, Any]) -> float:
    return float(100 * f["shared_wavefronts"] / f["instructions"])


def _pipe_wait(f: Mapping[str, Any]) -> float:
    """The share of stalls that wait for a pipe, or a queue to one, other than memory's."""
    return float(sum(f[f"stall_share_{x}"] for x in ("mio_throttle", "short_scoreboard", "math_pipe_throttle")))


def _other_pipe(f: Mapping[str, Any]) -> float:
    """By how many points the pipe of special functions exceeds the other pipes. Without its counter it is the busiest
    part of the SM if that exceeds them, in code without fp64."""
    others = max(f[f"{x}_active"] for x in ("issue", "fma", "alu", "lsu", "tensor"))
    if "xu_active" not in f and f["op_dadd"] + f["op_dmul"] + f["op_dfma"]:
        return 0.0
    return float((f["xu_active"] if "xu_active" in f else f["sm_throughput"]) - others)


#: Derived facts for rules; unmeasured if one of their facts is.
_DERIVED: Mapping[str, Callable[[Mapping[str, Any]], float]] = {
    "spilled": lambda f: f["spill_store_bytes"] + f["spill_load_bytes"],
    "bound_slack": lambda f: max(0, f.get("max_threads", 0) - f["threads"]),
    "partial_warp": lambda f: f["threads"] % WARP,
    "has_array": lambda f: "array" in f["local_memory"],
    "by_blocks": lambda f: f["occupancy_limiter"] == "blocks",
    "memory_wait": lambda f: f.get("stall_share_long_scoreboard", 100.0),
    "resident_blocks": lambda f: f["sms"] * f["blocks_per_sm"],
    "unexplained_local": lambda f: (
        0 if "local_memory" in f else (f["local_load_instructions"] + f["local_store_instructions"]) / f["instructions"]
    ),
    "conflict_share": lambda f: 100 * (f["bank_conflicts"] - _atomic_conflicts(f)) / f["shared_wavefronts"],
    "matrix_products": lambda f: f["sass_hmma"] + f["sass_hgmma"],
    "async_copies": lambda f: f["sass_ldgsts"] + f["sass_utmaldg"],
    # HFMA2 runs on the tensor pipe, and compilers move constants by it.
    "tensor_use": lambda f: f.get("tensor_instructions", f["tensor_roof"]) - f.get("tensor_hfma2_instructions", 0),
    "tensor_part": lambda f: f["formula_tensor_flop"] / f["formula_flop"],
    "reread": lambda f: f["dram_bytes"] / f["formula_bytes"],
    "double_operations": lambda f: f["op_dadd"] + f["op_dmul"] + f["op_dfma"],
    "l1_excess": lambda f: f.get("l1_bytes", math.inf) / f["formula_bytes"] if "formula_bytes" in f else math.inf,
    # Over the sectors of a warp whose neighbors access 16 bytes each, or 8 where the code has no such access.
    "scattered": lambda f: max(
        f["load_sectors"] / (16 if f.get("sass_ldg_128", 1) or f.get("sass_ldgsts") else 8),
        f["store_sectors"] / (16 if f.get("sass_stg_128", 1) else 8),
    ),
    "atomic_wait": lambda f: sum(
        f[f"stall_share_{x}"]
        for x in ("lg_throttle", "short_scoreboard", *(("mio_throttle",) if _atomic_conflicts(f) else ()))
    ),
    "pipe_wait": _pipe_wait,
    "shared_use": _shared_use,
    "special_wait": lambda f: _pipe_wait(f) if _shared_use(f) < 5 or _other_pipe(f) >= 20 else 0,
    "empty_us": lambda f: f["time_empty_sms"] * f["ncu_duration"] / 1e5,
}


def _values(
    readings: Readings, subject: CaseSubject, facts: Mapping[str, Fact], time: TimeParts | None
) -> dict[str, Any]:
    """The values of facts and derived facts by name."""
    record, variant = readings.record, readings.record.suite.variants[subject.variant]
    values: dict[str, Any] = {n: f.value for n, f in facts.items()}
    values = {name: values[launched] for name, launched in _AS_LAUNCHED.items() if launched in values} | values
    values |= {"fp64": variant.roof.startswith("fp64"), "tensor_roof": variant.roof.endswith("_tensor")}
    if time and (sms := sm_count(record)):
        values |= {"sms": sms, "idle_share": time.idle}
    values |= {f"time_{kind}": share for kind, share in time.most.items()} if time else {}
    plan = readings.plans(subject.arch).get(subject.case)
    for step in what_ifs(record, plan, subject.arch or ""):
        if step.subject == subject and step.then and step.then.target is not None:
            values |= {"next_block": step.then.target, "occupancy_step": step.then.lines()[0]}
    for name, derive in _DERIVED.items():
        with suppress(KeyError, ZeroDivisionError):
            values[name] = derive(values)
    return values


def _advice(
    readings: Readings, rule: Rule, subject: Subject, values: Mapping[str, Any], time: TimeParts | None, unbounded: str
) -> Advice:
    parts = {kind: share for kind, share in time.most.items() if kind in rule.removes} if time else {}
    bound = " + ".join(f"{kind} {percentage(share, 1)}" for kind, share in parts.items())
    limiter = max(parts, key=lambda kind: parts[kind], default="")
    gain = time.saved(rule.removes) if time and parts else None
    if time and gain is not None and gain < sum(parts.values()):
        bound += (
            f", of which at most {percentage(gain, 1)}: what overlaps counts once, and only what lies above its floor"
        )
    return Advice(
        rule.id,
        subject,
        rule.action.format_map(values),
        tuple((n, values[n], spec.unit if (spec := spec_of(n)) else "1") for n in rule.facts if n in values),
        gain,
        bound or unbounded,
        limiter,
        next(precedents(readings, limiter, subject), None),
        rule.effect,
    )


def precedents(readings: Readings, limiter: str, subject: Subject) -> Iterator[Remedy]:
    """Yields the steps that reduced the limiter at the shape, then at identical shapes, largest reduction first; the
    variant and its ancestors excepted."""
    suite = readings.record.suite
    variants, line = suite.variants, {subject.variant}
    at = variants.get(variants[subject.variant].parent or "")
    while at and at.name not in line:
        line.add(at.name)
        at = variants.get(at.parent or "")
    for shape in sorted(readings.alike[subject.shape or ""], key=lambda s: s.name != subject.shape):
        yield from (r for r in remedies(readings, shape.name).get(limiter, ()) if r.variant not in line)


def for_fact(readings: Readings, fact: str, subject: Subject) -> Advice | None:
    """The first advice on a subject's case whose evidence includes the fact.

    A subject without a shape means the variant's first shape with counters, else its first shape.
    """
    variant = readings.record.suite.variants.get(subject.variant)
    shapes = [s.name for s in readings.record.suite.shapes.values() if variant and variant.runs_on(s)]
    counted = (s for s in shapes if readings.of("ncu_duration", Case(subject.variant, s)).value)
    shape = subject.shape or next(counted, next(iter(shapes), None))
    if variant is None or shape is None:
        return None
    by_fact = _by_fact(readings, Case(variant.name, shape), subject.arch)
    return by_fact.get((subject.kernel, fact)) or by_fact.get((None, fact))


@per_readings
def _by_fact(readings: Readings, case: Case, arch: str | None) -> dict[tuple[str | None, str], Advice]:
    """The first advice on a case by kernel and fact: a case may have thousands of kernels."""
    items: dict[tuple[str | None, str], Advice] = {}
    for item in sorted(_every(readings, case, arch), key=order):
        for name, *_ in item.evidence:
            items.setdefault((item.subject.kernel, name), item)
    return items
