"""The Python API, ``import flashcore as fc``: recorded runs as pandas frames, for notebooks and scripts. Names are
stable.

    run = fc.read_run("20261201T110251Z-5b8e")
    run.table("mission").sort_values("isolated_p50 [us]")
    fc.judge(run).exit_code

Suites and records are frozen dataclasses. :mod:`flashcore.frames` describes the frames, which need pandas (the extra
``frames``). Every error is a :class:`~flashcore.errors.FlashcoreError` that states the expected and the actual value,
and a hint.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from flashcore import frames, roofline_figure
from flashcore.errors import CapabilityError, Exit, UsageError
from flashcore.explain import compare_records
from flashcore.explain import roofline as rooflines
from flashcore.explain.verdict import Verdict
from flashcore.model.record import Fact, Record
from flashcore.model.suite import TIERS, Tier
from flashcore.model.text import did_you_mean, shortened
from flashcore.pipeline import judging, plugins
from flashcore.records import lookup, store
from flashcore.suites import load

if TYPE_CHECKING:
    from pandas import DataFrame
    from plotly.graph_objects import Figure


load_suite = load.load
plugins.load()  # records contain plugins' facts and causes, manifests contain their tables


@dataclass(frozen=True, eq=False, repr=False)
class Run:
    """A recorded run. ``record`` has all its data: suite, environment, outcomes, facts, samples."""

    record: Record

    def __repr__(self) -> str:
        record = self.record
        return f"<Run {record.id}: {record.suite.name} on {record.gpu or 'no GPU'}, {len(record.facts):,} facts>"

    @property
    def shapes(self) -> tuple[str, ...]:
        """The names of the suite's shapes, in the manifest's order."""
        return tuple(self.record.suite.shapes)

    @property
    def variants(self) -> tuple[str, ...]:
        """The names of the suite's variants, including references, in the manifest's order."""
        return tuple(self.record.suite.variants)

    def facts_frame(self) -> DataFrame:
        """A row per fact: see :func:`flashcore.frames.frame`."""
        return frames.frame(Fact, self.record.facts)

    def samples_frame(self, *, raw: bool = False) -> DataFrame:
        """A row per timing sample, in microseconds; ``raw``: also those of void times. See
        :func:`flashcore.frames.samples`."""
        return frames.samples(self.record, raw=raw)

    def bounds_frame(self) -> DataFrame:
        """A row per case and resource with the resource's least time: see :func:`flashcore.frames.bounds`."""
        return frames.bounds(self.record)

    def limiters_frame(self) -> DataFrame:
        """A row per limiter of each case: see :func:`flashcore.frames.limits`."""
        return frames.limits(self.record)

    def table(self, shape: str | None = None, facts: Sequence[str] = frames.LADDER) -> DataFrame:
        """A row per variant on ``shape``, with units in the column names: see :func:`flashcore.frames.table`.

        Args:
            shape: ``None``: the suite's first.

        Raises:
            UsageError: the suite has no such shape, or a name in ``facts`` is not a numeric fact.
        """
        return frames.table(self.record, self.shapes[0] if shape is None else shape, facts)

    def roofline(self, shape: str | None = None, against: Run | None = None) -> Figure:
        """The report's roofline as a plotly figure: the useful FLOPs over the time that ranks, against the bytes of a
        memory level. Its menu has the other levels, and the FLOPs that the hardware counted.

        Args:
            shape: ``None``: the suite's first. An imported run has one roofline for all kernels.
            against: another run of the suite. Arrows lead from its marks to this run's.

        Raises:
            UsageError: the suite has no such shape, none of its cases has a point, or the two runs do not compare.
            CapabilityError: plotly is not installed.
        """
        record, before = self.record, None if against is None else recorded(against)
        name = self.shapes[0] if shape is None else shape
        if name not in self.shapes:
            raise UsageError(f"shape {name}: expected one of {', '.join(self.shapes)}{did_you_mean(name, self.shapes)}")
        if before is not None and (reason := compare_records.comparable(before, record)):
            raise UsageError(f"against={before.id}: expected a run that compares with {record.id}: {reason}")
        chart = roofline_figure.of_record(record, name, before)
        if not chart.points:
            raise UsageError(f"shape {name}: expected a case with time, FLOPs and bytes, found none in run {record.id}")
        try:
            from plotly.graph_objects import Figure
        except ModuleNotFoundError as error:
            hint = "pip install plotly, or install flashcore with its extra `frames`"
            raise CapabilityError(
                f"figures need the Python package plotly, which cannot be imported ({error})", hint
            ) from error
        return Figure(chart.figure())


def read_run(run: Path | str | None = None, profiles: Path | str = "profiles") -> Run:
    """Reads a run by its folder, packed file or id (or an id's prefix); ``None``: the newest in ``profiles``.

    Raises:
        UsageError: there is no such run, or several ids have this prefix.
        RecordError: the run is incomplete, unreadable, or has another schema version.
    """
    return Run(store.read(lookup.find(Path(profiles), None if run is None else str(run))))


def recorded(run: Run) -> Record:
    """The record of a run.

    Raises:
        UsageError: ``run`` is not a :class:`Run`, for example a run's id.
    """
    expect("a Run", Run, "fc.read_run(…) reads one by its id or folder", run)
    return run.record


def expect(what: str, kind: Any, hint: str, *values: object) -> None:
    """Checks the type of arguments, of which there must be one.

    Raises:
        UsageError: one is of another type, or there is none.
    """
    wrong = [shortened(value) for value in values if not isinstance(value, kind)]
    if wrong or not values:
        raise UsageError(f"expected {what}, found {', '.join(wrong) or 'none'}\n  hint: {hint}")


class JudgedRun(NamedTuple):
    """A row per :class:`~flashcore.explain.verdict.Verdict`, and the exit code of ``flashcore gate RUN``."""

    verdicts: DataFrame
    exit_code: Exit


def judge(run: Run, *, require: Tier = "static", today: datetime.date | None = None) -> JudgedRun:
    """Judges a run by its suite's budgets, like ``flashcore gate RUN``.

    Args:
        require: the highest tier in which an unmeasured limit leads to exit code 3.
        today: the day to compare waivers' dates with; ``None``: today in UTC.

    Raises:
        UsageError: ``require`` is not a tier.
    """
    if require not in TIERS:
        raise UsageError(f"require={require!r}: expected one of {', '.join(TIERS)}{did_you_mean(require, TIERS)}")
    record = recorded(run)
    judgement = judging.judge_record(judging.Rules(require=require, compare=False, day=today), record).judgement
    return JudgedRun(frames.frame(Verdict, judgement.verdicts), judgement.exit_code)


def roofline(run: Run) -> DataFrame:
    """A row per :class:`~flashcore.explain.roofline.Point`: every case and each of its kernels, at each measured memory
    level. A missing value is an unmeasured fact of the run, which has the reason."""
    return frames.frame(rooflines.Point, rooflines.points(recorded(run)))


def __getattr__(name: str) -> Any:
    """A name that a plugin adds, such as ``capture``."""
    if name in dict(plugins.entries("api")):
        return plugins.find("api", name)
    raise AttributeError(f"module 'flashcore' has no attribute {name!r}")
