"""Facts, samples, verdicts and comparisons as pandas frames: for the API, the export and tables that compare.

The index of a frame is what its rows are about: levels of a subject, each a category in the order of the record. A
number is a float64 column, text a string, what repeats a category. What was not measured is missing (NaN, NA), never
0. Nothing here is for the record, the gate or the parsers of tools' output, which do without pandas.

pandas is imported when a frame is made. Where there is none, that raises :class:`~flashcore.errors.CapabilityError`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from flashcore.analysis.diff import Change, TimeChange
from flashcore.analysis.predictions import Readings
from flashcore.analysis.roofline import Point, case_bounds
from flashcore.errors import CapabilityError, UsageError
from flashcore.gate.judge import Verdict
from flashcore.model.catalogue import FACTS
from flashcore.model.record import Fact, Record, Subject, Value

if TYPE_CHECKING:
    from pandas import DataFrame

#: The parts of a subject, as the index names them.
SUBJECT = ("variant", "arch", "shape", "kernel", "launch")
_CODE = SUBJECT[:4]

#: What :func:`table` shows of each variant: speed, how well the chip is used, what the code takes of it.
LADDER = (
    "warm_p50", "warm_p90", "cold_p50",
    "speedup_vs_baseline", "speedup_vs_baseline_low", "speedup_vs_baseline_high",
    "speedup_vs_peer", "speedup_vs_peer_low", "speedup_vs_peer_high",
    "tflops", "tensor_active", "theoretical_occupancy", "achieved_occupancy",
    "registers", "spill_store_bytes", "spill_load_bytes", "smem",
)  # fmt: skip

#: The columns of the export. ``type`` is float, int, bool, str, or none where the fact is unmeasured.
EXPORT = (*SUBJECT, "fact", "value", "type", "unit", "source", "note")


def export_rows(record: Record) -> Iterator[tuple[Value | None, ...]]:
    """Every fact of a record, exactly as recorded: the values of :data:`EXPORT`. Needs no pandas."""
    parts = attrgetter(*SUBJECT)
    for f in record.facts:
        kind = "none" if f.value is None else type(f.value).__name__
        yield (*parts(f.subject), f.name, f.value, kind, f.unit, f.source.value, f.note)


def facts(found: Iterable[Fact]) -> DataFrame:
    """A row per fact, in the order recorded, by variant, arch, shape, kernel and launch.

    Columns: ``fact``, ``value`` (float64, in ``unit``; NaN if unmeasured or not a number), ``text`` (the value that is
    not a number), ``unit``, ``source``, ``note``. Whole numbers above 2^53 are rounded here: the export keeps them.
    """
    every = list(found)
    return _frame(
        [f.subject for f in every],
        SUBJECT,
        fact=_category([f.name for f in every]),
        value=_numbers([f.value for f in every]),
        text=_category(_texts([f.value for f in every])),
        unit=_category([f.unit for f in every]),
        source=_category([f.source for f in every]),
        note=_strings([f.note for f in every]),
    )


def samples(record: Record) -> DataFrame:
    """A row per timing sample, by variant and shape.

    Columns: ``mode`` (warm, cold, eager), ``sample`` (its place in the series, from 0, in the order of the rounds) and
    ``us`` (microseconds).
    """
    subjects: list[Subject] = []
    modes: list[str] = []
    places: list[int] = []
    times: list[float] = []
    for key, series in record.samples.items():
        case, _, mode = key.rpartition("/")
        variant, _, shape = case.partition("/")
        subjects += [Subject(variant, shape=shape)] * len(series)
        modes += [mode] * len(series)
        places += range(len(series))
        times += series
    columns = {"mode": _category(modes), "sample": _array(places, "int64"), "us": _numbers(times)}
    return _frame(subjects, ("variant", "shape"), **columns)


def table(record: Record, shape: str, names: Sequence[str] = LADDER) -> DataFrame:
    """A row per variant that runs on ``shape``, in the order of the manifest, by variant.

    Columns: ``role`` (baseline, variant, peer), ``technique``, ``parent``; ``check`` (what became of it, ``stale`` if
    its code has changed since); a float64 column per fact, named with its unit as ``warm_p50 [us]``; ``floor [us]``,
    the least time that the resource ``floor_by`` allows, and ``gap``, the median warm time over it. Static facts are of
    the arch that was measured: the largest of the variant's kernels, or the smallest of what is better high.

    Args:
        names: the facts to show.

    Raises:
        UsageError: the suite has no such shape, or a name is no fact with a number.
    """
    suite = record.suite
    if shape not in suite.shapes:
        raise UsageError(f"shape {shape}: expected one of {', '.join(suite.shapes)}")
    for name in names:
        if name not in FACTS or FACTS[name].unit == "text":
            raise UsageError(f"fact {name}: expected a fact with a number\n  to mend: see flashcore list --facts")
    shown = [v for v in suite.variants.values() if v.runs_on(suite.shapes[shape])]
    checks = {(o.variant, o.shape): o.status for o in record.outcomes if o.stage == "check"}
    readings = Readings(record)
    bounds = {b.subject: b for b in case_bounds(record)}
    cases = [bounds.get(Subject(v.name, shape=shape)) for v in shown]
    gaps = [next((g for g in c.gaps if g.time == "warm_p50"), None) if c else None for c in cases]
    floors = [g.floor if g else c.floor if c else None for g, c in zip(gaps, cases, strict=True)]
    roles = ["peer" if v.is_peer else "baseline" if v.name == suite.baseline else "variant" for v in shown]
    stale = [f"{v.name}/{shape}" in record.stale for v in shown]
    columns = {
        "role": _category(roles),
        "technique": _strings([v.technique for v in shown]),
        "parent": _strings([v.parent for v in shown]),
        "check": _category(
            ["stale" if old else checks.get((v.name, shape)) for v, old in zip(shown, stale, strict=True)]
        ),
        **{with_unit(n): _numbers([readings.of(n, v.name, shape).value for v in shown]) for n in names},
        "floor [us]": _numbers([f.us if f else None for f in floors]),
        "floor_by": _category([f.resource if f else None for f in floors]),
        "gap": _numbers([g.ratio if g else None for g in gaps]),
    }
    return _frame([Subject(v.name) for v in shown], ("variant",), **columns)


def with_unit(name: str) -> str:
    """A fact's name as a column carries it: ``warm_p50 [us]``, and ``registers`` for what is counted."""
    unit = FACTS[name].unit
    return name if unit == "1" else f"{name} [{unit}]"


