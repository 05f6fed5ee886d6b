"""The catalogue of facts: every name that a budget, a prediction or a page may use. ``facts.toml`` lists them.

For what Nsight Compute measures, a fact is a *logical metric*: its name stays the same on every chip
while ``ncu`` holds the chip's own name for it. What a chip lacks is unmeasured there, never zero.

How a value over a case is formed from those of its kernel launches depends on :class:`Kind`. Counters
add up. Percentages are weighted by time. A ratio is weighted by its own denominator, which makes it the
ratio of the sums.
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
from flashcore.model.suite import Stage, Tier


class Kind(StrEnum):
    """How a fact adds up over several launches."""

    COUNTER = "counter"  # sum
    PERCENTAGE = "percentage"  # mean weighted by duration
    RATIO = "ratio"  # mean weighted by `weight`, the ratio's denominator
    MAXIMUM = "maximum"  # a property of a launch: the largest
    NONE = "none"  # does not add up: text, or a value of a case as a whole


@dataclass(frozen=True, slots=True)
class FactSpec:
    """What a fact's name means.

    Args:
        unit: ``us``, ``B``, ``pct``, ``1`` (a count or ratio), ``text``, …
        tier: the tier a budget on it belongs to; ``None`` for text.
        why: what a person looks at it for, one line.
        better: ``lower``, ``higher`` or empty where neither is.
        ncu: ncu's metric name; ``chips`` overrides it per chip (``None``: the chip has none).
        weight: for a ratio, the ncu metric of its denominator.
        opcode: the SASS opcodes whose executed count it is, read from the per-opcode instances.
        many_passes: it takes ncu so many passes that runs of many cases measure it only on a variant's first shape,
            if it may be among the first there.
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
        """Whether ncu has it on some chip."""
        return self.ncu is not None or bool(self.chips)

    def ncu_name(self, chip: str) -> str | None:
        """ncu's name on ``chip`` (as ``gh100``), ``None`` if the chip has no such metric."""
        for prefix, name in self.chips.items():
            if chip.startswith(prefix):
                return name
        return self.ncu


class _Catalogue(Mapping[str, FactSpec]):
    """Facts by name, those of plugins last. A look-up also finds the share of any phase (sources choose the names) and
    any budget's decision; iteration does not give these."""

    def __init__(self, file: Path) -> None:
        table = tomllib.loads(file.read_text(encoding="utf-8"))
        self.core = {name: _spec(name, table["groups"][row["group"]] | row) for name, row in table["facts"].items()}

    def __getitem__(self, name: str) -> FactSpec:
        if name in self.core:
            return self.core[name]
        if reference := dict(plugin.entries("facts")).get(name):
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


#: What the share of a phase begins with; the phase's name follows: ``phase_share_softmax``.
PHASE_SHARE = "phase_share_"
#: What the fact of a budget on compiler decisions begins with; the budget's name follows.
DECISION = "decision_"
#: The phase of code that no source gives another.
OTHER_PHASE = "other"
_PHASE_SHARE = re.compile(rf"{PHASE_SHARE}[a-z][a-z0-9_]*")


def _spec(name: str, row: dict[str, Any]) -> FactSpec:
    row["kind"], row["tier"] = Kind(row["kind"]), row.get("tier", "counters") or None
    row["chips"] = {chip: metric or None for chip, metric in row.get("chips", {}).items()}
    return FactSpec(name, **{"unit": "1"} | row)


_CATALOGUE = _Catalogue(Path(__file__).with_name("facts.toml"))
FACTS: Mapping[str, FactSpec] = _CATALOGUE

#: Names that ncu gives: ``unit__counter.rollup``, those of its counters by instruction (``inst_executed``) and others.
_NCU_NAME = re.compile(r"(?=.*[_.])[A-Za-z][\w.:-]{0,299}", re.ASCII)
#: What the name of a finding by one of ncu's rules begins with.
RULE = "rule__"


def spec_of(name: str) -> FactSpec | None:
    """The meaning of a fact's name: from the catalogue, else of a metric under ncu's own name (imported reports);
    ``None`` if it is neither. Such a metric has the unit that ncu gave, so its unit here is empty."""
    if (spec := FACTS.get(name)) is not None:
        return spec
    if isinstance(name, str) and _NCU_NAME.fullmatch(name):
        return FactSpec(name, "", "counters", Kind.NONE, "as ncu names it", ncu=name, group="ncu")
    return None


#: What the tensor cores multiply, as in ``tensor_flop_fp16``; ``_sum16``: summed up in fp16.
TENSOR_TYPES = tuple(n.removeprefix("tensor_flop_") for n in _CATALOGUE.core if n.startswith("tensor_flop_"))
#: FLOPs of an executed thread-level instruction. HADD2, HMUL2 and HFMA2 work on two halves.
CUDA_CORE_FLOP = {
    f"op_{p}{op}": n * m for p, n in (("f", 1), ("h", 2), ("d", 1)) for op, m in (("add", 1), ("mul", 1), ("fma", 2))
}
#: ncu's stall reasons.
STALL_REASONS = tuple(n.removeprefix("stall_") for n, spec in _CATALOGUE.core.items() if spec.group == "stalls")
#: What "memory stalls" means: waits on global or local data, and queues to the memory pipes.
MEMORY_STALLS = ("long_scoreboard", "lg_throttle", "mio_throttle")
#: Groups of the tier counters that other stages than profile measure.
OWN_STAGE: Mapping[str, Stage] = {"check": "check", "sanitizer": "sanitize"}

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
    """The chip of a compute capability; of an unknown minor its family's nearest older one, ``None`` of an unknown
    family."""
    family = [cc for cc in CHIPS if cc[0] == capability[0] and cc <= capability]
    return CHIPS[max(family)] if family else None
