"""What ``import flashcore as fc`` offers: runs as frames, for notebooks and scripts. The names are stable.

    run = fc.read_run("20261122T201621Z-c175")
    run.table("mission").sort_values("isolated_p50 [us]")
    fc.judge(run).exit_code

Suites and records are frozen data, as everywhere in flashcore. :mod:`flashcore.frames` describes the frames, which need
pandas (the extra ``frames``). What cannot be done raises a :class:`~flashcore.errors.FlashcoreError` that says what was
expected, what was found and what to do.
"""

from __future__ import annotations

import datetime
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec

from flashcore import frames
from flashcore.errors import Exit, FlashcoreError, UsageError
from flashcore.explain import diff
from flashcore.explain import roofline as rooflines
from flashcore.gate import judge as gate
from flashcore.model.record import Fact, Record, StageResult
from flashcore.model.suite import Tier
from flashcore.records import lookup, store
from flashcore.suites import load

if TYPE_CHECKING:
    from pandas import DataFrame

P = ParamSpec("P")
load_suite = load.load


@dataclass(frozen=True, eq=False, repr=False)
class Run:
    """A recorded run. ``record`` is all of it as frozen data: suite, environment, outcomes, facts, samples."""

    record: Record

    def __repr__(self) -> str:
        record = self.record
        return f"<Run {record.id}: {record.suite.name} on {record.gpu or 'no GPU'}, {len(record.facts):,} facts>"

    def facts_frame(self) -> DataFrame:
        """Every fact, a row each: see :func:`flashcore.frames.frame`."""
        return frames.frame(Fact, self.record.facts)

    def samples_frame(self) -> DataFrame:
        """Every timing sample in microseconds, a row each: see :func:`flashcore.frames.samples`."""
        return frames.samples(self.record)

    def table(self, shape: str, facts: Sequence[str] = frames.LADDER) -> DataFrame:
        """A row per variant at ``shape``, columns with units: see :func:`flashcore.frames.table`.

        Raises:
            UsageError: the suite has no such shape, or a name in ``facts`` is no fact with a number.
        """
        return frames.table(self.record, shape, facts)


def read_run(run: Path | str | None = None, profiles: Path | str = "profiles") -> Run:
    """The run of that folder, packed file or id (its beginning will do); the newest in ``profiles`` if ``None``.

    Raises:
        UsageError: there is no such run, or several begin so.
        RecordError: it is not whole, not readable, or of an older or newer schema.
    """
    return Run(store.read(lookup.find(Path(profiles), None if run is None else str(run))))


class ComparedRuns(NamedTuple):
    """What changed from one run to another.

    ``static`` has a row per :class:`~flashcore.explain.diff.Change`, and is exact. ``times`` has a row per
    :class:`~flashcore.explain.diff.TimeChange`, shown and not judged, since machines and days differ; none where the
    runs are not of one suite and GPU. ``remarks`` say why the comparison may mislead.
    """

    static: DataFrame
    times: DataFrame
    remarks: tuple[str, ...]


def compare(a: Run, b: Run) -> ComparedRuns:
    """What changed from ``a`` to ``b``."""
    before, after = a.record, b.record
    static = frames.frame(diff.Change, diff.changes(before, after))
    times = [] if diff.comparable(before, after) else diff.timing(before, after)
    return ComparedRuns(static, frames.frame(diff.TimeChange, times), tuple(diff.remarks(before, after)))


class JudgedRun(NamedTuple):
    """A row per :class:`~flashcore.gate.judge.Verdict`, and how ``flashcore gate RUN`` exits."""

    verdicts: DataFrame
    exit_code: Exit


def judge(run: Run, *, require: Tier = "static", today: datetime.date | None = None) -> JudgedRun:
    """Judges a run by the budgets of its suite, as ``flashcore gate RUN`` does.

    Args:
        require: the highest tier in which an unmeasured limit leads to exit code 3.
        today: the day that waivers' dates are compared with; today in UTC if ``None``.
    """
    day = today or datetime.datetime.now(datetime.UTC).date()
    judgement = gate.judge(run.record, require=require, today=day)
    return JudgedRun(frames.frame(gate.Verdict, judgement.verdicts), judgement.exit_code)


def roofline(run: Run) -> DataFrame:
    """A row per :class:`~flashcore.explain.roofline.Point`: every case and each of its kernels, at each level that was
    measured. What a point lacks is unmeasured among the run's facts, with its reason."""
    return frames.frame(rooflines.Point, rooflines.points(run.record))


def capture(function: Callable[..., Any], *args: Any, **kwargs: Any) -> DataFrame:
    """The facts of one call of a function on this machine's GPU, as :meth:`Run.facts_frame` has them; ``launch``
    counts the call's kernels. See ``docs/how-to/capture-a-command.md`` for how it is run under ncu: in another process,
    after three calls to warm up.

    Raises:
        UsageError: the function or an argument cannot be sent there.
        CapabilityError: this machine has no GPU, no ncu or no permission to read counters.
        FlashcoreError: the call failed there, as it says.
    """
    result = _profiled(function, {"call": (args, kwargs)})
    if result.outcomes[0].status != "ok":
        raise FlashcoreError(f"{function.__qualname__}: expected a call that ends, found: {result.outcomes[0].reason}")
    return frames.frame(Fact, result.facts)


def captured(function: Callable[P, Any]) -> Callable[P, DataFrame]:
    """A decorator: a call of the function is captured, and gives the frame of :func:`capture` for its answer."""
    from flashcore.plugins.capture.functions import is_inside

    @functools.wraps(function)
    def instead(*args: P.args, **kwargs: P.kwargs) -> DataFrame:
        return function(*args, **kwargs) if is_inside() else capture(instead, *args, **kwargs)

    return instead


def sweep(function: Callable[..., Any], configs: Iterable[Mapping[str, Any]]) -> DataFrame:
    """The facts of a call with each config's keyword arguments, all in one process; columns of their names say which.

    The facts of a call that failed are unmeasured, with the reason in ``note``: the others are there.

    Raises:
        UsageError, CapabilityError: see :func:`capture`; or a config's name is that of a column.
    """
    given = list(configs)
    names = list(dict.fromkeys(name for config in given for name in config))
    by_call = {f"c{i}_" + "_".join(f"{k}_{v}" for k, v in config.items()): config for i, config in enumerate(given)}
    result = _profiled(function, {name: ((), config) for name, config in by_call.items()})
    made = frames.frame(Fact, result.facts)
    if taken := [name for name in names if name in (*made.columns, *made.index.names)]:
        raise UsageError(f"expected arguments of other names than a frame's columns, found {', '.join(taken)}")
    which = dict(zip([outcome.shape for outcome in result.outcomes], given, strict=True))
    for place, name in enumerate(names):
        made.insert(place, name, [which[shape].get(name) for shape in made.index.get_level_values("shape")])
    return made


def _profiled(
    function: Callable[..., Any], calls: Mapping[str, tuple[Sequence[Any], Mapping[str, Any]]]
) -> StageResult:
    import tempfile

    from flashcore.plugins.capture import functions

    with tempfile.TemporaryDirectory(prefix="flashcore-capture-") as folder:
        return functions.profiled(function, calls, Path(folder))
