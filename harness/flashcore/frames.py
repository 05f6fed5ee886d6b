"""Facts, samples, verdicts and comparisons as pandas frames, for the API, exports and comparison tables.

The index levels are the parts of a subject, as categories in the record's order. Numbers are float64 columns; other
columns are categories or strings. Unmeasured values are missing (NaN, NA), never 0. pandas is imported when a frame is
made; without it that raises :class:`~flashcore.errors.CapabilityError`. Records, gate and parsers do not need pandas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import nan
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from flashcore.errors import MissingPackage, UsageError
from flashcore.explain.comparison import Change, Difference
from flashcore.explain.limiter import time_parts
from flashcore.explain.readings import Readings
from flashcore.explain.resources import Part
from flashcore.explain.roofline import Bound, Point
from flashcore.explain.rows import Row as CaseRow
from flashcore.explain.verdict import Verdict
from flashcore.model.catalogue import FACTS
from flashcore.model.cause import cause_text
from flashcore.model.record import CaseSubject, Fact, Record, Subject, Value

if TYPE_CHECKING:
    from pandas import DataFrame

#: The parts of a subject: the index's level names.
SUBJECT = ("variant", "arch", "shape", "kernel", "launch")
#: The columns of the export. ``type`` is float, int, bool, str, or, for unmeasured facts, none.
EXPORT = (*SUBJECT, "fact", "value", "type", "unit", "source", "note")
#: The default facts of :func:`table`: speed, utilization, and resources of the code.
LADDER = (
    "isolated_p50",
    "isolated_p90",
    "back_to_back_p50",
    "cold_p50",
    "speedup_vs_baseline",
    "speedup_vs_baseline_low",
    "speedup_vs_baseline_high",
    "speedup_vs_reference",
    "speedup_vs_reference_low",
    "speedup_vs_reference_high",
    "tflops",
    "tensor_active",
    "theoretical_occupancy",
    "achieved_occupancy",
    "registers",
    "spill_store_bytes",
    "spill_load_bytes",
    "smem",
)


def export_rows(record: Record) -> Iterator[tuple[Value | None, ...]]:
    """Every fact of a record, exactly as recorded: values for the columns :data:`EXPORT`. Needs no pandas."""
    parts = attrgetter(*SUBJECT)
    for f in record.facts:
        kind = "none" if f.value is None else type(f.value).__name__
        yield (*parts(f.subject), f.name, f.value, kind, f.unit, f.source.value, f.note)


_CASE, _CODE = ("variant", "shape"), SUBJECT[:4]
#: Row type → (index levels, columns as ``name=attribute:kind``). The kinds are in :data:`_KINDS`.
_LAYOUTS: Mapping[type, tuple[Sequence[str], str]] = {
    Fact: (SUBJECT, "fact=name:c value:n text=value:t unit:c source:c note:s"),
    Change: (
        _CODE,
        "fact:c unit:c before:n after:n before_text=before:t after_text=after:t outcome:c evidence:c ratio:n low:n"
        " high:n no_interval:s",
    ),
    Difference: (
        _CASE,
        "mode=lead.mode:c unit=lead.unit:c before=lead.before:n after=lead.after:n ratio=lead.ratio:n low=lead.low:n"
        " high=lead.high:n outcome:c judged:b same_code:b no_interval=lead.no_interval:s",
    ),
    Verdict: (
        _CODE,
        "budget:c fact:c tier:c severity:c status:c value:n unit:c limit:c source:c fact_source:c"
        " required:b progress:n reason:s",
    ),
    Point: (
        (*_CASE, "kernel"),
        "level:c counted:c mode:c roof:c flop:n bytes:n time_us:n intensity:n tflops:n gbps:n"
        " ceiling_tflops=ceiling.tflops:n share:n measured_ceiling_tflops=measured.tflops:n share_of_measured:n"
        " faults:j",
    ),
    Bound: (_CASE, "resource:c amount:n unit:c us:n note:s"),
    Part: (_CASE, "kind:c share:n evidence:s facts:j"),
}


def frame(kind: type, rows: Iterable[Any]) -> DataFrame:
    """A row per fact, change, compared case, verdict or roofline point, in the given order.

    Columns have the names and units of the attributes of ``kind``. Values that are not numbers are in the column
    ``text`` (``before_text``, ``after_text``). Integers above 2^53 are rounded; the export keeps them. A point's
    ``ceiling_tflops`` and ``share`` are relative to the datasheet, if it lists the resource;
    ``measured_ceiling_tflops`` to measured roofs.
    """
    rows = list(rows)
    return _laid_out(kind, [row.subject for row in rows], rows)


def bounds(record: Record) -> DataFrame:
    """A row per case and resource: the least time that the resource allows, in microseconds. Identical shapes are one
    case, whose names are in ``shapes``.

    ``amount`` is the problem's demand on the resource, in ``unit``. ``us`` is missing if the amount or the roof is
    unknown; then ``note`` says which.
    """
    readings = Readings(record)
    cases = _cases(readings, readings.bounds)
    rows = [(subject, bound) for subject in cases for bound in readings.bounds[subject].bounds]
    return _laid_out(Bound, [subject for subject, _ in rows], [bound for _, bound in rows], cases)


def limits(record: Record) -> DataFrame:
    """A row per limiter of each case, largest first: ``kind``, such as ``dram`` or ``stall_barrier``; ``share`` of the
    time in percent; ``evidence``: its counters' values; ``facts``: their names. Identical shapes are one case, whose
    names are in ``shapes``."""
    readings = Readings(record)
    cases = _cases(readings, (CaseSubject(o.case) for o in record.outcomes))
    rows = [(s, part) for s in cases for part in time_parts(readings, s.case).limiters]
    return _laid_out(Part, [subject for subject, _ in rows], [part for _, part in rows], cases)


def _cases(readings: Readings, subjects: Iterable[CaseSubject]) -> dict[CaseSubject, str]:
    """The cases, with the names of their shapes: of identical shapes, the case on which the variant is fastest."""
    suite = readings.record.suite
    rows = [CaseRow(readings, same) for same in suite.rows(suite.shapes.values())]
    names = {CaseSubject(case): row.name for row in rows for case in row.cases.values()}
    return {subject: names[subject] for subject in subjects if subject in names}


def _laid_out(
    kind: type, subjects: Sequence[CaseSubject], rows: Sequence[Any], names: Mapping[CaseSubject, str] | None = None
) -> DataFrame:
    """A row per object of ``kind``, with the columns of its layout, and the names of the case's shapes."""
    levels, layout = _LAYOUTS[kind]
    columns = {}
    for word in layout.split():
        path, _, sort = word.partition(":")
        name, _, attribute = path.partition("=")
        columns[name] = _KINDS[sort](list(map(attrgetter(attribute or name), rows)))
    if names is not None:
        columns["shapes"] = _category([names[subject] for subject in subjects])
    return _indexed(subjects, levels, columns)


