"""What a comparison is: two sides, and for each case or kernel what changed, by which evidence.

Static facts are *exact*. Times that were taken alternately in *one run* have an interval over its rounds. Times of
several *processes* are judged by the spread of no change (A/A). Other times, such as those of two runs, are shown and
not judged, because machines and days differ.
"""

from __future__ import annotations

import typing
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import expm1, log
from typing import Any, Literal, NamedTuple

from flashcore.explain.times import Speedup
from flashcore.model.catalogue import FACTS
from flashcore.model.cause import cause_text
from flashcore.model.groups import grouped, picked
from flashcore.model.record import Record, Subject, Value
from flashcore.model.slower import ProcessTimes
from flashcore.model.suite import TIMING_MODES
from flashcore.model.text import number

Evidence = Literal["exact", "one run", "processes"]
#: From what needs attention to what does not.
Outcome = Literal[
    "failed",
    "slower",
    "worse",
    "undecided",
    "new",
    "gone",
    "changed",
    "better",
    "faster",
    "too small to matter",
    "no difference",
    "same code",
    "nothing to compare with",
    "unsupported",
]
_ORDER: Sequence[Outcome] = typing.get_args(Outcome)
REGRESSIONS: frozenset[Outcome] = frozenset({"failed", "slower", "worse"})
#: The outcomes of what did not change, or was not compared.
UNCHANGED = frozenset(_ORDER[_ORDER.index("no difference") :])
#: A kernel is what its most important changed fact is: spills before registers, the size of the code last.
_IMPORTANCE = {"spill_store_bytes": 0, "spill_load_bytes": 1, "registers": 3, "code_bytes": 5}


class Side(NamedTuple):
    """One of the two sides. ``name`` is a run's id, a revision, a file or a variant."""

    name: str
    suite: str
    gpu: str | None = None
    nvcc: str | None = None
    commit: str = ""

    @classmethod
    def of(cls, record: Record) -> Side:
        environment = record.environment
        return cls(record.id, record.suite.name, record.gpu, environment.nvcc, environment.git_commit or "")


def size(was: Value | None, now: Value | None, unit: str) -> float:
    """The change between two values as a share of the larger one, 0 to 2; for percentages in hundreds of points. 0
    unless both are numbers."""
    if was is None or now is None or isinstance(was, str) or isinstance(now, str) or was == now:
        return 0.0
    return abs(now - was) / (100 if unit == "pct" else max(abs(was), abs(now)))


@dataclass(frozen=True, slots=True)
class Change:
    """One fact on both sides. ``before`` or ``after`` is ``None`` if unmeasured.

    Args:
        subject: of the later side; of the earlier one, if only that has the fact.
        evidence: ``None`` if the change is shown and not judged.
        speedup: of a time.
        noise: the change, as a share, up to which a time judged by processes may be noise.
        processes: their results.
    """

    subject: Subject
    fact: str
    unit: str
    before: Value | None
    after: Value | None
    outcome: Outcome
    evidence: Evidence | None = None
    speedup: Speedup | None = None
    noise: float | None = None
    processes: Sequence[ProcessTimes] = ()

    @property
    def text(self) -> str:
        """``96 B → 128 B``."""
        return f"{number(self.before, self.unit)} → {number(self.after, self.unit)}"

    @property
    def mode(self) -> str:
        """The timing mode of a time: ``isolated``; ``ncu_duration`` and others are their own."""
        return self.fact.removesuffix("_p50")

    @property
    def size(self) -> float:
        """That of its values, :func:`size`; of times the logarithm of their ratio."""
        if self.speedup is not None:
            return abs(log(self.speedup.value))
        return size(self.before, self.after, self.unit)

    @property
    def ratio(self) -> float | None:
        """Of two times: before over after. Above 1 is faster."""
        return self.speedup.value if self.speedup else None

    @property
    def low(self) -> float | None:
        """The interval's lower end."""
        return self.speedup.low if self.speedup else None

    @property
    def high(self) -> float | None:
        """The interval's upper end."""
        return self.speedup.high if self.speedup else None

    @property
    def no_interval(self) -> str:
        """Why the ratio of two times has no interval; empty if it has one."""
        return cause_text(self.speedup.cause) if self.speedup else ""

    @property
    def importance(self) -> tuple[bool, int, float]:
        """Orders changes of one kernel: what got worse or better before what only changed, the more important fact
        first, then the one that changed the most."""
        was, now = (value if isinstance(value, (int, float)) else 0 for value in (self.before, self.after))
        gains = FACTS[self.fact].better == "higher"  # such as tensor-core instructions
        return self.outcome == "changed", 2 if gains else _IMPORTANCE.get(self.fact, 4), -abs(now - was)

    @property
    def is_important(self) -> bool:
        """Whether it describes a kernel that only one side has."""
        return self.fact in _IMPORTANCE


