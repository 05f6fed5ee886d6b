"""A void time is stored as it was measured, and nothing that reads a run uses it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from flashcore import frames
from flashcore.cli import brief, comparison, inner_loop, text_tables
from flashcore.explain.compare_records import compare
from flashcore.explain.readings import Readings
from flashcore.explain.roofline import case_bounds
from flashcore.explain.rows import Row
from flashcore.features.compare import page
from flashcore.model.case import Case
from flashcore.model.cause import Cause
from flashcore.model.causes import BELOW_EMPTY_KERNEL, CLOCKS_DISAGREE, OTHER_PROCESSES
from flashcore.model.record import CaseSubject, Facts, Record
from flashcore.records import store
from tests import factory
from tests.support.judged import judged, rendered

OLD = "20260101T000000Z-0000"
MODES = ("isolated", "back_to_back", "cold", "eager")
#: Case → why its times are void. They would make it a thousand times as fast as any other.
VOID: Mapping[Case, Cause] = {
    Case("fast", "mission"): BELOW_EMPTY_KERNEL("isolated", 0.001, 0.8),
    Case("slow", "long"): OTHER_PROCESSES(2),
    Case("cudnn", "long"): CLOCKS_DISAGREE(0.001, 20.0),
}
NAMES = ("isolated", "back_to_back", "cold", "eager", "speedup", "tflops")


def measured(*, stored: bool, valid: bool = False) -> Record:
    """A run whose void times were stored, or never were.

    Args:
        valid: whether the same samples are the times of the cases, for contrast.
    """
    suite = factory.suite(
        budgets=[factory.budget("isolated_p50", maximum=1.0), factory.budget("cold_p50", minimum=1.0)]
    )
    made = factory.record(suite)
    samples = {key: times for key, times in made.raw_samples.items() if key[0] not in VOID}
    facts = []
    for fact in made.facts:
        if (cause := fact.subject.case and VOID.get(fact.subject.case)) and fact.name.startswith(NAMES):
            fact = replace(fact, value=0.001) if valid else replace(fact, value=None, detail=cause)
        facts.append(fact)
    if stored:
        samples |= {(case, mode): (0.001,) * 40 for case in VOID for mode in MODES}
    first = next(iter(VOID))
    outcomes = [
        replace(o, status="failed", cause=VOID[first]) if (o.case, o.stage) == (first, "bench") and not valid else o
        for o in made.outcomes
    ]
    return replace(made, facts=Facts(facts), raw_samples=samples, outcomes=tuple(outcomes))


def readings(record: Record, folder: Path) -> dict[str, Any]:
    """What every reader makes of a run: ratios, floors, tables, pages, verdicts and comparisons."""
    before = replace(factory.record(record.suite, times={"fast": 50.0}), id=OLD)
    shown = judged(record)
    rows = [Row(Readings(record), [shape]) for shape in record.suite.shapes.values()]
    return {
        "ratios": {
            (row.name, one, other): row.over(one, other) for row in rows for one in row.cases for other in row.cases
        },
        "floors": list(case_bounds(record)),
        "ladder": text_tables.ladder(record),
        "verdicts": [asdict(v) for v in shown.judgement.verdicts],
        "answers": [inner_loop.answers(shown, before, name) for name in record.suite.variants],
        "answers after it": [inner_loop.answers(judged(before), record, name) for name in record.suite.variants],
        "briefs": [brief.brief(shown, f"{v}/{s}") for v in record.suite.variants for s in record.suite.shapes],
        "compared": [comparison.as_json(compare(*sides)) for sides in ((before, record), (record, before))],
        "frames": [frames.table(record, shape).to_json() for shape in record.suite.shapes],
        "pages": {
            file.relative_to(folder.resolve()).as_posix(): file.read_text(encoding="utf-8")
            for file in sorted(rendered(record, folder, against=before, pages=[page.page]))
        },
    }


def test_no_ratio_floor_verdict_page_or_comparison_uses_a_void_sample(tmp_path: Path) -> None:
    stored, never = (measured(stored=stored) for stored in (True, False))
    assert len(stored.raw_samples) == len(never.raw_samples) + len(VOID) * len(MODES)
    one, other, valid = (
        readings(record, tmp_path / name)
        for name, record in (("a", stored), ("b", never), ("c", measured(stored=True, valid=True)))
    )
    for what, value in one.items():
        assert value == other[what], what
        assert value != valid[what], f"{what} shows no time"
    assert len(one["pages"]) > len(stored.suite.variants)


def test_a_void_time_is_unmeasured_with_its_cause_and_its_samples_are_raw() -> None:
    record = measured(stored=True)
    for case, cause in VOID.items():
        subject = CaseSubject(case)
        for mode in MODES:
            time = record.time(subject, mode)
            assert (time.us, time.samples, time.cause) == (None, (), cause)
            assert (case, mode) not in record.samples
            assert record.raw_samples[case, mode] == (0.001,) * 40


def test_a_frame_of_samples_lacks_void_ones_unless_it_is_raw() -> None:
    record = measured(stored=True)
    shown, raw = frames.samples(record), frames.samples(record, raw=True)
    void = shown["void"] != ""
    assert void.sum() == 40 * len(VOID) * len(MODES)
    assert shown["us"].isna().equals(void) and not raw["us"].isna().any()
    assert set(raw["us"][void]) == {0.001} and shown["us"][~void].equals(raw["us"][~void])
    assert any("two clocks disagree" in why for why in shown["void"].unique())


def test_void_samples_are_written_read_and_joined(tmp_path: Path) -> None:
    record = measured(stored=True)
    store.write(record, tmp_path)
    again = store.read(tmp_path)
    assert again.raw_samples.keys() == record.raw_samples.keys() and again.samples.keys() == record.samples.keys()