def samples(record: Record, *, raw: bool = False) -> DataFrame:
    """A row per timing sample: ``mode``, ``sample`` (its index in the series, from 0), ``us`` (microseconds) and
    ``void``: why the time is void.

    Args:
        raw: whether ``us`` has the samples of void times, which are missing otherwise.
    """
    subjects: list[Subject] = []
    modes: list[str] = []
    places: list[int] = []
    times: list[float] = []
    voids: list[str] = []
    for (case, mode), series in record.raw_samples.items():
        subject = CaseSubject(case)
        void = (case, mode) not in record.samples
        voids += [cause_text(record.time(subject, mode).cause) if void else ""] * len(series)
        subjects += [subject] * len(series)
        modes += [mode] * len(series)
        places += range(len(series))
        times += series if raw or not void else [nan] * len(series)
    columns = {"mode": _category(modes), "sample": _array(places, "int64"), "us": _array(times, "float64")}
    return _indexed(subjects, _CASE, columns | {"void": _category(voids)})


def table(record: Record, shape: str, names: Sequence[str] = LADDER) -> DataFrame:
    """A row per variant that runs on ``shape`` or an identical one, in the manifest's order.

    ``shape`` is the name under which the variant is fastest. ``role`` is baseline, variant or reference (a library);
    ``check`` is the outcome, ``stale`` if the code changed since. Then a column per fact in ``names``, with its
    unit: ``cold_p50 [us]``. Static facts are the measured arch's, and the worst of the variant's kernels. ``floor
    [us]`` is the least time that the resource ``floor_by`` allows, ``gap`` the median time of the ranking mode
    over that floor.

    Raises:
        UsageError: the suite has no such shape, or a name is not a numeric fact.
    """
    if shape not in record.suite.shapes:
        raise UsageError(f"shape {shape}: expected one of {', '.join(record.suite.shapes)}")
    for name in names:
        if name not in FACTS or FACTS[name].unit == "text":
            raise UsageError(f"fact {name}: expected a numeric fact\n  hint: see flashcore list --facts")
    title = {n: n if FACTS[n].unit == "1" else f"{n} [{FACTS[n].unit}]" for n in names}
    readings = Readings(record)
    cases = CaseRow(readings, readings.alike[shape]).cases
    variants = [record.suite.variants[name] for name in cases]
    subjects = [CaseSubject(case) for case in cases.values()]
    checks = {o.case: o.status for o in record.outcomes if o.stage == "check"} | dict.fromkeys(record.stale, "stale")
    time, bounds = record.suite.shapes[shape].time, readings.bounds
    gaps = {s: b.gap(time) for s, b in bounds.items()}
    floors = [gap.floor if (gap := gaps.get(s)) else b.floor if (b := bounds.get(s)) else None for s in subjects]
    columns = {
        "shape": _category([s.shape for s in subjects]),
        "role": _category([record.suite.role(v) for v in variants]),
        "technique": _array([v.technique for v in variants], "string"),
        "parent": _array([v.parent for v in variants], "string"),
        "check": _category([checks.get(s.case) for s in subjects]),
        **{title[n]: _number([readings.of(n, s.case).value for s in subjects]) for n in names},
        "floor [us]": _number([floor.us if floor else None for floor in floors]),
        "floor_by": _category([floor.resource if floor else None for floor in floors]),
        "gap": _number([gap.ratio if (gap := gaps.get(s)) else None for s in subjects]),
    }
    return _indexed(subjects, ("variant",), columns)