@dataclass(frozen=True, slots=True)
class Difference:
    """What changed of one case, or of one kernel's code.

    Args:
        subject: a case, which has a shape, or a kernel or build, which has none.
        changes: the most important one first, which decided the outcome. Of a case these are its times, then the
            counters that changed with them.
        reason: why nothing was decided, or a remark.
        same_code: whether both sides ran the same machine code, so that a difference in time is not the kernel's.
        shapes: the names of the case's identical shapes.
        was: the earlier side's name of a kernel, if it is another.
    """

    subject: Subject
    outcome: Outcome
    changes: Sequence[Change] = ()
    reason: str = ""
    same_code: bool = False
    shapes: Sequence[str] = ()
    was: str = ""

    @property
    def name(self) -> str:
        """``fast/mission = d64_s512``."""
        return f"{self.subject.variant}/{' = '.join(self.shapes)}" if self.shapes else str(self.subject)

    @property
    def is_case(self) -> bool:
        return self.subject.shape is not None

    @property
    def lead(self) -> Change | None:
        """The change that decided; of a case its time."""
        return self.changes[0] if self.changes else None

    @property
    def facts(self) -> list[str]:
        """A kernel's changes in words: ``registers 96 → 128``, ``blocks 64 → 128 (mission)``; of one that is new or
        gone its values."""

        def text(of: Change) -> str:
            sides = {"new": of.after, "gone": of.before}
            return number(sides[self.outcome], of.unit) if self.outcome in sides else of.text

        shapes = grouped((f"{c.fact} {text(c)}", c.subject.shape) for c in self.changes)
        names = {text: [shape for shape in of if shape] for text, of in shapes.items()}
        more = {text: f" and {len(of) - 3} shapes" if of[3:] else "" for text, of in names.items()}
        return [text + (f" ({', '.join(of[:3])}{more[text]})" if of else "") for text, of in names.items()]

    @property
    def line(self) -> str:
        """What changed of a kernel or build."""
        name = f"{self.subject}{f' (was {self.was})' if self.was else ''}"
        return f"{self.outcome:8}  {'; '.join(self.facts) or self.reason}  {name}"

    @property
    def judged(self) -> bool:
        """Whether there is evidence for the outcome; of a time that both sides have."""
        return self.lead is None or self.lead.speedup is None or self.lead.evidence is not None

    @property
    def verdict(self) -> str:
        """The outcome, and what to know about it."""
        notes = [
            "" if self.judged or self.outcome in UNCHANGED else "not judged",
            "same code" if self.same_code else "",
        ]
        outcome = ", ".join(filter(None, (self.outcome, *notes)))
        return f"{outcome}: {self.reason}" if self.reason else outcome

    @property
    def contradiction(self) -> tuple[Change, Change] | None:
        """The timing modes in which the case is fastest and slowest, if these contradict each other beyond noise."""
        decided = [(c.speedup.value, c) for c in self.changes if c.mode in TIMING_MODES and c.speedup and c.evidence]
        decided = [pair for pair in decided if pair[1].outcome in ("faster", "slower")]
        if not decided:
            return None
        (high, best), (low, worst) = (pick(decided, key=lambda pair: pair[0]) for pick in (max, min))
        return (best, worst) if high > 1 > low else None


