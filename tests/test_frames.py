from __future__ import annotations

import dataclasses
import math
import sys
from typing import Any

import pytest

from flashcore import frames
from flashcore.errors import CapabilityError, UsageError
from flashcore.explain import compare_records, roofline
from flashcore.explain.comparison import Change
from flashcore.explain.limiter import time_parts
from flashcore.explain.readings import Readings
from flashcore.model.case import Case
from flashcore.model.causes import CodeChanged
from flashcore.model.record import CaseSubject, Fact, Facts, Record
from tests import factory
from tests.support.late import optional

pd = optional("pandas")


@pytest.fixture(scope="module")
def record() -> Record:
    return factory.record(suite=factory.suite(budgets=[factory.budget("registers", maximum=90)]))


# --- facts --------------------------------------------------------------------------------------


def test_each_fact_is_a_row_in_the_order_recorded(record: Record) -> None:
    frame = frames.frame(Fact, record.facts)
    assert frame.index.names == list(frames.SUBJECT)
    back = [
        (*(None if pd.isna(part) else part for part in row[0]), *row[1:])
        for row in frame[["fact", "unit", "source", "note"]].itertuples(name=None)
    ]
    assert back == [
        (s.variant, s.arch, s.shape, s.kernel, s.launch, f.name, f.unit, str(f.source), f.note)
        for f in record.facts
        for s in [f.subject]
    ]


def test_a_column_has_its_own_dtype(record: Record) -> None:
    dtypes = frames.frame(Fact, record.facts).reset_index().dtypes.astype(str).to_dict()
    categories = ("variant", "arch", "shape", "kernel", "fact", "text", "unit", "source")
    assert dtypes == {**dict.fromkeys(categories, "category"), "launch": "Int64", "value": "float64", "note": "string"}


def test_a_frame_of_nothing_has_the_same_columns(record: Record) -> None:
    full, empty = frames.frame(Fact, record.facts), frames.frame(Fact, ())
    assert list(empty.columns) == list(full.columns)
    assert [str(d) for d in empty.dtypes] == [str(d) for d in full.dtypes]
    assert empty.index.names == full.index.names


def test_what_is_unmeasured_is_missing_and_zero_stays_zero() -> None:
    results = [
        factory.fact("registers", None, detail="cuobjdump is absent"),
        factory.fact("spill_store_bytes", 0),
        factory.fact("occupancy_limiter", "registers"),
        factory.fact("plan_matches", True),
        factory.fact("ncu_duration", 2**53),
    ]
    frame = frames.frame(Fact, results)
    assert [None if math.isnan(v) else v for v in frame["value"]] == [None, 0.0, None, None, 2.0**53]
    assert [None if pd.isna(t) else t for t in frame["text"]] == [None, None, "registers", "True", None]
    assert frame["note"].iloc[0] == "cuobjdump is absent"


def test_rows_are_found_by_subject(record: Record) -> None:
    frame = frames.frame(Fact, [*record.facts, factory.fact("registers", 7, shape="mission", kernel="other", launch=3)])
    assert set(frame.loc["fast"].index.get_level_values("arch").dropna()) == set(factory.ARCHS)
    [value] = frame.xs(3, level="launch")["value"]
    assert value == 7
    mission = frame.xs("mission", level="shape").query("fact == 'isolated_p50' and variant == 'fast'")
    assert mission["value"].tolist() == [
        record.facts.number("isolated_p50", factory.fact("isolated_p50", 0, "fast", shape="mission").subject)
    ]


def test_categories_stand_in_the_order_of_the_record(record: Record) -> None:
    variants = frames.frame(Fact, record.facts).index.levels[0]
    assert list(variants) == list(record.suite.variants)


# --- table --------------------------------------------------------------------------------------


def test_what_a_table_lacks_is_missing_never_zero(record: Record) -> None:
    table = frames.table(record, "mission")
    assert math.isnan(table.loc["cudnn", "registers"])  # a reference: its kernels are not built here
    bare = frames.table(factory.bare_record(), "mission").select_dtypes("float64")
    assert bare.shape == (4, len(frames.LADDER) + 2)
    assert bare.isna().all(axis=None)


def test_a_stale_case_says_so_and_has_no_gap(record: Record) -> None:
    old = dataclasses.replace(record, stale={Case("fast", "mission"): CodeChanged("device")})
    table = frames.table(old, "mission")
    assert table["check"].to_dict() == {"slow": "ok", "fast": "stale", "split": "ok", "cudnn": "ok"}
    assert math.isnan(table.loc["fast", "gap"])
    assert table.loc["slow", "gap"] > 1


def test_floor_and_gap_are_of_one_mode(record: Record) -> None:
    row = frames.table(record, "mission").loc["fast"]
    assert row["gap"] == pytest.approx(row["isolated_p50 [us]"] / row["floor [us]"])
    assert row["floor_by"] != "dram"  # its data fits L2


def test_a_table_shows_the_facts_that_are_named(record: Record) -> None:
    table = frames.table(record, "long", ["l2_hit"])
    assert table["l2_hit [pct]"].tolist() == [80.0] * 4
    assert "isolated_p50 [us]" not in table


