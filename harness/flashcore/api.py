"""What ``import flashcore as fc`` offers: runs as frames, for notebooks and scripts. The names are stable.

    run = fc.read_run("profiles/20261121T131258Z-4c52")
    run.table("mission").sort_values("warm_p50 [us]")
    fc.judge(run).exit_code

Runs and suites are frozen data as everywhere in flashcore; the frames made of them are described in
:mod:`flashcore.frames` and need pandas (the extra ``frames``). Whatever cannot be done raises a
:class:`~flashcore.errors.FlashcoreError` that says what was expected, what was found and what to do.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from flashcore import frames
from flashcore.analysis import diff
from flashcore.analysis import roofline as rooflines
from flashcore.errors import Exit, UsageError
from flashcore.errors import FlashcoreError as FlashcoreError
from flashcore.gate import baseline as baselines
from flashcore.gate import judge as gate
from flashcore.manifest import load
from flashcore.model.record import Record
from flashcore.model.suite import Suite, Tier
from flashcore.runs import store

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True, eq=False)
class Run:
    """A recorded run. ``record`` is all of it as frozen data: suite, environment, outcomes, facts, samples."""

    record: Record = field(repr=False)

    def __repr__(self) -> str:
        record = self.record
        return f"<Run {record.id}: {record.suite.name} on {record.gpu or 'no GPU'}, {len(record.facts):,} facts>"

    def facts_frame(self) -> DataFrame:
        """Every fact, a row each: see :func:`flashcore.frames.facts`."""
        return frames.facts(self.record.facts)

    def samples_frame(self) -> DataFrame:
        """Every timing sample in microseconds, a row each: see :func:`flashcore.frames.samples`."""
        return frames.samples(self.record)

    def table(self, shape: str, facts: Sequence[str] = frames.LADDER) -> DataFrame:
        """A row per variant at ``shape``, columns with units: see :func:`flashcore.frames.table`.

        Raises:
            UsageError: the suite has no such shape, or a name in ``facts`` is no fact with a number.
        """
        return frames.table(self.record, shape, facts)


def load_suite(folder: Path | str) -> Suite:
    """The suite whose ``suite.toml`` lies in ``folder``.

    Raises:
        UsageError: there is no such folder or no manifest in it.
        ManifestError: the manifest is wrong; holds every mistake found.
    """
    return load.load(folder)


def read_run(run: Path | str | None = None, profiles: Path | str = "profiles") -> Run:
    """A recorded run.

    Args:
        run: its folder, its id or the beginning of one; the newest in ``profiles`` if ``None``.

    Raises:
        UsageError: there is no such run, or several begin so.
        RecordError: it is not whole, not readable, or of an older or newer schema.
    """
    return Run(store.read(store.find(Path(profiles), None if run is None else str(run))))


@dataclass(frozen=True, eq=False)
class ComparedRuns:
    """What changed from one run to another.

    Args:
        static: facts that differ, which is exact: see :func:`flashcore.frames.changes`.
        times: median times side by side: see :func:`flashcore.frames.time_changes`. Empty where the runs are not of the
            same suite and GPU. Between two runs a ratio is shown, not judged: machines and days differ.
        remarks: what keeps the two from being compared like for like.
    """

    static: DataFrame
    times: DataFrame
    remarks: tuple[str, ...]


def compare(a: Run, b: Run) -> ComparedRuns:
    """What changed from ``a`` to ``b``."""
    before, after = a.record, b.record
    times = [] if diff.comparable(before, after) else diff.timing(before, after)
    static = frames.changes(diff.changes(before, after))
    return ComparedRuns(static, frames.time_changes(times), tuple(diff.remarks(before, after)))


@dataclass(frozen=True, eq=False)
class JudgedRun:
    """What the gate says of a run.

    Args:
        verdicts: a row per promise and subject: see :func:`flashcore.frames.verdicts`.
        exit_code: as ``flashcore gate RUN`` exits.
        judgement: all of it as frozen data, with waivers and notes.
    """

    verdicts: DataFrame
    exit_code: Exit
    judgement: gate.Judgement = field(repr=False)


def judge(
    run: Run, *, require: Tier = "static", today: datetime.date | None = None, baseline: Path | str | None = None
) -> JudgedRun:
    """Judges a run by the budgets of its suite, as ``flashcore gate RUN`` does.

    Args:
        require: the highest tier in which an unmeasured limit leads to exit code 3: static, counters, timing.
        today: the day that waivers' dates are held against; today in UTC if ``None``.
        baseline: a file of earlier static facts to hold the present ones to.

    Raises:
        UsageError: there is no such baseline, or it cannot be read.
    """
    held_to = baselines.read(Path(baseline)) if baseline is not None else None
    if baseline is not None and held_to is None:
        raise UsageError(f"{baseline}: expected a baseline, found no such file\n  to mend: flashcore baseline save")
    day = today or datetime.datetime.now(datetime.UTC).date()
    judgement = gate.judge(run.record, require=require, today=day, baseline=held_to)
    return JudgedRun(frames.verdicts(judgement.verdicts), judgement.exit_code, judgement)


@dataclass(frozen=True, eq=False)
class Roofline:
    """Where the kernels of a run stand.

    Args:
        points: see :func:`flashcore.frames.points`.
        missing: the cases, kernels and levels without a point, and the ``reason``.
    """

    points: DataFrame
    missing: DataFrame


def roofline(run: Run) -> Roofline:
    """The points of every case and of its kernels, at each level that was measured."""
    return Roofline(frames.points(rooflines.points(run.record)), frames.reasons(rooflines.missing(run.record)))