def _rank(row: Difference) -> tuple[object, ...]:
    """Orders rows: cases by what changed most, those of the same code after the others; code by what is worst."""
    lead, place = row.lead, _ORDER.index(row.outcome)
    if row.is_case:
        return False, lead is None, row.outcome in UNCHANGED, row.same_code, -lead.size if lead else place, place
    return True, place, *(lead.importance if lead else (True, 9, 0.0))


@dataclass(frozen=True)
class Comparison:
    """Two sides, and each case that was compared and each kernel or build that changed, ordered by what changed most.

    Args:
        notes: why it may mislead.
        alike: how many kernels or builds have the same machine code on both sides, and how many both sides have.
        incomparable: why times are not compared; empty if they are.
    """

    before: Side
    after: Side
    rows: Sequence[Difference]
    notes: Sequence[str] = ()
    alike: tuple[int, int] = (0, 0)
    incomparable: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", tuple(sorted(self.rows, key=_rank)))

    @property
    def counts(self) -> Counter[Outcome]:
        """The number of cases by outcome."""
        return counted(self.cases)

    @property
    def cases(self) -> list[Difference]:
        return [row for row in self.rows if row.is_case]

    @property
    def code(self) -> list[Difference]:
        """The kernels and builds that changed."""
        return [row for row in self.rows if not row.is_case]

    @property
    def heading(self) -> str:
        """The sides and the summary."""
        before, after = self.before, self.after
        gpu = f", {after.gpu}" if after.gpu and after.gpu == before.gpu else ""
        return f"{before.name} → {after.name}{gpu}: {self.summary}"

    @property
    def summary(self) -> str:
        """``164 slower (3 of the same code), 150 faster; code: 2 worse``."""
        parts = [_summed(self.cases), f"code: {words}" if (words := _summed(self.code)) else ""]
        same, both = self.alike
        parts.append(f"machine code the same in {same:,} of {both:,}" if both else "")
        return "; ".join(filter(None, parts)) or "nothing to compare"


def counted(rows: Iterable[Difference]) -> Counter[Outcome]:
    """The number of rows by outcome, in order."""
    counts = Counter(row.outcome for row in rows)
    return Counter({outcome: counts[outcome] for outcome in _ORDER if outcome in counts})


def as_data(comparison: Comparison) -> dict[str, Any]:
    """A comparison as JSON data."""
    return {
        "before": comparison.before._asdict(),
        "after": comparison.after._asdict(),
        "notes": list(comparison.notes),
        "counts": {"cases": comparison.counts, "code": counted(comparison.code)},
        "machine_code": dict(zip(("same", "both"), comparison.alike, strict=True)),
        "incomparable": comparison.incomparable or None,
        "rows": [row_data(row) for row in comparison.rows],
    }


def row_data(row: Difference) -> dict[str, Any]:
    """A case, kernel or build, with its changes."""
    changed = ("fact", "unit", "before", "after", "outcome", "evidence", "ratio", "low", "high", "noise", "no_interval")
    return {
        **picked(row.subject, "variant", "arch", "shape", "kernel"),
        "shapes": list(row.shapes),
        **picked(row, "was", "outcome", "reason", "judged", "same_code"),
        "changes": [
            {
                "shape": c.subject.shape,
                **picked(c, *changed),
                "process_changes": [expm1(p.change) for p in c.processes],
                "aa_changes": [expm1(p.null) for p in c.processes],
            }
            for c in row.changes
        ],
    }


def _summed(rows: Sequence[Difference]) -> str:
    same = Counter(row.outcome for row in rows if row.same_code and row.outcome not in UNCHANGED)
    words = ((n, outcome, same[outcome]) for outcome, n in counted(rows).items())
    return ", ".join(
        f"{n:,} {outcome}" + (f" ({alike:,} of the same code)" if alike else "") for n, outcome, alike in words
    )