# --- columns ------------------------------------------------------------------------------------


def pandas() -> Any:
    """Imports pandas.

    Raises:
        MissingPackage: pandas is not installed.
    """
    try:
        import pandas
    except ModuleNotFoundError as error:
        raise MissingPackage("a frame", error.name or "pandas") from error
    return pandas


def _indexed(subjects: Sequence[Subject], levels: Sequence[str], columns: Mapping[str, Any]) -> DataFrame:
    """A frame of the columns with an index. Each distinct subject is split only once, since there are many facts."""
    pd = pandas()
    distinct: dict[Subject, int] = {}
    rows = _array([distinct.setdefault(s, len(distinct)) for s in subjects], "int64")
    parts = {level: list(map(attrgetter(level), distinct)) for level in levels}
    arrays = [(_array(p, "Int64") if n == "launch" else _category(p)).take(rows) for n, p in parts.items()]
    index = pd.MultiIndex.from_arrays(arrays, names=levels) if len(levels) > 1 else pd.Index(arrays[0], name=levels[0])
    made: DataFrame = pd.DataFrame(columns, index=index)
    return made


def _array(values: Sequence[Any], dtype: str) -> Any:
    return pandas().Series(values, dtype=dtype).values


def _category(values: Sequence[str | None]) -> Any:
    """Categories in the order of their first appearance."""
    pd = pandas()
    codes, distinct = pd.factorize(_array(values, "object"))
    return pd.Categorical.from_codes(codes, pd.Index(list(map(str, distinct)), dtype="str"))


def _number(values: Sequence[Value | None]) -> Any:
    """Numbers as float64; booleans and text are missing, as in :attr:`Fact.number`."""
    return _array([v if type(v) in (float, int) else float("nan") for v in values], "float64")


_KINDS: Mapping[str, Callable[[Sequence[Any]], Any]] = {
    "c": _category,
    "n": _number,
    "t": lambda values: _category([str(v) if isinstance(v, (str, bool)) else None for v in values]),
    "s": lambda values: _array(values, "string"),
    "j": lambda values: _array(["; ".join(v) for v in values], "string"),
    "b": lambda values: _array(values, "bool"),
}
