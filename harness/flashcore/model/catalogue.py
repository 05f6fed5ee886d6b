"""The catalogue of facts: every name that a budget, a prediction or a page may use. ``facts.toml`` lists them.

A fact from Nsight Compute has one name on every chip; ``ncu`` and ``chips`` give ncu's metric name there. A metric that
the chip lacks is unmeasured, never zero.

:class:`Kind` determines how the values of a case's launches combine. Counters add up. Percentages are weighted
by time. Ratios are weighted by their denominators, which gives the ratio of the sums.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from flashcore.model import plugin
from flashcore.model.cause import Detail
from flashcore.model.record import Fact, Source, Subject, Value
from flashcore.model.suite import Stage, Tier


class Kind(StrEnum):
    """How a fact's values over several launches combine."""

    COUNTER = "counter"  # sum
    PERCENTAGE = "percentage"  # mean weighted by duration
    RATIO = "ratio"  # mean weighted by `weight`, the ratio's denominator
    MAXIMUM = "maximum"  # a property of a launch: the largest
    NONE = "none"  # cannot combine: text, or a value of a whole case


@dataclass(frozen=True, slots=True)
class FactSpec:
    """The definition of a fact.

    Args:
        unit: ``us``, ``B``, ``pct``, ``1`` (a count or ratio), ``text``, …
        tier: the tier of a budget on it; ``None`` if it cannot have one.
        why: its meaning in one line.
        better: ``lower``, ``higher`` or empty if neither is better.
        ncu: ncu's metric name; ``chips`` overrides it by prefix of the chip's name (``None``: the chip lacks it).
        weight: for a ratio, the ncu metric of its denominator.
        opcode: SASS opcodes whose executed count it is, from the metric's per-opcode instances.
        many_passes: it needs many ncu passes or long ones, so runs of many cases measure it only on a variant's first
            shape.
    """

    name: str
    unit: str
    tier: Tier | None
    kind: Kind
    why: str
    better: str = ""
    ncu: str | None = None
    chips: Mapping[str, str | None] = field(default_factory=dict)
    weight: str | None = None
    opcodes: Sequence[str] = ()
    group: str = ""
    many_passes: bool = False

    @property
    def is_metric(self) -> bool:
        """Whether ncu measures it on some chip."""
        return self.ncu is not None or bool(self.chips)

    def ncu_name(self, chip: str) -> str | None:
        """ncu's name on ``chip`` (such as ``gh100``); ``None`` if the chip has no such metric."""
        for prefix, name in self.chips.items():
            if chip.startswith(prefix):
                return name
        return self.ncu


class _Catalogue(Mapping[str, FactSpec]):
    """Facts by name, those of plugins last. A lookup also accepts the share of any phase, whose names sources choose,
    and any budget's decision; iteration omits these."""

    def __init__(self, file: Path) -> None:
        table = tomllib.loads(file.read_text(encoding="utf-8"))
        self.core = {name: _spec(name, table["groups"][row["group"]] | row) for name, row in table["facts"].items()}

    def __getitem__(self, name: str) -> FactSpec:
        if name in self.core:
            return self.core[name]
        if reference := plugin.entry("facts", name):
            spec: FactSpec = plugin.resolve(reference)
            return spec
        if _PHASE_SHARE.fullmatch(name):
            why = f"share of the time that warps spend in the phase {name.removeprefix(PHASE_SHARE)}"
            return FactSpec(name, "pct", "counters", Kind.PERCENTAGE, why, group="phases")
        if name.startswith(DECISION):
            why = "names of a budget on compiler decisions that do not hold"
            return FactSpec(name, "1", "static", Kind.NONE, why, "lower", group="static")
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter([*self.core, *dict(plugin.entries("facts"))])

    def __len__(self) -> int:
        return sum(1 for _ in self)


#: Prefix of a phase's share, as in ``phase_share_softmax``.
PHASE_SHARE = "phase_share_"
#: Prefix of the fact of a budget on compiler decisions; the budget's name follows.
DECISION = "decision_"
#: The phase of code outside of all marked phases.
OTHER_PHASE = "other"
_PHASE_SHARE = re.compile(rf"{PHASE_SHARE}[a-z][a-z0-9_]*")


def _spec(name: str, row: dict[str, Any]) -> FactSpec:
    row["kind"], row["tier"] = Kind(row["kind"]), row.get("tier", "counters") or None
    row["chips"] = {chip: metric or None for chip, metric in row.get("chips", {}).items()}
    return FactSpec(name, **{"unit": "1"} | row)


_CATALOGUE = _Catalogue(Path(__file__).with_name("facts.toml"))
FACTS: Mapping[str, FactSpec] = _CATALOGUE

#: ncu's names: ``unit__counter.rollup``, counters per instruction (``inst_executed``) and others.
_NCU_NAME = re.compile(r"(?=.*[_.])[A-Za-z][\w.:-]{0,299}", re.ASCII)
#: Prefix of the facts from ncu's rules.
RULE = "rule__"


def spec_of(name: str) -> FactSpec | None:
    """The definition of a fact from the catalogue, else of a metric by ncu's name (imported reports); ``None`` if it is
    neither. Such a metric's unit is in the report, and empty here."""
    if (spec := FACTS.get(name)) is not None:
        return spec
    if isinstance(name, str) and _NCU_NAME.fullmatch(name):
        return FactSpec(name, "", "counters", Kind.NONE, "as ncu names it", ncu=name, group="ncu")
    return None


#: Input types of the tensor cores, as in ``tensor_flop_fp16``; ``_sum16``: accumulated in fp16.
TENSOR_TYPES = tuple(n.removeprefix("tensor_flop_") for n in _CATALOGUE.core if n.startswith("tensor_flop_"))
#: FLOPs per executed thread-level instruction. HADD2, HMUL2 and HFMA2 operate on two halves.
CUDA_CORE_FLOP = {
    f"op_{p}{op}": n * m for p, n in (("f", 1), ("h", 2), ("d", 1)) for op, m in (("add", 1), ("mul", 1), ("fma", 2))
}
#: ncu's stall reasons.
STALL_REASONS = tuple(n.removeprefix("stall_") for n, spec in _CATALOGUE.core.items() if spec.group == "stalls")
#: The stall reasons of ``memory_stalls``: waits for global or local data, and full queues of the memory pipes.
MEMORY_STALLS = ("long_scoreboard", "lg_throttle", "mio_throttle")
#: The stage of fact groups in tier counters that profile does not measure.
GROUP_STAGE: Mapping[str, Stage] = {"check": "check", "sanitizer": "sanitize"}

#: GPU chip by compute capability, as ncu names them (``ncu --list-chips``).
CHIPS = {
    (7, 5): "tu102",
    (8, 0): "ga100",
    (8, 6): "ga102",
    (8, 7): "ga10b",
    (8, 9): "ad102",
    (9, 0): "gh100",
    (10, 0): "gb100",
    (12, 0): "gb202",
}


def chip_of(capability: tuple[int, int]) -> str | None:
    """The chip of a compute capability: of an unlisted minor, its family's nearest older chip; ``None`` of an unlisted
    family."""
    family = [cc for cc in CHIPS if cc[0] == capability[0] and cc <= capability]
    return CHIPS[max(family)] if family else None


def fact_of(subject: Subject, name: str, value: Value | None, source: Source, detail: Detail | str = "") -> Fact:
    """The fact of that name, in the catalogue's unit."""
    return Fact(subject, name, value, FACTS[name].unit, source, detail)