def changes(found: Sequence[Change]) -> DataFrame:
    """A row per fact that differs, by variant, arch, shape and kernel.

    Columns: ``fact``, ``unit``, ``before`` and ``after`` (float64), ``before_text`` and ``after_text`` (of facts that
    are not numbers), ``direction`` (better, worse, changed, appeared, vanished).
    """
    before, after = [c.before for c in found], [c.after for c in found]
    columns = _columns(found, category=("fact", "unit"))
    columns |= {"before": _numbers(before), "after": _numbers(after)}
    columns |= {"before_text": _category(_texts(before)), "after_text": _category(_texts(after))}
    return _frame([c.subject for c in found], _CODE, **columns, **_columns(found, category=("direction",)))


def time_changes(found: Sequence[TimeChange]) -> DataFrame:
    """A row per case and mode that both sides timed, by variant and shape.

    Columns: ``mode``, ``before_us`` and ``after_us`` (medians), ``ratio`` (before over after: above 1 is faster) with
    its 95 % interval ``low`` to ``high``, ``judged`` (both timed in one run), ``same_code``.
    """
    numbers = ("before_us", "after_us", "ratio", "low", "high")
    columns = _columns(found, category=("mode",), number=numbers, truth=("judged", "same_code"))
    return _frame([c.subject for c in found], ("variant", "shape"), **columns)


def verdicts(found: Sequence[Verdict]) -> DataFrame:
    """A row per verdict, by variant, arch, shape and kernel.

    Columns: ``budget``, ``fact``, ``tier``, ``severity`` (limit, goal), ``status`` (pass, fail, unmeasured, waived,
    open), ``value`` (float64, in ``unit``; NaN where the promise is no number), ``unit``, ``limit`` (``≤ 128``),
    ``source`` (of the promise), ``fact_source``, ``required``, ``progress`` (of a goal, 1 when reached), ``reason``.
    """
    columns = _columns(found, category=("budget", "fact", "tier", "severity", "status"), number=("value",))
    columns |= _columns(found, category=("unit", "limit", "source", "fact_source"), truth=("required",))
    columns |= _columns(found, number=("progress",), string=("reason",))
    return _frame([v.subject for v in found], _CODE, **columns)