@pytest.mark.parametrize(
    ("shape", "names", "words"),
    [
        ("huge", ["registers"], "shape huge: expected one of mission, long"),
        ("mission", ["register"], "fact register: expected a numeric fact"),
        ("mission", ["occupancy_limiter"], "fact occupancy_limiter: expected a numeric fact"),
    ],
)
def test_a_table_of_what_is_not_there_says_what_is(record: Record, shape: str, names: list[str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        frames.table(record, shape, names)


# --- the others ---------------------------------------------------------------------------------


def test_every_sample_is_a_row(record: Record) -> None:
    frame = frames.samples(record)
    assert len(frame) == sum(map(len, record.samples.values()))
    assert dict(frame.dtypes.astype(str)) == {
        "mode": "category", "sample": "int64", "us": "float64", "void": "category"
    }  # fmt: skip
    warm = frame.loc[("split", "long")].query("mode == 'isolated'")
    assert tuple(warm["us"]) == record.samples[Case("split", "long"), "isolated"]
    assert warm["sample"].tolist() == list(range(len(warm)))


def test_changes_keep_numbers_and_texts_apart(record: Record) -> None:
    where: dict[str, Any] = {"arch": "sm_80", "kernel": "fast_kernel"}
    after = factory.record(
        facts=[
            factory.fact("registers", 40, **where),
            factory.fact("stack_bytes", None, **where),
            factory.fact("occupancy_limiter", "warps", shape="mission", **where),
        ]
    )
    frame = frames.frame(Change, compare_records.changes(record, after)).set_index("fact", append=True)
    at = ("fast", "sm_80")
    code = frame.loc[at].droplevel(["shape", "kernel"])
    assert code.loc["registers", ["before", "after", "outcome"]].tolist() == [96.0, 40.0, "better"]
    assert code.loc["stack_bytes", "before"] == 0
    assert math.isnan(code.loc["stack_bytes", "after"])
    assert code.loc["stack_bytes", "outcome"] == "gone"
    assert code.loc["occupancy_limiter", ["before_text", "after_text"]].tolist() == ["registers", "warps"]
    assert math.isnan(code.loc["occupancy_limiter", "before"])


def test_time_changes_hold_the_ratio_and_its_interval_or_why_there_is_none(record: Record) -> None:
    later = factory.record(times={"fast": 20.0}, id="20260102T030405Z-0002")
    rows = compare_records.compare(record, later).rows
    times = [change for row in rows for change in row.changes if change.speedup]
    frame = frames.frame(Change, times)
    assert frame["ratio"].tolist() == [change.ratio for change in times] and len(times) > 4
    assert frame[["low", "high"]].isna().all(axis=None) and frame["evidence"].isna().all()
    assert all("no interval: " in why for why in frame["no_interval"])
    fast, slow = (record.time(CaseSubject(Case(v, "mission")), "isolated") for v in ("fast", "slow"))
    alternate = frames.frame(Change, [compare_records.time_change(slow, fast)]).iloc[0]
    assert alternate["low"] < alternate["ratio"] < alternate["high"] and alternate["evidence"] == "one run"
    assert alternate["no_interval"] == ""


def test_points_hold_what_a_roofline_shows(record: Record) -> None:
    result = roofline.points(record)
    frame = frames.frame(roofline.Point, result)
    for name in ("level", "counted", "flop", "intensity", "tflops", "share"):
        assert frame[name].tolist() == [getattr(p, name) for p in result], name
    assert frame["ceiling_tflops"].tolist() == [p.ceiling.tflops for p in result]
    assert frame["measured_ceiling_tflops"].isna().all()  # no roof was measured


def test_limiters_are_the_ranked_ones_of_each_case_with_evidence(record: Record) -> None:
    frame, readings = frames.limits(record), Readings(record)
    assert len(frame) and (frame["evidence"] != "").all()
    for (variant, shape), rows in frame.groupby(["variant", "shape"], observed=True):
        assert rows["kind"].tolist() == [x.kind for x in time_parts(readings, Case(variant, shape)).limiters]


def test_identical_shapes_are_one_case_with_all_its_names() -> None:
    twin = dataclasses.replace(factory.shape("twin"), problem="general", same_as="mission", rank_by="back_to_back")
    variants = (factory.variant("slow"), factory.variant("best", problem="general"), factory.reference("cudnn"))
    record = factory.record(factory.suite(variants, (factory.shape(), twin)), times={"slow": 40.0, "best": 4.0})
    for shape in ("mission", "twin"):
        assert frames.table(record, shape)["shape"].to_dict() == {"slow": "mission", "cudnn": "mission", "best": "twin"}
    again = dataclasses.replace(factory.shape("again"), rank_by="back_to_back")
    same = factory.record(factory.suite(variants[:1], (factory.shape(), again)), times={"slow": 40.0})
    for frame in (frames.bounds(same), frames.limits(same)):
        assert set(frame.index) == {("slow", "mission")} and set(frame["shapes"]) == {"mission = again"}


# --- without pandas -----------------------------------------------------------------------------


def test_without_pandas_a_frame_says_how_to_get_it(record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(CapabilityError, match="needs the Python package pandas") as caught:
        frames.frame(Fact, record.facts)
    assert "frames" in caught.value.hint


def test_the_rows_of_the_export_are_the_facts_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    results = [
        factory.fact("registers", 7, arch="sm_80", shape="mission", kernel="k", launch=0),
        factory.fact("isolated_p50", 7.0),
        factory.fact("l2_hit", None, detail="no ncu"),
    ]
    bare = dataclasses.replace(factory.bare_record(), facts=Facts(results))
    rows = [dict(zip(frames.EXPORT, row, strict=True)) for row in frames.export_rows(bare)]
    assert [(r["value"], r["type"], r["launch"]) for r in rows] == [
        (7, "int", 0),
        (7.0, "float", None),
        (None, "none", None),
    ]
    assert rows[2]["note"] == "no ncu"