def points(found: Sequence[Point]) -> DataFrame:
    """A row per point of a roofline, by variant, shape and kernel (missing for a case as a whole).

    Columns: ``level`` (dram, l2, l1: where the bytes were counted), ``counted`` (who counted the FLOPs: hardware,
    formula), ``regime``, ``roof`` (the dtype of the variant's own), ``flop``, ``bytes``, ``time_us``, ``intensity``
    (FLOP per byte), ``tflops``, ``gbps``; ``ceiling_tflops`` and ``share`` of it reached, by datasheet;
    ``measured_ceiling_tflops`` and ``share_of_measured``, by measured roofs; ``faults`` (why it cannot be right).
    """
    numbers = ("flop", "bytes", "time_us", "intensity", "tflops", "gbps")
    columns = _columns(found, category=("level", "counted", "regime", "roof"), number=numbers)
    columns |= {"ceiling_tflops": _numbers([p.theory.tflops for p in found]), **_columns(found, number=("share",))}
    columns["measured_ceiling_tflops"] = _numbers([p.measured.tflops for p in found])
    columns |= _columns(found, number=("share_of_measured",))
    columns["faults"] = _strings(["; ".join(p.faults) for p in found])
    return _frame([p.subject for p in found], ("variant", "shape", "kernel"), **columns)


def reasons(found: Sequence[tuple[Subject, str]]) -> DataFrame:
    """A row per thing that is missing, by variant, shape and kernel. Column: ``reason``."""
    return _frame([s for s, _ in found], ("variant", "shape", "kernel"), reason=_strings([r for _, r in found]))


# --- columns ------------------------------------------------------------------------------------


def _pandas() -> Any:
    try:
        import pandas
    except ModuleNotFoundError as error:
        mend = "pip install pandas, or install flashcore with its extra `frames`"
        raise CapabilityError(f"frames need the Python package pandas, found none ({error})", mend) from error
    return pandas


def _frame(subjects: Sequence[Subject], levels: Sequence[str], **columns: Any) -> DataFrame:
    """The columns under an index of these levels. Each distinct subject is taken apart once: facts are many."""
    pd = _pandas()
    distinct: dict[Subject, int] = {}
    rows = _array([distinct.setdefault(s, len(distinct)) for s in subjects], "int64")
    parts = {level: list(map(attrgetter(level), distinct)) for level in levels}
    arrays = [
        (pd.array(part, dtype="Int64") if level == "launch" else _category(part)).take(rows)
        for level, part in parts.items()
    ]
    index = pd.MultiIndex.from_arrays(arrays, names=levels) if len(levels) > 1 else pd.Index(arrays[0], name=levels[0])
    frame: DataFrame = pd.DataFrame(columns, index=index)
    return frame


def _columns(
    rows: Sequence[object],
    category: Sequence[str] = (),
    number: Sequence[str] = (),
    string: Sequence[str] = (),
    truth: Sequence[str] = (),
) -> dict[str, Any]:
    """Columns of attributes, by the name of each."""
    kinds = ((category, _category), (number, _numbers), (string, _strings), (truth, lambda v: _array(v, "bool")))
    return {name: make(list(map(attrgetter(name), rows))) for names, make in kinds for name in names}


def _array(values: Sequence[Any], dtype: str) -> Any:
    import numpy

    return numpy.array(values, dtype=dtype)


def _category(values: Sequence[str | None]) -> Any:
    """Categories in the order of their first appearance."""
    pd = _pandas()
    codes, distinct = pd.factorize(_array(values, "object"))
    return pd.Categorical.from_codes(codes, pd.Index(list(map(str, distinct)), dtype="str"))


def _strings(values: Sequence[str | None]) -> Any:
    return _pandas().array(values, dtype="string")


def _numbers(values: Sequence[Value | None]) -> Any:
    """Float64; a truth or a text is no number, as in :attr:`Fact.number`."""
    nan = float("nan")
    return _array([v if type(v) is float or type(v) is int else nan for v in values], "float64")


def _texts(values: Sequence[Value | None]) -> list[str | None]:
    """What :func:`_numbers` leaves out, as text."""
    return [str(v) if isinstance(v, (str, bool)) else None for v in values]
